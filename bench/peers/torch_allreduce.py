"""Peer: torch.distributed all_reduce of float32, sum, on gloo or what TORCH_BACKEND names. Blocks of calls, each behind
a barrier; all ranks make as many as take rank 0 a twentieth of a second. Run: launch.py 2 /usr/bin/python3
torch_allreduce.py BYTES..."""
import json
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch_group import join

BLOCKS, SECONDS, TRIED = 9, 0.05, 10


def seconds_of(x, calls):
    """Of a call."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    return (time.perf_counter() - start) / calls


torch.set_num_threads(1)
backend = join()
for size in map(int, sys.argv[1:]):
    x = torch.zeros(size // 4)
    seconds_of(x, 3)
    many = torch.tensor([max(5, min(10_000, int(SECONDS / seconds_of(x, TRIED))))])
    dist.broadcast(many, 0)
    calls = int(many)
    seconds = [seconds_of(x, calls) for _ in range(BLOCKS)]
    if dist.get_rank() == 0:
        print(json.dumps({"bench": "all_reduce", "peer": "torch", "backend": backend, "version": torch.__version__,
                          "world": dist.get_world_size(), "bytes": size,
                          "usec_median": round(statistics.median(seconds) * 1e6, 2),
                          "usec_min": round(min(seconds) * 1e6, 2),
                          "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))
