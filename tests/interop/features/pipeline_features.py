"""pipeline_features.c in PyTorch, unsplit, in one process: {what: numbers} of 50 steps on the same micro-batches."""
import torch
from torch import nn

STEPS, BATCH, MICROS, IN, CLASSES, SIDE = 50, 14, 6, 20, 5, 8

# NAME: does it convolve?
FEATURES = {"GPipe": False, "1F1B": False, "interleaved 1F1B": False, "zero-bubble": False,
            "zero-bubble, recomputing, batch norm": True}


def make(convolves):
    if convolves:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
                             nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, CLASSES))
    return nn.Sequential(nn.Linear(IN, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 16), nn.ReLU(),
                         nn.Linear(16, CLASSES))


def train(name):
    torch.manual_seed(0)
    model = make(FEATURES[name])
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1000)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, 3, SIDE, SIDE) if FEATURES[name] else torch.randn(BATCH, IN)
        target = torch.randint(0, CLASSES, (BATCH,))
        sgd.zero_grad(set_to_none=True)
        mean = 0
        for part, wanted in zip(x.tensor_split(MICROS), target.tensor_split(MICROS)):
            loss = nn.functional.cross_entropy(model(part), wanted) * (len(part) / BATCH)
            loss.backward()
            mean += loss.item()
        sgd.step()
        losses.append(mean)
    return losses, {n: p.detach().flatten().tolist() for n, p in model.named_parameters()}
