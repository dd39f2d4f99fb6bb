"""fully_shard_features.c in PyTorch: fully_shard_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by
`tutti run`. Where this PyTorch has FSDP2 (torch.distributed.fsdp.fully_shard), beside that; before it, beside
DistributedDataParallel and the plain optimizer, whose results sharded modules must have."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if int(torch.__version__.split(".", maxsplit=1)[0]) >= 2:
    from torch.distributed.fsdp import fully_shard
else:
    fully_shard = None  # 1.13's module does not even import under a current Python

STEPS, IN, HIDDEN, OUT, BATCH = 50, 20, 48, 4, 8

SGD = (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
ADAM = (torch.optim.Adam, {"lr": 1e-3})
ADAMW = (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.01})

# NAME: optimizer, units stay whole until the step, passes a step, clipped to
FEATURES = {
    "SGD with momentum": (SGD, False, 1, 0),
    "Adam": (ADAM, False, 1, 0),
    "AdamW, clipped": (ADAMW, False, 1, 0.2),
    "AdamW, kept whole after forward, clipped": (ADAMW, True, 1, 0.2),
    "Adam, two passes a step": (ADAM, False, 2, 0),
}


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def write(name, value, out):
    print(name, *(f"{x:.9g}" for x in whole(value).detach().flatten().tolist()), file=out)


def wrap(model, keep):
    if not fully_shard:
        return DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for child in model.children():
        if isinstance(child, nn.Linear):
            fully_shard(child, mesh=mesh, reshard_after_forward=not keep)
    return fully_shard(model, mesh=mesh, reshard_after_forward=not keep)


def train_step(wrapped, optimizer, passes, clip, out):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(passes):
        x, y = torch.randn(BATCH, IN), torch.randn(BATCH, OUT)
        loss = nn.functional.mse_loss(wrapped(x), y)
        loss.backward()
        print(f"loss {loss.item():.9g}", file=out)
    if clip:
        write("norm", nn.utils.clip_grad_norm_(wrapped.parameters(), clip), out)
    optimizer.step()


def train(name, out):
    (kind, options), keep, passes, clip = FEATURES[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
                          nn.Linear(HIDDEN, OUT))
    wrapped = wrap(model, keep)
    optimizer = kind(wrapped.parameters(), **options)
    torch.manual_seed(1000 + dist.get_rank())
    for _ in range(STEPS):
        train_step(wrapped, optimizer, passes, clip, out)
    for key, value in model.named_parameters():
        write(key, value, out)
    for number, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if key != "step":
                write(f"state.{number}.{key}", value, out)


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
