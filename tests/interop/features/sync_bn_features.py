"""sync_bn_features.c in PyTorch, in one process: sync_bn_features.py FOLDER WORLD writes FOLDER/torch.NAME.RANK.

PyTorch's SyncBatchNorm takes no tensors of the CPU. What it stands for is a BatchNorm that sees the batches of all
ranks, one behind the other, while each rank's loss is the mean over its own examples, and the gradient the mean over
ranks."""
import sys

import torch
from torch import nn

STEPS, IN, OUT = 50, 12, 4


def even(_, __):
    return 4


def uneven(step, rank):
    return 2 + (step + 2 * rank) % 5


def rows():
    return nn.Sequential(nn.Linear(IN, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8),
                         nn.BatchNorm1d(8, momentum=0.3), nn.Tanh(), nn.Linear(8, OUT))


def images():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3, bias=False),
                         nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 4 * 4, OUT))


# NAME: model, size of a rank's batch
FEATURES = {
    "SyncBatchNorm of rows": (rows, even),
    "SyncBatchNorm of rows, uneven batches": (rows, uneven),
    "SyncBatchNorm of images": (images, even),
    "SyncBatchNorm of images, uneven batches": (images, uneven),
}


def train(name, world, outs):
    make, size = FEATURES[name]
    torch.manual_seed(0)
    model = make()
    sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    random = [torch.Generator().manual_seed(1000 + rank) for rank in range(world)]
    for step in range(STEPS):
        sizes = [size(step, rank) for rank in range(world)]
        batches = []
        for n, generator in zip(sizes, random):
            shape = (n, IN) if make is rows else (n, 3, 8, 8)
            batches.append((torch.randn(shape, generator=generator), torch.randn(n, OUT, generator=generator)))
        y = model(torch.cat([x for x, _ in batches]))
        losses = [nn.functional.mse_loss(a, b) for a, (_, b) in zip(y.split(sizes), batches)]
        sgd.zero_grad()
        (sum(losses) / world).backward()
        for loss, out in zip(losses, outs):
            print(f"loss {loss.item():.9g}", file=out)
        sgd.step()
    for out in outs:
        for key, value in model.state_dict().items():
            print(key, *(f"{x:.9g}" for x in value.flatten().tolist()), file=out)


def main():
    folder, world = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    for name in FEATURES:
        outs = [open(f"{folder}/torch.{name}.{rank}", "w", encoding="ascii") for rank in range(world)]
        train(name, world, outs)
        for out in outs:
            out.close()


if __name__ == "__main__":
    main()
