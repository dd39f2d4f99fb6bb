"""DDP's features beside PyTorch's, with the PyTorch that runs this: the same losses and parameters on 2, 3 and 4 ranks.
TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there. Skipped
(77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch
    import torch_parity
    from ddp_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## DistributedDataParallel", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_ddp_features_torch.py`, run by ctest: 50 steps of SGD with
momentum beside PyTorch's own, from the same seed. How far the losses of all passes, and the parameters at the end, are
apart at most, on any rank. PyTorch has `find_unused_parameters=True`, for a static graph `static_graph=True`; here
there is no flag. In joins ranks have 1 to 5 steps less than others. A step in backward is `_register_fused_optim()`, in
1.13 `_hook_then_optimizer()`, which is behind it. 1.13 has no delayed parameters; and with no_sync and parameters that
some ranks leave out its ranks drift apart: where no rank uses a parameter in the pass that averages, it forgets that
some have in those before.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")
WRONG_IN_1_13 = "no_sync, and parameters that some ranks leave out"


def allowed(name, _):
    if name == WRONG_IN_1_13 and torch.__version__.startswith("1."):
        print(f"left out: {name}, in which PyTorch {torch.__version__} is wrong")
        return None
    return torch_parity.LOSSES, torch_parity.PARAMETERS


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "ddp_features", FEATURES, (2, 3, 4), allowed)


if __name__ == "__main__":
    unittest.main(verbosity=1)
