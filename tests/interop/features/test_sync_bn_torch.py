"""SyncBatchNorm under DDP beside one PyTorch process with BatchNorm and the whole batch, with the PyTorch that runs
this: the same losses, parameters and running statistics on 2, 3 and 4 ranks. TT_PARITY=docs/parity.md: put what was
found into its table. Skipped (77) where torch can't be imported."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

from long_form import gate  # noqa: E402

try:
    import torch_parity
    from patience import DEADLINE
    from sync_bn_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## SyncBatchNorm", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_sync_bn_torch.py`, run by ctest: 50 steps of SGD with
momentum under DDP. PyTorch's SyncBatchNorm takes no tensors of the CPU, so the other side is one process of PyTorch
with BatchNorm, which sees the whole batch. How far losses, and parameters and running statistics at the end, are apart
at most, on any rank.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")


class Features(unittest.TestCase):
    def test_all(self):
        twin = pathlib.Path(__file__).with_name("sync_bn_features.py")
        for world in gate((3,), (2, 3, 4)):
            with tempfile.TemporaryDirectory() as folder:
                torch_parity.train(world, torch_parity.program("sync_bn_features"), folder)
                subprocess.run([sys.executable, twin, folder, str(world)], check=True, timeout=2 * DEADLINE)
                for name in FEATURES:
                    with self.subTest(name=name, world=world):
                        SECTION.check(self, name, world, torch_parity.furthest(name, world, pathlib.Path(folder)))
        SECTION.write()


if __name__ == "__main__":
    unittest.main(verbosity=1)
