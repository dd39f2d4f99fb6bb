"""Sharded optimizers beside PyTorch's, with the PyTorch that runs this: the same losses, parameters and states on 2 to
4 ranks.
TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there. Skipped
(77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch_parity
    from zero_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Sharded optimizers", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_zero_torch.py`, run by ctest: 50 steps beside PyTorch's
ZeroRedundancyOptimizer (stage 2: beside DistributedDataParallel and the plain optimizer), from the same seed. How far
the losses, and the parameters and states of the optimizer at the end, are apart at most, on any rank.

| optimizer | PyTorch | ranks | losses | parameters and states |
| --- | --- | ---: | ---: | ---: |""")


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "zero_features", FEATURES, (2, 3, 4))


if __name__ == "__main__":
    unittest.main(verbosity=1)
