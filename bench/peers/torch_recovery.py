"""Peer: a rank for recovery.py that trains 784-512-10, batches of 32, without end, and after each step appends "0 PID
STEP" to the file "steps". Starts from the checkpoint that rank 0 saves every SAVE steps, as PyTorch's tutorials do.
Run: python3 -m torch.distributed.run FLAGS torch_recovery.py SAVE"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = pathlib.Path("checkpoint.pt")


def main():
    save_every, steps = int(sys.argv[1]), os.open("steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer, step = torch.optim.SGD(model.parameters(), lr=1e-3), 0
    x, y = torch.randn(32, 784), torch.zeros(32, dtype=torch.long)
    if CHECKPOINT.exists():
        found = torch.load(CHECKPOINT, map_location="cpu")
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        step = found["step"]
    ddp = DistributedDataParallel(model)
    while True:
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
        step += 1
        os.write(steps, f"0 {os.getpid()} {step}\n".encode())
        if step % save_every == 0 and dist.get_rank() == 0:
            new = CHECKPOINT.with_suffix(".new")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, new)
            new.rename(CHECKPOINT)


main()
