"""SyncBatchNorm under DDP beside one PyTorch process with BatchNorm and the whole batch, with the PyTorch that runs
this: the same losses, parameters and running statistics on 2, 3 and 4 ranks. TT_PARITY=docs/parity.md: put what was
found into its table. Skipped (77) where torch can't be imported."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from patience import DEADLINE  # noqa: E402

try:
    import torch
    import test_ddp_features_torch as ddp
    from sync_bn_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

HEADING = "## SyncBatchNorm"
TABLE = """
Made by `TT_PARITY=docs/parity.md tests/interop/test_sync_bn_torch.py`, run by ctest: 50 steps of SGD with momentum
under DDP. PyTorch's SyncBatchNorm takes no tensors of the CPU, so the other side is one process of PyTorch with
BatchNorm, which sees the whole batch. How far losses, and parameters and running statistics at the end, are apart at
most, on any rank.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |"""


def write_table(page, rows):
    """Keep other versions' rows. The section stands before that of DDP."""
    text = page.read_text(encoding="utf-8")
    if HEADING not in text:
        text = text.replace(ddp.HEADING, f"{HEADING}\n\n{ddp.HEADING}")
    before, _, rest = text.partition(HEADING)
    section, _, after = rest.partition("\n## ")
    head = TABLE.splitlines()
    kept = [row for row in section.splitlines() if row.startswith("| ") and f"| {torch.__version__} |" not in row]
    table = [*head, *(row for row in kept if row not in head), *rows, ""]
    page.write_text("\n".join([before + HEADING, *table, "## " + after]), encoding="utf-8")


class Features(unittest.TestCase):
    def test_all(self):
        rows = []
        for world in (2, 3, 4):
            with tempfile.TemporaryDirectory() as folder:
                ddp.train(world, pathlib.Path(os.environ["TT_PROGRAMS"], "sync_bn_features"), folder)
                subprocess.run([sys.executable, HERE / "sync_bn_features.py", folder, str(world)], check=True,
                               timeout=2 * DEADLINE)
                for name in FEATURES:
                    with self.subTest(name=name, world=world):
                        losses, parameters = ddp.furthest(name, world, pathlib.Path(folder))
                        rows.append(f"| {name} | {torch.__version__} | {world} | {losses:.1e} | {parameters:.1e} |")
                        print(rows[-1])
                        self.assertLessEqual(losses, ddp.LOSSES)
                        self.assertLessEqual(parameters, ddp.PARAMETERS)
        if os.environ.get("TT_PARITY"):
            write_table(pathlib.Path(os.environ["TT_PARITY"]), rows)


if __name__ == "__main__":
    unittest.main(verbosity=1)
