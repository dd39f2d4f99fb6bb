"""PyTorch's side of tools/device_check.sh: the same MLP as `tutti bench step`, on the first GPU, eagerly.

usage: torch_cuda_step.py STEPS: five blocks of so many steps, one JSON object.
"""
import json
import statistics
import sys
import time

import torch

steps = int(sys.argv[1])
device = torch.device("cuda:0")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(32, 1, 28, 28, device=device)
y = torch.randint(10, (32,), device=device)


def step():
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def block(count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000 / count


block(max(3, steps // 10))
times = [block(steps) for _ in range(5)]
print(json.dumps({"bench": "step", "model": "mlp", "peer": "torch " + torch.__version__,
                  "ms_median": round(statistics.median(times), 4), "ms_min": round(min(times), 4)}).replace(": ", ":"))
