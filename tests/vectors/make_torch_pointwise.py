"""Results and gradients of operators that go element by element, as PyTorch computes them (f32, CPU).
usage: make_torch_pointwise.py OUT.json   (torch >= 1.13; the cases are those of
tests/unit/autograd/op_cases_pointwise.h and operators.def)"""
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import operators_def  # noqa: E402

from make_torch_ops import op  # noqa: E402


def above(x): return x + 1.5


def one(name, f, shape=(5, 7)): return (name, f, [shape])


CASES = [
    *(one(name, lambda x, f=f, factor=factor, shift=shift: f(factor * x + shift))
      for name, f, _, _, factor, shift in operators_def.unary()),
    one("gelu", lambda x: F.gelu(3 * x)),
    one("gelu tanh", lambda x: F.gelu(3 * x, approximate="tanh")),
    one("leaky_relu", lambda x: F.leaky_relu(x, 0.2)), one("clamp", lambda x: torch.clamp(x, -0.51, 0.33)),
    one("add_scalar", lambda x: torch.add(x, -0.7)), one("pow 2", lambda x: torch.pow(x, 2)),
    one("pow 3", lambda x: torch.pow(x, 3)), one("pow 4", lambda x: torch.pow(x, 4)),
    one("pow half", lambda x: torch.pow(above(x), 0.5)),
    one("pow below 0", lambda x: torch.pow(above(x), -1.3)), one("pow 0", lambda x: torch.pow(x, 0)),
    ("pow tensor", lambda x, z: torch.pow(above(x), 3 * z), [(3, 4), (3, 4)]),
    ("pow tensor outer", lambda x, z: torch.pow(above(x), 3 * z), [(5, 1), (2, 1, 3)]),
    ("div", lambda x, z: x / above(z), [(3, 4), (3, 4)]),
    ("div by rows", lambda x, z: x / above(z), [(5, 7), (5, 1)]),
    ("div outer", lambda x, z: x / above(z), [(5, 1), (2, 1, 3)]),
    ("maximum", torch.maximum, [(3, 4), (3, 4)]), ("maximum by columns", torch.maximum, [(3, 4), (4,)]),
    ("minimum", torch.minimum, [(3, 4), (3, 4)]), ("minimum outer", torch.minimum, [(3, 1), (1, 4)]),
    one("exp of a scalar", torch.exp, ()), one("gelu of an image", lambda x: F.gelu(3 * x), (2, 3, 4, 5)),
    ("div of an image", lambda x, z: x / above(z), [(2, 3, 4, 5), (1, 3, 1, 1)]),
    ("where", lambda x, z: torch.where(x > z, x, z), [(5, 7), (5, 7)]),
    ("where broadcast", lambda x, z: torch.where(x.sum(1, True) > 0, x, z), [(5, 7), (7,)]),
    one("masked_fill", lambda x: x.masked_fill(x <= 0.2, -3)),
]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "ops": [op(*c) for c in CASES]}, f, separators=(",", ":"))
        f.write("\n")
