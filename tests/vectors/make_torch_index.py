"""Results and gradients of operators on shapes, places and order, as PyTorch computes them.
usage: make_torch_index.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/op_cases_index.h)"""
import json
import sys

import torch

from make_torch_ops import op


def split(x):
    a, _, c = x.split(2, 1)
    return a[:, :1] * c


def chunk(x):
    a, b, c = x.chunk(3, 0)
    return a * b + c


def unbind(x):
    a, b, _, d = x.unbind(-1)
    return d * (a + b)


VIEWS = [
    ("permute", lambda x: x.permute(2, 0, -2), [(2, 3, 4)]),
    ("permute empty", lambda x: x.permute(2, 0, -2), [(2, 0, 4)]),
    ("movedim", lambda x: x.movedim(0, -1), [(2, 3, 4, 2)]),
    ("expand", lambda x: x.expand(2, -1, 3), [(4, 1)]), ("expand a scalar", lambda x: x.expand(2, 2), [()]),
    ("squeeze", lambda x: x.squeeze(1), [(3, 1, 1)]), ("squeeze nothing", lambda x: x.squeeze(1), [(3, 2)]),
    ("squeeze all", torch.squeeze, [(1, 3, 1, 2)]),
    ("unsqueeze", lambda x: x.unsqueeze(1) * x.unsqueeze(-1), [(3, 4)]),
    ("slice", lambda x: x[:, 0:-1:2] + x[:, 1::2], [(3, 6)]),
    ("slice of images", lambda x: x[:, 0:-1:2] + x[:, 1::2], [(2, 6, 3, 2)]),
    ("slice nothing", lambda x: x[2:1], [(3, 2)]),
    ("select", lambda x: x.select(1, -1) * x.select(1, 0), [(2, 3, 4)]),
    ("select of one", lambda x: x.select(1, -1) * x.select(1, 0), [(2, 1, 3, 2)]),
    ("split", split, [(3, 5)]), ("chunk", chunk, [(6, 3)]), ("unbind", unbind, [(2, 3, 4)]),
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    out = {"torch": torch.__version__, "ops": [op(*c) for c in VIEWS]}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
