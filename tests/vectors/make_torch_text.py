"""Tensors and how PyTorch prints them.
usage: make_torch_text.py OUT.json   (torch >= 1.13)
A case has either its values (numbers, "nan", "inf", "-inf") or a rule: offset + scale * ((37 i) % 211), in f64."""
import json
import sys

import torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
          "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool}


def listed(values, shape=None, dtype="f32", grad=False):
    shape = [len(values)] if shape is None else shape
    x = torch.tensor([float(v) for v in values], dtype=torch.float64).to(DTYPES[dtype]).reshape(shape)
    return {"shape": shape, "dtype": dtype, "grad": grad, "values": values, "text": str(x.requires_grad_(grad))}


def ruled(shape, scale, offset, dtype="f32", grad=False):
    i = torch.arange(torch.Size(shape).numel())
    x = (offset + scale * ((37 * i) % 211).double()).to(DTYPES[dtype]).reshape(shape)
    return {"shape": shape, "dtype": dtype, "grad": grad, "scale": scale, "offset": offset,
            "text": str(x.requires_grad_(grad))}


SPECIAL = ["nan", "inf", "-inf"]
CASES = [
    listed([1, 2, 3]), listed([1.5, -2, 0]), listed([0, 0]), listed([-0.0, 1]), listed([0.5, 1000]), listed([1, 1001]),
    listed([1, 1000]), listed([1e8, 2e8]), listed([1e8 + 8, 1e8]), listed([1e-5, 1e-5]), listed([0.0001, 0.09]),
    listed([123456.789, 1000]), listed([1e-9, 0.5, -3]), listed([1e30, -1e-30, 0]), listed(SPECIAL),
    listed([1.5] + SPECIAL), listed([2] + SPECIAL), listed([1e-7] + SPECIAL), listed([0] + SPECIAL),
    listed([1e300, 1e-300], dtype="f64"), listed([100000, 0.25], dtype="f64"), listed([1.1, 2.2], dtype="f64"),
    listed([0.1, 65504], dtype="f16"), listed([0.1, -3], dtype="bf16"), listed([1, 0, 1], dtype="bool"),
    listed([1, -100, 7], dtype="i64"), listed([1, -100, 7], dtype="i32"), listed([255, 0], dtype="u8"),
    listed([-128, 5], dtype="i8"), listed([-32768], dtype="i16"), listed([2.5], []), listed([3], []),
    listed([1e-9], []), listed(["nan"], []), listed([3], [], "i64"), listed([1], [], "bool"), listed([7], [1, 1, 1]),
    listed([3], [], "f64", True), listed([1, 2], grad=True), listed([1, 2], dtype="f64", grad=True),
    listed([], [0]), listed([], [0], "i64"), listed([], [2, 0]), listed([], [0, 3, 2], "f64", True),
    listed([], [3, 0], "bool"),
] + [ruled(shape, scale, offset, dtype) for shape in
     ([6], [7], [40], [1000], [1001], [3, 4], [2, 30], [2, 3, 4], [2, 1, 3, 2], [8, 2, 2], [2, 7, 80], [1100, 1])
     for scale, offset, dtype in ((1, 0, "f32"), (0.01, -1, "f32"), (1e-3, 1e-6, "f64"), (1, -100, "i32"))] + [
    ruled([30, 40], 0.01, -1, "f32", True), ruled([7, 7, 7, 7], 3, 5, "i64"), ruled([12], 0.013, 0, "f64", True),
    ruled([8], 1.25, -3, "bf16", True), ruled([7], 1.7, 0, "f16", True), ruled([9], 0.37, 11, "f64", True),
]

if __name__ == "__main__":
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "texts": CASES}, f, separators=(",", ":"))
        f.write("\n")
