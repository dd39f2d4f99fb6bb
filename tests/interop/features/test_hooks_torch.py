"""Communication hooks beside PyTorch's, with the PyTorch that runs this: the same losses and parameters on 2 to 4
ranks. TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there.
Skipped (77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch_parity
    from hooks_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Communication hooks", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_hooks_torch.py`, run by ctest: 50 steps of SGD with
momentum beside PyTorch's own hooks over gloo, from the same seed, rank and start. How far the losses of all steps, and
the parameters at the end, are apart at most, on any rank. Sums in 16 bits on more than two ranks: PyTorch rounds each
partial sum, Tutti once at the end. With warm start and error feedback PowerSGD feeds its rounding back into what it
does next: after 48 such steps of rank 1 or 2 on this model the two PyTorches themselves are 1e-4 to 3e-3 apart, so that
these begin late. 1.13 has the bf16 hook for NCCL only.

| hook | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")
# Sums of 16 bits on more than two ranks: PyTorch rounds each partial sum, Tutti the whole once. Both are off by as much
# from the exact sum.
HALF = {"f16 hook": (1e-5, 1e-5), "bf16 hook": (1e-4, 1e-4)}


def allowed(name, world):
    return HALF[name] if world > 2 and name in HALF else (torch_parity.LOSSES, torch_parity.PARAMETERS)


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "hooks_features", FEATURES, (2, 3, 4), allowed)


if __name__ == "__main__":
    unittest.main(verbosity=1)
