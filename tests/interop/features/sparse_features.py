"""sparse_features.c in PyTorch: sparse_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by `tutti run`."""
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, ROWS, COLUMNS, OUT, BATCH, LENGTH, PADDING = 50, 200, 16, 4, 8, 6, 11

SGD = (torch.optim.SGD, {"lr": 0.1})
ADAGRAD = (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1})
ADAM = (torch.optim.SparseAdam, {"lr": 0.01})

# NAME: optimizer, the padding's row, passes a step
FEATURES = {
    "SGD": (SGD, None, 1),
    "SGD, padding_idx, two passes a step": (SGD, PADDING, 2),
    "Adagrad": (ADAGRAD, None, 1),
    "SparseAdam": (ADAM, None, 1),
    "SparseAdam, padding_idx, two passes a step": (ADAM, PADDING, 2),
}


def write(name, value, out):
    print(name, *(f"{x:.9g}" for x in value.detach().flatten().tolist()), file=out)


def rows_read(number):
    return torch.tensor([(number * 37 + i * i * 11) % ROWS for i in range(BATCH * LENGTH)]).view(BATCH, LENGTH)


def train(name, out):
    (kind, options), padding, passes = FEATURES[name]
    torch.manual_seed(0)
    table = nn.Embedding(ROWS, COLUMNS, padding_idx=padding, sparse=True)
    head = nn.Linear(COLUMNS, OUT)
    rows, whole = kind(list(table.parameters()), **options), torch.optim.SGD(head.parameters(), lr=0.1)
    rank, wrapped, model = dist.get_rank(), dist.get_world_size() > 1, nn.Sequential(table, head)
    if wrapped:
        model = DistributedDataParallel(model)
    torch.manual_seed(1000 + rank)
    for step in range(STEPS):
        rows.zero_grad(set_to_none=True)
        whole.zero_grad(set_to_none=True)
        for number in range(passes):
            y = torch.randn(BATCH, LENGTH, OUT)
            with model.no_sync() if wrapped and number < passes - 1 else contextlib.nullcontext():
                loss = nn.functional.mse_loss(model(rows_read(step * passes + 13 * rank + number)), y)
                loss.backward()
            print(f"loss {loss.item():.9g}", file=out)
        assert table.weight.grad.is_sparse
        rows.step()
        whole.step()
    write("table", table.weight, out)
    write("head", head.weight, out)
    for key, value in rows.state_dict()["state"].get(0, {}).items():
        if key not in ("step", "momentum_buffer"):
            write(f"state.0.{key}", value, out)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for feature in FEATURES:
        with open(f"{sys.argv[1]}/torch.{feature}.{dist.get_rank()}", "w", encoding="ascii") as file:
            train(feature, file)
    dist.destroy_process_group()
