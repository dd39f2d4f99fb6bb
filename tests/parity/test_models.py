#!/usr/bin/env python3
"""Whole models beside PyTorch: from seed 0, whose initial weights are the same bits, on the same batches, the losses of
each step. Skipped (77) without torch.

usage: test_models.py [--steps N] [--only MODEL]
  --steps N   of each model, ResNet-18 at most 10 (default: what takes seconds; docs/models.md says what 50 gave)
"""
import argparse
import os
import subprocess
import sys

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

CLOSE = 1e-4
VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 65, 128, 256, 4, 4


class ConvNet(nn.Module):
    """PyTorch's basic MNIST example, without its dropouts."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)


class BasicBlock(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        if stride != 1 or into != width:
            self.downsample = nn.Sequential(nn.Conv2d(into, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layers = nn.Sequential(*[BasicBlock(max(64, width // 2) if first else width, width,
                                                 2 if first and width > 64 else 1)
                                      for width in (64, 128, 256, 512) for first in (True, False)])
        self.fc = nn.Linear(512, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layers(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        C = WIDTH
        self.l1, self.l2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.o = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.f, self.g = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in self.qkv(self.l1(x)).split(C, 2))
        later = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        scores = ((q @ k.transpose(-2, -1)) * (C // HEADS) ** -0.5).masked_fill(later, float("-inf"))
        x = x + self.o((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.g(F.gelu(self.f(self.l2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.b = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.l, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids): return self.head(self.l(self.b(self.e(ids) + self.p.weight[:ids.shape[1]])))


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(VOCABULARY, 64), nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, VOCABULARY)

    def forward(self, ids): return self.head(self.lstm(self.embedding(ids))[0])


# ---- batches that can be learned from


def images(rows, channels, size):
    """Noisy pictures of one of ten patterns each."""
    patterns = torch.randn(10, channels, size, size, generator=torch.Generator().manual_seed(99))

    def batch(generator):
        y = torch.randint(0, 10, (rows, 1), generator=generator)
        return patterns[y[:, 0]] + torch.randn(rows, channels, size, size, generator=generator), y
    return batch


def texts(rows, length):
    """Walks through the vocabulary: the next token is one of two that follow from the last one."""
    def batch(generator):
        x = torch.randint(0, VOCABULARY, (rows, length + 1), generator=generator)
        choice = torch.randint(0, 2, (rows, length + 1), generator=generator)
        for t in range(length):
            x[:, t + 1] = (x[:, t] * 5 + 3 + choice[:, t] * 11) % VOCABULARY
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()
    return batch


def logits_loss(y, target): return F.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))
def logs_loss(y, target): return F.nll_loss(y, target[:, 0])
def sgd(parameters): return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
def adadelta(parameters): return torch.optim.Adadelta(parameters, lr=1.0)
def adam(parameters): return torch.optim.Adam(parameters, lr=3e-3)
def adamw(parameters): return torch.optim.AdamW(parameters, lr=3e-4)


def mlp(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


# Name: model, element type, optimizer, loss, rows of a batch, batches, steps that take seconds, most steps.
MODELS = {
    "mlp": (mlp, torch.float32, sgd, logits_loss, 32, images(32, 1, 28), 20, 1 << 30),
    "mnist": (ConvNet, torch.float32, adadelta, logs_loss, 16, images(16, 1, 28), 4, 1 << 30),
    "resnet18": (ResNet18, torch.float64, sgd, logits_loss, 8, images(8, 3, 33), 1, 10),
    "gpt": (GPT, torch.float32, adamw, logits_loss, 4, texts(4, POSITIONS), 2, 1 << 30),
    "lstm": (CharLSTM, torch.float32, adam, logits_loss, 16, texts(16, 50), 6, 1 << 30),
}


def torch_losses(make, dtype, optimizer, loss, batches):
    torch.manual_seed(0)
    if dtype == torch.float64:
        torch.set_default_dtype(dtype)
    model = make()
    torch.set_default_dtype(torch.float32)
    step = optimizer(model.parameters())
    for x, y in batches:
        step.zero_grad()
        value = loss(model(x), y)
        value.backward()
        step.step()
        yield value.item()


def tutti_losses(name, rows, batches):
    program = os.path.join(os.environ["TT_PROGRAMS"], "models")
    data = b"".join(x.numpy().tobytes() + y.numpy().tobytes() for x, y in batches)
    done = subprocess.run([program, name, str(len(batches)), str(rows)], input=data, stdout=subprocess.PIPE, check=True)
    return [float(line) for line in done.stdout.split()]


def compare(name, steps):
    make, dtype, optimizer, loss, rows, batch, few, most = MODELS[name]
    generator = torch.Generator().manual_seed(7)
    batches = [batch(generator) for _ in range(min(steps or few, most))]
    batches = [(x if x.dtype == torch.int64 else x.to(dtype), y) for x, y in batches]
    ours, theirs = tutti_losses(name, rows, batches), list(torch_losses(make, dtype, optimizer, loss, batches))
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{name}: {len(ours)} steps, loss {theirs[0]:.4f} to {theirs[-1]:.4f}, differs by at most {worst:.2g}",
          flush=True)
    return len(ours) == len(theirs) and worst <= CLOSE


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if "TT_SANITIZED" in os.environ:  # which find nothing in a second step, and take minutes for ResNet-18's
        del MODELS["resnet18"]
        args.steps = args.steps or 1
    bad = [name for name in MODELS if args.only in (None, name) and not compare(name, args.steps)]
    print("not close: " + ", ".join(bad) if bad else "all close")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
