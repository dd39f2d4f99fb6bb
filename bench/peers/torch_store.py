"""Peer: TCPStore operations a second, one client over loopback, values of 64 bytes. Run: /usr/bin/python3
torch_store.py [COUNT]"""
import json
import socket
import sys
import time
from datetime import timedelta

from torch.distributed import TCPStore

count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
server = TCPStore("127.0.0.1", port, 1, True, timedelta(seconds=10))
client = TCPStore("127.0.0.1", port, 1, False, timedelta(seconds=10))
value = "x" * 64
for name, call in (("set", lambda i: client.set(f"k{i}", value)),
                   ("get", lambda i: client.get(f"k{i}")),
                   ("add", lambda i: client.add("counter", 1)),
                   ("wait", lambda i: client.wait([f"k{i}"]))):
    start = time.perf_counter()
    for i in range(count):
        call(i)
    print(json.dumps({"bench": "store", "peer": "torch", "op": name, "clients": 1,
                      "ops_per_sec": round(count / (time.perf_counter() - start))}))
