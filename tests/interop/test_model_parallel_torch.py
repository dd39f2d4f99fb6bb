"""Models divided among ranks beside PyTorch's, with the PyTorch that runs this: the same losses and parameters on 2 and
4 ranks. TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there.
Skipped (77) where torch can't be imported."""
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
    from model_parallel_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

WORLDS = (2, 4)
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
    """How far losses and parameters are apart at most, and how many numbers were compared."""
    apart, compared = {"loss": 0, "parameters": 0}, 0
    for rank in range(world):
        ours, theirs = (read(folder / f"{who}.{name}.{rank}") for who in ("tutti", "torch"))
        assert ours.keys() == theirs.keys() and theirs, (ours.keys(), theirs.keys())
        for what, want in theirs.items():
            assert len(want) == len(ours[what]), what
            kind = what if what == "loss" else "parameters"
            apart[kind] = max(apart[kind], *(abs(a - b) for a, b in zip(want, ours[what])))
            compared += len(want)
    return apart["loss"], apart["parameters"], compared


HEADING = "## Models divided among ranks"
TABLE = """
Made by `TT_PARITY=docs/parity.md tests/interop/test_model_parallel_torch.py`, run by ctest: 50 steps of SGD with
momentum beside PyTorch's own, from the same seed. How far the losses, and the whole parameters at the end, are apart at
most, on any rank. PyTorch's current version divides the linear layers by `torch.distributed.tensor.parallel`; where it
does not, each of its ranks has the whole model.

| feature | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |"""


def write_table(page, rows):
    """Keep other versions' rows, and other sections; a new one stands before that of DDP."""
    text = page.read_text(encoding="utf-8")
    if HEADING not in text:
        text = text.replace("## Distributed", f"{HEADING}\n\n## Distributed", 1)
    before, _, rest = text.partition(HEADING)
    section, mark, after = rest.partition("\n## ")
    kept = [row for row in section.splitlines() if row.startswith("| ") and f"| {torch.__version__} |" not in row]
    head = TABLE.splitlines()
    text = [before.rstrip() + "\n", HEADING, *head, *(row for row in kept if row not in head), *rows, ""]
    page.write_text("\n".join(text) + mark + after, encoding="utf-8")


class Features(unittest.TestCase):
    def test_all(self):
        rows = []
        for world in WORLDS:
            with tempfile.TemporaryDirectory() as folder:
                train(world, pathlib.Path(os.environ["TT_PROGRAMS"], "model_parallel_features"), folder)
                train(world, sys.executable, HERE / "model_parallel_features.py", folder)
                for name in FEATURES:
                    with self.subTest(name=name, world=world):
                        losses, parameters, compared = furthest(name, world, pathlib.Path(folder))
                        rows.append(f"| {name} | {torch.__version__} | {world} | {losses:.1e} | {parameters:.1e} |")
                        print(rows[-1])
                        self.assertGreater(compared, 50)
                        self.assertLessEqual(losses, LOSSES)
                        self.assertLessEqual(parameters, PARAMETERS)
        if os.environ.get("TT_PARITY"):
            write_table(pathlib.Path(os.environ["TT_PARITY"]), rows)


if __name__ == "__main__":
    unittest.main(verbosity=1)
