"""Peer: PyTorch training steps, plain in one process, DistributedDataParallel in more, on gloo or what
TORCH_BACKEND names. Data is in memory.
Run: launch.py RANKS /usr/bin/python3 torch_train.py MODEL STEPS

  mlp   784-512-10, batch 32 a rank, cross entropy, SGD
  conv  the basic MNIST network (two convolutions, two linear layers), batch 64 a rank, Adadelta
  gpt   4 layers, 4 heads, d 256, T 128, vocabulary 65, batch 8 a rank, AdamW
"""
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel
from torch_group import join


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attention(self, x):
        B, T, C = x.shape
        q, k, v = [t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).split(C, 2)]
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5
            later = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
            y = F.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, d=256, heads=4, layers=4, T=128, V=65):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, d), nn.Embedding(T, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, V, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])))


def make(name):
    """(model, x, y, loss function, optimizer class with its arguments)"""
    if name == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
        return (model, torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,)), F.cross_entropy,
                lambda p: torch.optim.SGD(p, lr=1e-3))
    if name == "conv":
        return (Conv(), torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)), F.nll_loss,
                lambda p: torch.optim.Adadelta(p, lr=1.0))
    if name == "gpt":
        return (GPT(), torch.randint(0, 65, (8, 128)), torch.randint(0, 65, (8, 128)),
                lambda out, y: F.cross_entropy(out.view(-1, 65), y.view(-1)), lambda p: torch.optim.AdamW(p, lr=3e-4))
    sys.exit(__doc__)


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)
    model, x, y, loss_of, optimizer_of = make(name)
    if world > 1:
        join()
        model = DistributedDataParallel(model)
        if os.environ.get("TORCH_HOOK") == "noop":  # all but what is sent
            model.register_comm_hook(None, noop_hook)
    optimizer = optimizer_of(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(max(3, steps // 10)):
        step()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        seconds.append((time.perf_counter() - start) / steps)
    if rank == 0:
        print(json.dumps({"bench": "step", "peer": "torch", "model": name, "world": world,
                          "ms_median": round(statistics.median(seconds) * 1e3, 4),
                          "ms_min": round(min(seconds) * 1e3, 4),
                          "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                          "loss": round(loss.item(), 4), "version": torch.__version__}))


main()
