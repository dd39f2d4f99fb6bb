"""Peer: torch.distributed (gloo) all_reduce of float32, sum. Run: launch.py 2 /usr/bin/python3 torch_allreduce.py
BYTES..."""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
for size in map(int, sys.argv[1:]):
    x = torch.zeros(size // 4)
    calls = max(5, min(500, int(2e8 / (size * 20 + 400_000))))
    for _ in range(3):
        dist.all_reduce(x)
    seconds = []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        seconds.append((time.perf_counter() - start) / calls)
    if dist.get_rank() == 0:
        print(json.dumps({"bench": "all_reduce", "peer": "torch", "world": dist.get_world_size(), "bytes": size,
                          "usec_median": round(statistics.median(seconds) * 1e6, 2),
                          "usec_min": round(min(seconds) * 1e6, 2)}))
