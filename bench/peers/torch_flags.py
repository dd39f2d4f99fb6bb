"""Peer: what PyTorch's flags cost a step of DistributedDataParallel (gloo): steps with and without, in turn in the same
processes; 784-512-10, batch 32 a rank, SGD. Run: launch.py RANKS PYTHON torch_flags.py unused|join|sparse PAIRS

  unused  find_unused_parameters=True, with a parameter that no pass uses, beside a model without it and the flag
  join    within Join, beside without: blocks of steps, as a block ends with collectives of its own
  sparse  a table of 100,000 x 64 of which each rank reads 512 rows: Embedding(sparse=True), beside gradients of the
          whole
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

WARM_UP, BLOCK, TABLE_ROWS, TOKENS = 20, 50, 100_000, 512


class Spare(nn.Module):
    def __init__(self, spare):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
        if spare:
            self.spare = nn.Linear(10, 10)

    def forward(self, x):
        return self.net(x)


def make_model(what, other):
    if what == "sparse":
        return nn.Sequential(nn.Embedding(TABLE_ROWS, 64, sparse=other), nn.Linear(64, 10))
    return Spare(other and what == "unused")


class Side:
    def __init__(self, what, other):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(make_model(what, other), find_unused_parameters=other and what == "unused")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.ms = []

    def step(self, x, y):
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.ms.append((time.perf_counter() - begin) * 1e3)

    def block(self, x, y, joined, steps):
        if not joined:
            for _ in range(steps):
                self.step(x, y)
            return
        with Join([self.model]):
            for _ in range(steps):
                self.step(x, y)


def main():
    what, pairs = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    if what == "sparse":
        x = (torch.arange(TOKENS) + dist.get_rank() * TOKENS) * 7919 % TABLE_ROWS
        y = torch.zeros(TOKENS, dtype=torch.int64)
    else:
        x, y = torch.randn(32, 784), torch.randint(0, 10, (32,))
    sides = [Side(what, False), Side(what, True)]
    steps = BLOCK if what == "join" else 1
    for i in range(-WARM_UP if steps == 1 else -1, pairs // steps):
        for k in range(2):
            s = (i + k) % 2
            sides[s].block(x, y, what == "join" and s == 1, steps)
        if i < 0:
            for side in sides:
                side.ms.clear()
    if dist.get_rank() == 0:
        plain, other = (side.ms for side in sides)
        model = "table" if what == "sparse" else "mlp"
        print(json.dumps({"bench": "step_pairs", "peer": "torch", "what": what, "model": model, "pairs": len(plain),
                          "plain_ms": round(statistics.median(plain), 4),
                          "other_ms": round(statistics.median(other), 4),
                          "ratio": round(statistics.median(b / a for a, b in zip(plain, other)), 4),
                          "version": torch.__version__}))
    dist.barrier()
    dist.destroy_process_group()


main()
