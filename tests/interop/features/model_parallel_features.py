"""model_parallel_features.c in PyTorch: model_parallel_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by
`tutti run`. The current version divides the linear layers itself (torch.distributed.tensor.parallel); elsewhere each
rank has the whole model."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError:
    init_device_mesh = None

STEPS, IN, HIDDEN, OUT, BATCH, WORDS = 50, 20, 32, 4, 8, 32

# NAME: copies (-1: as many as there are pairs of ranks), two stages, of words
FEATURES = {
    "two stages, in copies": (-1, True, False),
    "column- and row-parallel linear": (1, False, False),
    "column- and row-parallel linear, in copies": (2, False, False),
    "vocabulary-parallel embedding and cross_entropy": (1, False, True),
}
DIVIDED = "column- and row-parallel linear"  # by PyTorch, too


def whole_model(words):
    torch.manual_seed(0)
    if words:
        return nn.Sequential(nn.Embedding(WORDS, IN), nn.Linear(IN, WORDS))
    return nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT))


def copies_of(copies, number, parts):
    """The ranks that have the same part."""
    groups = [dist.new_group([copy * parts + n for copy in range(copies)]) for n in range(parts)]
    return groups[number]


def full(x):
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).detach()


def train(name, out):
    copies, staged, words = FEATURES[name]
    rank, world = dist.get_rank(), dist.get_world_size()
    copies = world // 2 if copies < 0 else copies
    parts = world // copies
    copy, number = divmod(rank, parts)
    model = trained = whole_model(words)
    if name == DIVIDED and init_device_mesh:
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("part",))
        model = trained = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif copies > 1:
        trained = DistributedDataParallel(model, process_group=copies_of(copies, number, parts))
    sgd = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1000 + copy)
    for _ in range(STEPS):
        sgd.zero_grad(set_to_none=True)
        if words:
            x, y = torch.randint(0, WORDS, (BATCH,)), torch.randint(0, WORDS, (BATCH,))
            loss = nn.functional.cross_entropy(trained(x), y)
        else:
            x, y = torch.randn(BATCH, IN), torch.randn(BATCH, OUT)
            loss = nn.functional.mse_loss(trained(x), y)
        loss.backward()
        if not staged or number == 1:
            print(f"loss {loss.item():.9g}", file=out)
        sgd.step()
    for key, value in model.named_parameters():
        whole = full(value)
        if not staged or (number == 0) == key.startswith("0."):
            print(key, *(f"{x:.9g}" for x in whole.flatten().tolist()), file=out)


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
