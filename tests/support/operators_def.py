"""The lines of src/autograd/operators.def that tests are made of."""
import pathlib
import re

import torch
import torch.nn.functional as F

MANIFEST = pathlib.Path(__file__).resolve().parents[2] / "src/autograd/operators.def"


def made():
    """The names of those whose calls are made of their lines."""
    return set(re.findall(r"^(?:UNARY|BINARY)\((\w+)", MANIFEST.read_text(), flags=re.M))


def unary():
    """Of each UNARY: its name, PyTorch's function, low, high, factor and shift."""
    for line in re.findall(r"^UNARY\((.*)\)$", MANIFEST.read_text(), flags=re.M):
        name, _, function, *numbers = line.split(", ")
        yield name, eval(function, {"torch": torch, "F": F}), *map(float, numbers)
