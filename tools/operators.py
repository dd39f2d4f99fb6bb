#!/usr/bin/env python3
"""Check that nothing lacks an operator or a kernel, and print what does.

    tools/operators.py

An operator of tutti/functional.h or nn_functional.h has a line in src/autograd/operators.def, and the other way round.
Each has a case beside PyTorch (tests/parity/parity_*.h) and one of gradients (tests/unit/autograd/op_cases*.h), or
stands below with a reason. A kernel of the list in src/tensor/kernels/kernels.h and its families is in the tables of
the plain loops and of CUDA devices, or stands below, too."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANIFEST = "src/autograd/operators.def"
# Kinds of lines from which cases are made.
MADE_PARITY, MADE_GRADIENTS = {"UNARY", "BINARY"}, {"UNARY"}
NO_PARITY = {"dropout": "it is random"}
NO_GRADIENTS = {"dropout": "it is random; tests/unit/autograd/test_dropout.c looks at its mask"}
IN_PLACE = "_"  # names that end so: tests/unit/autograd/test_in_place.c compares them with those that make a new tensor
NOT_IN_REFERENCE = {
    "attention_batch": "optional, see kernels.h", "attention_batch_backward": "optional, see kernels.h",
    "expect_within": "of devices whose calls don't wait", "grad_measure": "the host has its own, see kernels.h",
    "grad_unscale": "the host has its own, see kernels.h", "matmul_batch": "optional, see kernels.h",
    "matmul_bias": "optional, see kernels.h", "step": "rules/ has the plain loops",
    "step_rows": "rules/ has the plain loops"}
NOT_ON_CUDA = {"find_outside": "expect_within stands for it where calls don't wait"}


def read_all(pattern):
    return "".join(path.read_text() for path in sorted(ROOT.glob(pattern)))


def declared(header):
    return re.findall(r"^TT_API (?:TT_NODISCARD )?\w+ \*?tt_(\w+?)(?:_with)?\(", header, flags=re.M)


def listed(manifest):
    """Each operator's kind of line."""
    return {name: kind for kind, name in re.findall(r"^(OPERATOR|UNARY|BINARY)\((\w+), ", manifest, flags=re.M)}


def calls(text, name):
    return re.search(rf"\btt_{name}\(", text)


def of_operators(header, manifest, parity, cases):
    names, lines = set(declared(header)), listed(manifest)
    for name in sorted(names - lines.keys()):
        yield f"tt_{name}() is an operator of tutti/functional.h without a line"
    for name in sorted(lines.keys() - names):
        yield f"{name} has a line, but tutti/functional.h declares no tt_{name}()"
    for name, kind in sorted(lines.items()):
        if name.endswith(IN_PLACE) or name not in names:
            continue
        if name not in NO_PARITY and kind not in MADE_PARITY and not calls(parity, name):
            yield f"tt_{name}() is nowhere called in tests/parity/parity_*.h, so nothing compares it with PyTorch"
        if name not in NO_GRADIENTS and kind not in MADE_GRADIENTS and not calls(cases, name):
            yield f"tt_{name}() is nowhere called in tests/unit/autograd/op_cases*.h, so nothing checks its gradients"


def of_kernels(lists, tables, exempt, where):
    for name in sorted(set(re.findall(r"^\s+X\((\w+),\s*(?:\\\n\s*)?\(", lists, flags=re.M)) - exempt.keys()):
        if not re.search(rf"(?:\.|->){name} = ", tables):
            yield f"the kernel {name} is in no table of {where}"


def findings():
    header = read_all("include/tutti/*functional.h")
    for text in of_operators(header, (ROOT / MANIFEST).read_text(), read_all("tests/parity/parity_*.h"),
                             read_all("tests/unit/autograd/op_cases*.h")):
        yield MANIFEST, 0, text
    lists = read_all("src/tensor/kernels/*.h")
    for folder, exempt in (("reference", NOT_IN_REFERENCE), ("cuda", NOT_ON_CUDA)):
        for text in of_kernels(lists, read_all(f"src/tensor/{folder}/**/*.[ch]"), exempt, f"src/tensor/{folder}"):
            yield "src/tensor/kernels/kernels.h", 0, text


def main():
    found = list(findings())
    for name, _, text in found:
        print(f"{name}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
