"""Indices of PyTorch's WeightedRandomSampler under a DataLoader, two epochs each.
usage: make_torch_weighted.py OUT.json   (torch >= 1.13, built without MKL for those without replacement)"""
import json
import sys

import torch
from torch.utils.data import DataLoader, WeightedRandomSampler

WEIGHTS = [[1.0, 2, 3], [0.1, 2, 0, 3, 0.5], [1e-3, 5, 1e-3, 5, 1, 1, 1], [5.0],
           [(7 * i % 11) / 3 + (i % 3 == 0) for i in range(40)]]


def case(weights, n, replacement, seed, own):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 100) if own else None
    loader = DataLoader(range(len(weights)), batch_size=None,
                        sampler=WeightedRandomSampler(weights, n, replacement, generator=generator))
    return {"weights": weights, "n": n, "replacement": replacement, "seed": seed, "own": own,
            "epochs": [[int(i) for i in loader] for _ in range(2)]}


def all_cases():
    for seed, weights in enumerate(WEIGHTS * 6):
        positive = sum(w > 0 for w in weights)
        for own in (False, True):
            for n in (1, 2, 25):
                yield case(weights, n, True, seed, own)
            for n in {1, max(1, positive // 2), positive}:
                yield case(weights, n, False, seed, own)


if __name__ == "__main__":
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "cases": list(all_cases())}, f, separators=(",", ":"))
        f.write("\n")
