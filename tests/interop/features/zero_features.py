"""zero_features.c in PyTorch: zero_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by `tutti run`. Stage 1 is
ZeroRedundancyOptimizer; stage 2, which PyTorch has as part of FSDP alone, is compared with the plain optimizer, whose
results it must have."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS, IN, HIDDEN, OUT, BATCH = 50, 20, 48, 4, 8

SGD = (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
ADAM = (torch.optim.Adam, {"lr": 1e-3})
ADAMW = (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.01})

# NAME: optimizer, stage, clipped to
FEATURES = {
    "ZeRO-1, SGD with momentum": (SGD, 1, 0),
    "ZeRO-1, Adam": (ADAM, 1, 0),
    "ZeRO-1, AdamW": (ADAMW, 1, 0),
    "ZeRO-2, SGD with momentum": (SGD, 2, 0),
    "ZeRO-2, Adam": (ADAM, 2, 0),
    "ZeRO-2, AdamW, clipped": (ADAMW, 2, 0.2),
}


def write(name, value, out):
    print(name, *(f"{x:.9g}" for x in value.detach().flatten().tolist()), file=out)


def train(name, out):
    rank = dist.get_rank()
    (kind, options), stage, clip = FEATURES[name]
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUT)))
    optimizer = (ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=kind, **options) if stage == 1
                 else kind(ddp.parameters(), **options))
    torch.manual_seed(1000 + rank)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        x, y = torch.randn(BATCH, IN), torch.randn(BATCH, OUT)
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(ddp.parameters(), clip)
        optimizer.step()
        print(f"loss {loss.item():.9g}", file=out)
    for key, value in ddp.module.named_parameters():
        write(key, value, out)
    if stage == 1:
        optimizer.consolidate_state_dict(0)
    if rank == 0:
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
