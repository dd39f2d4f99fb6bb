"""PyTorch's own tests of c10d over the back end tutti: of what passes with gloo here, all passes with tutti in gloo's
place, but for the cases that docs/pytorch-tests.md lists.

The tests are PyTorch's, and not here: TT_TORCH_C10D_TESTS is a copy of the folder test/distributed of its sources (the
largest file, distributed_test.py, comes with PyTorch itself). They need the Python package expecttest, and numpy.
TT_TORCH_C10D_ONLY, a regular expression, runs a part of them, and compares that."""
import os
import pathlib
import sys

if not os.environ.get("TT_TORCH_C10D_TESTS"):
    print("skipped: TT_TORCH_C10D_TESTS names no copy of PyTorch's test/distributed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_cases_compared  # noqa: E402  (after the path to it is set)

if __name__ == "__main__":
    sys.exit(torch_cases_compared.main("torch_c10d_runner.py", ("gloo", "tutti"), "PyTorch's own tests of c10d",
                                       os.environ.get("TT_TORCH_C10D_ONLY", "."), 0.95))
