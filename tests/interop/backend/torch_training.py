"""DistributedDataParallel on the back ends tutti and gloo, in the same processes: MODEL trained for STEPS steps from
the same seeds, on tutti twice. Writes FOLDER/tutti.MODEL.RANK and FOLDER/torch.MODEL.RANK for torch_parity.py; fails
where the two runs on tutti differ in a bit. usage: torch_training.py FOLDER MODEL STEPS ..., started by `tutti run`

  mlp   784-512-10, 32 a rank, SGD
  conv  two convolutions with dropout, two linear layers, 64 a rank, Adadelta
  gpt   4 layers of 256 channels, 8 x 128 tokens a rank, AdamW"""
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
import tutti_torch  # noqa: F401: the back end
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, TOKENS, CHANNELS, HEADS, LAYERS = 65, 128, 256, 4, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(2))
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.up, self.down = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)

    def attention(self, x):
        q, k, v = (y.unflatten(2, (HEADS, CHANNELS // HEADS)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=2))
        scores = q @ k.transpose(2, 3) / (CHANNELS // HEADS) ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return self.out((scores.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, CHANNELS), nn.Embedding(TOKENS, CHANNELS)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(CHANNELS))
        self.head = nn.Linear(CHANNELS, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens) + self.places.weight)).flatten(0, 1)


def mlp():
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, torch.optim.SGD, {"lr": 1e-3}


def conv():
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                          nn.Linear(128, 10))
    return model, torch.optim.Adadelta, {"lr": 1.0}


def gpt():
    return GPT(), torch.optim.AdamW, {"lr": 3e-4}


MODELS = {"mlp": mlp, "conv": conv, "gpt": gpt}


def batch(name):
    if name == "gpt":
        return torch.randint(VOCABULARY, (8, TOKENS)), torch.randint(VOCABULARY, (8 * TOKENS,))
    many = 32 if name == "mlp" else 64
    return torch.randn(many, 1, 28, 28), torch.randint(10, (many,))


def train(name, steps, group):
    """Losses of this rank, and the parameters at the end."""
    torch.manual_seed(0)
    model, optimizer, options = MODELS[name]()
    ddp = DistributedDataParallel(model, process_group=group)
    optimizer = optimizer(ddp.parameters(), **options)
    torch.manual_seed(100 + dist.get_rank())  # of batches and dropout
    losses = []
    for _ in range(steps):
        x, y = batch(name)
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


def write(path, losses, parameters):
    lines = (f"{what} {' '.join(map(repr, numbers.tolist()))}\n" for what, numbers in
             (("loss", losses), ("parameters", parameters)))
    path.write_text("".join(lines), encoding="ascii")


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tutti, rank = dist.new_group(backend="tutti"), dist.get_rank()
    for name, steps in zip(sys.argv[2::2], map(int, sys.argv[3::2])):
        ours, again, theirs = (train(name, steps, group) for group in (tutti, tutti, None))
        if not all(map(torch.equal, ours, again)):
            sys.exit(f"{name}: two runs on rank {rank} differ: {ours}, {again}")
        write(folder / f"tutti.{name}.{rank}", *ours)
        write(folder / f"torch.{name}.{rank}", *theirs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
