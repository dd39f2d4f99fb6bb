#!/usr/bin/env python3
"""Train a small network with DistributedDataParallel on ranks that survive the loss of others (tutti_torch.elastic).

  tutti run --standalone --nproc-per-node=4 --max-restarts=3 elastic_train.py --lose=20

A lost rank is replaced, and the others go on from the last step, in the same processes: the losses are those of a run
that lost nobody. Under torchrun, give each rank an agent of its own, since an agent ends all its workers when one
fails:

  torchrun --nnodes=4 --nproc-per-node=1 --node-rank=R --master-addr=HOST --master-port=29500 --max-restarts=3 \\
      elastic_train.py --lose=20                                                                 (R: 0, 1, 2, 3)

There the others go on at once with three ranks, and the fourth joins them when its agent has started it again."""
import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import tutti_torch.elastic as elastic
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 240  # of all ranks together: divisible by 1 to 6


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, metavar="N")
    parser.add_argument("--lose", type=int, metavar="STEP", help="rank 1 is killed in this step, once")
    parser.add_argument("--signal", type=int, default=signal.SIGKILL, metavar="N", help="by this signal (9)")
    parser.add_argument("--times", action="store_true", help="say when each step ends, in seconds since 1970")
    return parser.parse_args()


def batch(step):
    """Points in the plane, and whether they lie within a ring."""
    draws = torch.Generator().manual_seed(step)
    points = torch.rand(BATCH, 2, generator=draws) * 2 - 1
    inside = ((points.norm(dim=1) - 0.6).abs() < 0.25).float()
    ranks, rank = dist.get_world_size(), dist.get_rank()
    return points.chunk(ranks)[rank], inside.chunk(ranks)[rank]


@elastic.run
def train(state, options):
    net = DistributedDataParallel(state.net)  # again after each change: it counts the ranks
    if dist.get_rank() == 0 and elastic.members()[0] > 0:
        print(f"{dist.get_world_size()} ranks go on at step {state.step}: {elastic.members()[1]}", flush=True)
    while state.step < options.steps:
        if state.step == options.lose and elastic.members()[0] == 0 and int(os.environ["RANK"]) == 1:
            print(f"rank 1 is lost at {time.time():.3f}", flush=True)
            os.kill(os.getpid(), options.signal)
        points, inside = batch(state.step)
        state.adam.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(net(points).squeeze(1), inside)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        state.adam.step()
        state.step += 1
        state.losses.append(mean.item())
        state.commit()
        if options.times and dist.get_rank() == 0:
            print(f"step {state.step} on {dist.get_world_size()} ranks at {time.time():.3f}", flush=True)


def main():
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    elastic.init()
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    adam = torch.optim.Adam(net.parameters(), 0.05)
    state = elastic.State(net=net, adam=adam, step=0, losses=[])
    train(state, options)
    if dist.get_rank() == 0:
        print("losses " + " ".join(f"{loss:.5f}" for loss in state.losses[::40] + state.losses[-1:]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
