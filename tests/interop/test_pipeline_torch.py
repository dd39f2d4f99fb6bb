"""Pipelines beside the unsplit model in the PyTorch that runs this: the same losses and parameters over 50 steps, with
micro-batches of different sizes. TT_PARITY=docs/parity.md: put what was found into its table, in place of what this
PyTorch's version had there. Skipped (77) where torch can't be imported."""
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
    from pipeline_features import FEATURES, train
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

WORLDS = (2, 3)
LOSSES, PARAMETERS = 1e-5, 1e-6

HEADING = "## Pipelines"
TABLE = """
Made by `TT_PARITY=docs/parity.md tests/interop/test_pipeline_torch.py`, run by ctest: 50 steps of SGD with momentum on
batches of 14 examples in 6 micro-batches, beside the unsplit model in PyTorch, from the same seed. How far the losses,
and the parameters at the end, are apart at most.

| schedule | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |"""


def run(world, folder):
    program = pathlib.Path(os.environ["TT_PROGRAMS"], "pipeline_features")
    done = subprocess.run([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={world}", program, folder],
                          capture_output=True, text=True, timeout=2 * DEADLINE, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        raise AssertionError(done.stderr)


def numbers(path):
    found = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, *values = line.split()
        found.setdefault(name, []).extend(map(float, values))
    return found


def furthest(ours, theirs):
    assert len(ours) == len(theirs) > 0, (len(ours), len(theirs))
    return max(abs(a - b) for a, b in zip(ours, theirs))


def write_table(page, rows):
    """Keep other versions' rows, and what follows the section."""
    before, _, rest = page.read_text(encoding="utf-8").partition(HEADING)
    section, mark, after = rest.partition("\n## ")
    kept = [row for row in section.splitlines()
            if row.startswith("| ") and f"| {torch.__version__} |" not in row and row not in TABLE]
    text = "\n".join([before.rstrip("\n"), "", HEADING, *TABLE.splitlines(), *kept, *rows, ""])
    page.write_text(text + mark + after, encoding="utf-8")


class Pipelines(unittest.TestCase):
    def test_all(self):
        torch.set_num_threads(1)
        rows, wanted = [], {name: train(name) for name in FEATURES}
        for world in WORLDS:
            with tempfile.TemporaryDirectory() as folder:
                run(world, folder)
                for name, (losses, parameters) in wanted.items():
                    ours = numbers(pathlib.Path(folder, f"tutti.state.{name}"))
                    self.assertEqual(ours.keys(), parameters.keys())
                    apart = (furthest(numbers(pathlib.Path(folder, f"tutti.losses.{name}"))["loss"], losses),
                             max(furthest(ours[key], value) for key, value in parameters.items()))
                    rows.append(f"| {name} | {torch.__version__} | {world} | {apart[0]:.1e} | {apart[1]:.1e} |")
                    print(rows[-1])
                    with self.subTest(name=name, world=world):
                        self.assertLessEqual(apart[0], LOSSES)
                        self.assertLessEqual(apart[1], PARAMETERS)
        if os.environ.get("TT_PARITY"):
            write_table(pathlib.Path(os.environ["TT_PARITY"]), rows)


if __name__ == "__main__":
    unittest.main(verbosity=1)
