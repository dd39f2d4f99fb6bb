"""PyTorch's own cases over two back ends, for tests that compare them: what passes with PyTorch's own here passes with
Tutti's in its place, but for the cases that docs/pytorch-tests.md lists."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch_package

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "pytorch-tests.md"


def run(runner, back_end, only, folder):
    """Case -> [outcome, the end of what it said]."""
    out = pathlib.Path(folder) / f"{back_end}.json"
    path = os.pathsep.join([str(torch_package.PACKAGE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "tests/interop/cases" / runner), back_end, str(out), only]
    subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1"))
    return json.loads(out.read_text())


def listed(section):
    """The cases that a section of the page says fail with this version of PyTorch."""
    text = re.split(r"^# +", PAGE.read_text(), flags=re.M)
    rows = [[cell.strip() for cell in line.split("|")] for part in text if part.startswith(section)
            for line in part.splitlines() if re.match(r"\| `\w+\.test_", line)]
    version = torch_package.torch.__version__
    return {row[1].strip("`") for row in rows if version.startswith(tuple(row[2].replace(",", " ").split()))}


def compare(names, theirs, ours, known, least):
    """Print the figures; returns whether they are what the page says. `least`: the share of their passes."""
    their_name, our_name = names
    passed = [case for case, (outcome, _) in theirs.items() if outcome == "passes"]
    lost = {case for case in passed if ours.get(case, ["is missing"])[0] != "passes"}
    for case in sorted(lost):
        outcome, text = ours.get(case, ["is missing", ""])
        print(f"{case}: passes with {their_name}, {outcome} with {our_name}{' (listed)' if case in known else ''}")
        if case not in known:
            print(text)
    for case in sorted(known - lost):
        print(f"{case}: is listed in {PAGE.name}, and passes, or fails with {their_name} too")
    share = 1 - len(lost) / max(1, len(passed))
    print(f"{their_name} passes {len(passed)} of {len(theirs)}, {our_name} {len(passed) - len(lost)} of these: "
          f"{share:.1%}")
    return lost == known and share >= least


def main(runner, names, section, only, least):
    """Build the package, run the cases whose names match `only` over both, and compare. Returns the exit code."""
    lacking = torch_package.build()
    if lacking:
        print("skipped:", lacking)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = (run(runner, name, only, folder) for name in names)
    known = {case for case in listed(section) if re.search(only, case)}
    return 0 if compare(names, theirs, ours, known, least) else 1
