"""Writes torch-init.json beside itself: what torch.nn.init makes of a tensor, bit by bit, for each call from seed 5.
Run with torch 1.13 on an AVX2+ machine."""
import torch
from torch.nn import init

from make_torch_modules import write

CALLS = {
    "uniform_": lambda x: init.uniform_(x, -0.3, 0.7),
    "normal_": lambda x: init.normal_(x, 0.5, 2),
    "trunc_normal_": init.trunc_normal_,
    "trunc_normal_ 0.1 0.5 -0.3 2": lambda x: init.trunc_normal_(x, 0.1, 0.5, -0.3, 2),
    "trunc_normal_ 0 0.02 -0.02 0.01": lambda x: init.trunc_normal_(x, 0, 0.02, -0.02, 0.01),
    "constant_": lambda x: init.constant_(x, 0.1),
    "zeros_": init.zeros_,
    "ones_": init.ones_,
    "eye_": init.eye_,
    "dirac_": init.dirac_,
    "dirac_ 2": lambda x: init.dirac_(x, 2),
    "xavier_uniform_": init.xavier_uniform_,
    "xavier_uniform_ tanh": lambda x: init.xavier_uniform_(x, init.calculate_gain("tanh")),
    "xavier_normal_": lambda x: init.xavier_normal_(x, init.calculate_gain("selu")),
    "kaiming_uniform_": lambda x: init.kaiming_uniform_(x, a=5 ** 0.5),
    "kaiming_uniform_ linear": lambda x: init.kaiming_uniform_(x, nonlinearity="linear"),
    "kaiming_normal_": lambda x: init.kaiming_normal_(x, mode="fan_out", nonlinearity="relu"),
    "orthogonal_": init.orthogonal_,
    "orthogonal_ 2": lambda x: init.orthogonal_(x, 2),
}
SHAPES = {"eye_": [(5, 7), (4, 3)], "dirac_": [(4, 3, 3), (2, 5, 2, 3)], "dirac_ 2": [(6, 2, 3), (4, 5, 1, 2)]}
DTYPES = {"f32": torch.float32, "f64": torch.float64}


def cases():
    for call, fill in CALLS.items():
        for shape in SHAPES.get(call, [(17, 6), (3, 4, 5), (2, 3, 1, 2)]):
            for name, dtype in DTYPES.items():
                torch.manual_seed(5)
                x = torch.full(shape, 9, dtype=dtype)
                fill(x)
                yield {"call": call, "shape": shape, "dtype": name, "hex": x.numpy().tobytes().hex()}


if __name__ == "__main__":
    write("torch-init.json", cases())
