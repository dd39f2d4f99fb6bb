"""Peer: a TCPStore's server for many clients. Prints its port and serves until its stdin ends."""
import resource
import socket
import sys
from datetime import timedelta

from torch.distributed import TCPStore

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
server = TCPStore("127.0.0.1", port, 1, True, timedelta(seconds=10))
print(port, flush=True)
sys.stdin.read()
