"""Programs that train with a feature beside their twins in PyTorch, and the sections of docs/parity.md that tell how
far the two are apart.

NAME_features.c and NAME_features.py write, for each feature and rank, FOLDER/tutti.FEATURE.RANK and
FOLDER/torch.FEATURE.RANK: lines of a name and numbers, of which "loss" are losses and all others parameters or
states."""
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from long_form import gate
from patience import DEADLINE

LOSSES, PARAMETERS = 1e-5, 1e-6


def train(world, *program):
    run = subprocess.run([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={world}", *map(str, program)],
                         capture_output=True, text=True, timeout=2 * DEADLINE, check=False,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    if run.returncode:
        raise AssertionError(run.stderr)


def program(name):
    return pathlib.Path(os.environ["TT_PROGRAMS"], name)


def read(path):
    """{what: its numbers}"""
    found = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, *numbers = line.split()
        found.setdefault(name, []).extend(map(float, numbers))
    return found


def apart(ours, theirs):
    """How far two such files' losses, and all else, are apart at most."""
    assert ours.keys() == theirs.keys() and theirs, (ours.keys(), theirs.keys())
    losses = parameters = 0
    for what, want in theirs.items():
        assert len(want) == len(ours[what]) > 0, what
        most = max(abs(a - b) for a, b in zip(want, ours[what]))
        if what == "loss":
            losses = max(losses, most)
        else:
            parameters = max(parameters, most)
    return losses, parameters


def furthest(name, world, folder):
    """The same over all ranks."""
    ranks = [apart(*(read(folder / f"{who}.{name}.{rank}") for who in ("tutti", "torch"))) for rank in range(world)]
    return max(losses for losses, _ in ranks), max(parameters for _, parameters in ranks)


class Section:
    """A section of docs/parity.md: what it says above its rows, and the rows of this PyTorch's version."""

    def __init__(self, heading, table):
        self.heading, self.head, self.rows = heading, table.splitlines(), []

    def check(self, case, name, world, found, allowed=(LOSSES, PARAMETERS)):
        """Note a row, and hold it against what is allowed."""
        self.rows.append(f"| {name} | {torch.__version__} | {world} | {found[0]:.1e} | {found[1]:.1e} |")
        print(self.rows[-1])
        for most, limit in zip(found, allowed):
            case.assertLessEqual(most, limit)

    def write(self):
        """TT_PARITY=docs/parity.md: put the rows there, in place of what this version had. Other versions' rows and
        other sections stay; a new section comes last."""
        if not os.environ.get("TT_PARITY"):
            return
        page = pathlib.Path(os.environ["TT_PARITY"])
        before, _, rest = page.read_text(encoding="utf-8").partition(self.heading)
        section, mark, behind = rest.partition("\n## ")
        kept = [row for row in section.splitlines()
                if row.startswith("| ") and f"| {torch.__version__} |" not in row and row not in self.head]
        rows = sorted(kept + self.rows, key=lambda row: row.split(" | ")[1])  # by version, whoever ran last
        text = "\n".join([before.rstrip("\n"), "", self.heading, *self.head, *rows, ""])
        page.write_text(text + mark + behind, encoding="utf-8")


def compare(case, section, name, features, worlds, allowed=None):
    """Train with all features in worlds of these sizes, both ways; of 2, 3 and 4 ranks, 3 gate a change. `allowed`:
    (feature, world) -> limits of losses and parameters; None: the feature is left out there."""
    allowed = allowed or (lambda *_: (LOSSES, PARAMETERS))
    twin = pathlib.Path(sys.modules[case.__class__.__module__].__file__).with_name(f"{name}.py")
    for world in gate([3], worlds) if 3 in worlds else worlds:
        with tempfile.TemporaryDirectory() as folder:
            train(world, program(name), folder)
            train(world, sys.executable, twin, folder)
            for feature in features:
                limits = allowed(feature, world)
                with case.subTest(name=feature, world=world):
                    if limits:
                        section.check(case, feature, world, furthest(feature, world, pathlib.Path(folder)), limits)
    section.write()
