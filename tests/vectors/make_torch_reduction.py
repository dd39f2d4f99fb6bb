"""Results and gradients of reductions and softmax, as PyTorch computes them (f32, CPU).
usage: make_torch_reduction.py OUT.json   (torch >= 1.13; the cases are those of
tests/unit/autograd/op_cases_reduction.h)"""
import json
import sys

import torch

from make_torch_ops import op

INF = float("inf")


def norm(x, p, *rest, **options): return torch.linalg.vector_norm(x, p, *rest, **options)


CASES = [
    ("sum dim 1", lambda x: x.sum(1), [(3, 4)]), ("sum dims 0 2", lambda x: x.sum((0, -1)), [(2, 3, 4)]),
    ("sum keepdim", lambda x: x.sum(-2, keepdim=True), [(2, 3, 4)]), ("mean dim 0", lambda x: x.mean(0), [(5, 7)]),
    ("mean last keepdim", lambda x: x.mean(-1, keepdim=True), [(2, 3, 7)]),
    ("mean keepdim", lambda x: x.mean((0, 1), keepdim=True), [(5, 7)]), ("var", lambda x: x.var(), [(5, 7)]),
    ("var dims 0 2", lambda x: x.var((0, 2), unbiased=False, keepdim=True), [(2, 3, 4)]),
    ("var last", lambda x: x.var(-1), [(3, 19)]), ("norm 2", lambda x: norm(x, 2), [(5, 7)]),
    ("norm 1", lambda x: norm(x, 1, 0), [(5, 7)]), ("norm 3", lambda x: norm(x, 3, 1, keepdim=True), [(2, 3, 4)]),
    ("norm inf", lambda x: norm(x, INF, -1), [(5, 7)]), ("max", lambda x: x.max(), [(5, 7)]),
    ("max dim 0", lambda x: x.max(0)[0], [(5, 7)]), ("min dim 1", lambda x: x.min(1, True)[0], [(2, 3, 4)]),
    ("min last", lambda x: x.min(-1)[0], [(5, 7)]), ("amax dims 0 2", lambda x: x.amax((0, -1)), [(2, 3, 4)]),
    ("amax dim 1", lambda x: x.amax(1), [(5, 7)]), ("amax of an image", lambda x: x.amax((0, -1)), [(2, 3, 4, 5)]),
    ("amin dims 1 2", lambda x: x.amin((2, 1), True), [(2, 3, 4)]), ("softmax", lambda x: x.softmax(-1), [(4, 19)]),
    ("softmax dim 0", lambda x: x.softmax(0), [(4, 5)]), ("softmax dim 1 of 3", lambda x: x.softmax(1), [(2, 5, 3)]),
    ("softmax of channels", lambda x: x.softmax(1), [(2, 3, 4, 5)]),
    ("sum of channels", lambda x: x.sum(1), [(2, 3, 4, 5)]),
]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "ops": [op(*c) for c in CASES]}, f, separators=(",", ":"))
        f.write("\n")
