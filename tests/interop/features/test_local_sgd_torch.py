"""What averages parameters, beside PyTorch's own, with the PyTorch that runs this: the same losses and parameters on 2,
3 and 4 ranks.
TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there. Skipped
(77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch_parity
    from local_sgd_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Averaging parameters", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_local_sgd_torch.py`, run by ctest: 50 steps beside
PyTorch's `PeriodicModelAverager`, `HierarchicalModelAverager` and `PostLocalSGDOptimizer`, and beside the paper's
algorithm of DiLoCo, written with `torch.optim`, from the same seed. How far losses, and the parameters at the end, are
apart at most, on any rank.

| kind | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "local_sgd_features", FEATURES, (2, 3, 4))


if __name__ == "__main__":
    unittest.main(verbosity=1)
