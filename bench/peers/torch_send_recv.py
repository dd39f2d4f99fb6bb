"""Peer: half a round trip of torch.distributed's send and recv, on gloo or what TORCH_BACKEND names. Run: launch.py 2
/usr/bin/python3 torch_send_recv.py BYTES..."""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch_group import join

torch.set_num_threads(1)
backend = join()
rank = dist.get_rank()


def there_and_back(x):
    for sender in (0, 1):
        if rank == sender:
            dist.send(x, 1 - rank)
        else:
            dist.recv(x, 1 - rank)


for size in map(int, sys.argv[1:]):
    x = torch.zeros(size // 4)
    calls = max(5, min(500, int(1e8 / (size * 2 + 200_000))))
    for _ in range(3):
        there_and_back(x)
    seconds = []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            there_and_back(x)
        seconds.append((time.perf_counter() - start) / (2 * calls))
    if rank == 0:
        print(json.dumps({"bench": "send_recv", "peer": "torch", "backend": backend, "world": 2, "bytes": size,
                          "usec_median": round(statistics.median(seconds) * 1e6, 2),
                          "usec_min": round(min(seconds) * 1e6, 2)}))
