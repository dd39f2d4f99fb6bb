"""local_sgd_features.c in PyTorch: local_sgd_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by `tutti run`.
PyTorch has no DiLoCo: here it is the paper's algorithm, with torch.optim.SGD as the outer optimizer."""
import collections
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS, IN, HIDDEN, OUT, BATCH, PERIOD, WARMUP, DILOCO_PERIOD = 50, 20, 16, 4, 8, 4, 20, 5


def new_subgroups(group_size, group=None):
    """Groups of ranks that follow each other: 1.13's own refuses to make them without CUDA."""
    del group
    rank = dist.get_rank()
    made = {first: dist.new_group(range(first, first + group_size))
            for first in range(0, dist.get_world_size(), group_size)}
    return made[rank - rank % group_size], list(made.values())


dist.new_subgroups = new_subgroups


def momentum_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


class Averaged:
    """A model, its optimizer, and an averager that is told of each step."""

    def __init__(self, model, averager):
        self.model, self.sgd, self.averager = model, momentum_sgd(model), averager

    def forward(self, x):
        return self.model(x)

    def step(self):
        self.sgd.step()
        self.averager.average_parameters(self.model.parameters())

    def zero_grad(self):
        self.sgd.zero_grad(set_to_none=True)


def periodic(model):
    return Averaged(model, PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP))


def hierarchical(model):
    world = dist.get_world_size()
    return Averaged(model, HierarchicalModelAverager(
        period_group_size_dict=collections.OrderedDict([(2, world // 2), (6, world)]), warmup_steps=7))


class PostLocal:
    def __init__(self, model, averages):
        half, _ = new_subgroups(dist.get_world_size() // 2)
        self.forward = DistributedDataParallel(model)
        self.forward.register_comm_hook(PostLocalSGDState(None, half, WARMUP, averages), post_localSGD_hook)
        self.optimizer = PostLocalSGDOptimizer(momentum_sgd(model),
                                               PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP))
        self.step = self.optimizer.step

    def zero_grad(self):
        self.optimizer.zero_grad()


class DiLoCo:
    def __init__(self, model):
        self.forward = model
        self.params = list(model.parameters())
        self.anchors = [p.detach().clone() for p in self.params]
        self.inner = torch.optim.AdamW(self.params, lr=0.01, weight_decay=0.01)
        self.outer = torch.optim.SGD(self.anchors, lr=0.7, momentum=0.9, nesterov=True)
        self.steps = 0

    def step(self):
        self.inner.step()
        self.steps += 1
        if self.steps % DILOCO_PERIOD:
            return
        for anchor, param in zip(self.anchors, self.params):
            anchor.grad = anchor - param.detach()
            dist.all_reduce(anchor.grad)
            anchor.grad /= dist.get_world_size()
        self.outer.step()
        with torch.no_grad():
            for anchor, param in zip(self.anchors, self.params):
                param.copy_(anchor)

    def zero_grad(self):
        self.inner.zero_grad(set_to_none=True)


FEATURES = {
    "periodic averaging": periodic,
    "hierarchical averaging": hierarchical,
    "post-local SGD": lambda model: PostLocal(model, True),
    "post-local SGD without local averages": lambda model: PostLocal(model, False),
    "DiLoCo": DiLoCo,
}


def train(name, out):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT))
    training = FEATURES[name](model)
    torch.manual_seed(1000 + dist.get_rank())
    for _ in range(STEPS):
        x, y = torch.randn(BATCH, IN), torch.randn(BATCH, OUT)
        training.zero_grad()
        loss = nn.functional.mse_loss(training.forward(x), y)
        loss.backward()
        training.step()
        print(f"loss {loss.item():.9g}", file=out)
    for key, value in model.named_parameters():
        print(key, *(f"{x:.9g}" for x in value.detach().flatten().tolist()), file=out)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in FEATURES:
        with open(f"{sys.argv[1]}/torch.{name}.{dist.get_rank()}", "w", encoding="ascii") as out:
            train(name, out)
    dist.barrier()
    os._exit(0)  # ending in order, gloo's threads now and then abort the current version's process


if __name__ == "__main__":
    main()
