"""Models divided among ranks beside PyTorch's, with the PyTorch that runs this: the same losses and parameters on 2 and
4 ranks. TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there.
Skipped (77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch_parity
    from model_parallel_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Models divided among ranks", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_model_parallel_torch.py`, run by ctest: 50 steps of SGD
with momentum beside PyTorch's own, from the same seed. How far the losses, and the whole parameters at the end, are
apart at most, on any rank. PyTorch's current version divides the linear layers by `torch.distributed.tensor.parallel`;
where it does not, each of its ranks has the whole model.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "model_parallel_features", FEATURES, (2, 4))


if __name__ == "__main__":
    unittest.main(verbosity=1)
