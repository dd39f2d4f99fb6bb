"""DDP's features beside PyTorch's, with the PyTorch that runs this: the same losses and parameters on 2 and 3 ranks.
TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there. Skipped
(77) where torch can't be imported."""
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
    from ddp_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

WORLDS = (2, 3)
LOSSES, PARAMETERS = 1e-5, 1e-6


def train(world, *program):
    run = subprocess.run([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={world}", *map(str, program)],
                         capture_output=True, text=True, timeout=2 * DEADLINE, check=False,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    if run.returncode:
        raise AssertionError(run.stderr)


def read(path):
    """{what: its numbers}"""
    found = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, *numbers = line.split()
        found.setdefault(name, []).extend(map(float, numbers))
    return found


def furthest(name, world, folder):
    """How far losses and parameters are apart at most."""
    losses = parameters = 0
    for rank in range(world):
        ours, theirs = (read(folder / f"{who}.{name}.{rank}") for who in ("tutti", "torch"))
        assert ours.keys() == theirs.keys(), (ours.keys(), theirs.keys())
        for what, want in theirs.items():
            assert len(want) == len(ours[what]), what
            apart = max(abs(a - b) for a, b in zip(want, ours[what]))
            if what == "loss":
                losses = max(losses, apart)
            else:
                parameters = max(parameters, apart)
    return losses, parameters


HEADING = "## DistributedDataParallel"
TABLE = """
Made by `TT_PARITY=docs/parity.md tests/interop/test_ddp_features_torch.py`, run by ctest: 50 steps of SGD with momentum
beside PyTorch's own, from the same seed. How far the losses of all passes, and the parameters at the end, are apart at
most, on any rank. PyTorch has `find_unused_parameters=True`; here there is no flag.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |"""

# 1.13 forgets, where no rank uses a parameter in the pass that averages, that some have in those before it: its ranks
# drift apart there.
WRONG_IN_1_13 = "no_sync, and parameters that some ranks leave out"


def write_table(page, rows):
    """Keep other versions' rows, and what follows the section."""
    before, _, rest = page.read_text(encoding="utf-8").partition(HEADING)
    section, next_heading, after = rest.partition("\n## ")
    kept = [row for row in section.splitlines() if row.startswith("| ") and f"| {torch.__version__} |" not in row]
    head = TABLE.splitlines()
    page.write_text("\n".join([before + HEADING, *head, *(row for row in kept if row not in head), *rows, ""]) +
                    next_heading + after, encoding="utf-8")


class Features(unittest.TestCase):
    def test_all(self):
        rows = []
        for world in WORLDS:
            with tempfile.TemporaryDirectory() as folder:
                train(world, pathlib.Path(os.environ["TT_PROGRAMS"], "ddp_features"), folder)
                train(world, sys.executable, HERE / "ddp_features.py", folder)
                for name in FEATURES:
                    if name == WRONG_IN_1_13 and torch.__version__.startswith("1."):
                        print(f"left out: {name}, in which PyTorch {torch.__version__} is wrong")
                        continue
                    with self.subTest(name=name, world=world):
                        losses, parameters = furthest(name, world, pathlib.Path(folder))
                        rows.append(f"| {name} | {torch.__version__} | {world} | {losses:.1e} | {parameters:.1e} |")
                        print(rows[-1])
                        self.assertLessEqual(losses, LOSSES)
                        self.assertLessEqual(parameters, PARAMETERS)
        if os.environ.get("TT_PARITY"):
            write_table(pathlib.Path(os.environ["TT_PARITY"]), rows)


if __name__ == "__main__":
    unittest.main(verbosity=1)
