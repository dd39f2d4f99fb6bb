"""PyTorch's own tests of c10d over the back end tutti: of what passes with gloo here, all passes with tutti in gloo's
place, but for the cases that docs/pytorch-tests.md lists.

The tests are PyTorch's, and not here: TT_TORCH_C10D_TESTS is a copy of the folder test/distributed of its sources (the
largest file, distributed_test.py, comes with PyTorch itself). They need the Python package expecttest, and numpy.
TT_TORCH_C10D_ONLY, a regular expression, runs a part of them, and compares that."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

if not os.environ.get("TT_TORCH_C10D_TESTS"):
    print("skipped: TT_TORCH_C10D_TESTS names no copy of PyTorch's test/distributed")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import torch_package  # noqa: E402  (after the path to it is set)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pytorch-tests.md"
ONLY = os.environ.get("TT_TORCH_C10D_ONLY", ".")
SHARE = 0.95  # of gloo's passes


def run(back_end, folder):
    """Case -> [outcome, the end of what it said]."""
    out = pathlib.Path(folder) / f"{back_end}.json"
    path = os.pathsep.join([str(torch_package.PACKAGE), os.environ.get("PYTHONPATH", "")])
    runner = [sys.executable, str(ROOT / "tests/interop/torch_c10d_runner.py"), back_end, str(out), ONLY]
    subprocess.run(runner, check=True, env=dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1"))
    return json.loads(out.read_text())


def listed(version):
    """The cases that the page says fail with this version of PyTorch."""
    rows = [[cell.strip() for cell in line.split("|")] for line in PAGE.read_text().splitlines()
            if re.match(r"\| `\w+\.test_", line)]
    return {row[1].strip("`") for row in rows if version.startswith(tuple(row[2].replace(",", " ").split()))}


def compare(gloo, tutti, known):
    """Print the figures; returns whether they are what the page says."""
    passed = [case for case, (outcome, _) in gloo.items() if outcome == "passes"]
    lost = {case for case in passed if tutti.get(case, ["is missing"])[0] != "passes"}
    for case in sorted(lost):
        outcome, text = tutti.get(case, ["is missing", ""])
        print(f"{case}: passes with gloo, {outcome} with tutti{' (listed)' if case in known else ''}")
        if case not in known:
            print(text)
    for case in sorted(known - lost):
        print(f"{case}: is listed in {PAGE.name}, and passes, or fails with gloo too")
    share = 1 - len(lost) / max(1, len(passed))
    print(f"gloo passes {len(passed)} of {len(gloo)}, tutti {len(passed) - len(lost)} of these: {share:.1%}")
    return lost == known and share >= SHARE


def main():
    lacking = torch_package.build()
    if lacking:
        print("skipped:", lacking)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        gloo, tutti = (run(back_end, folder) for back_end in ("gloo", "tutti"))
    known = {case for case in listed(torch_package.torch.__version__) if re.search(ONLY, case)}
    return 0 if compare(gloo, tutti, known) else 1


if __name__ == "__main__":
    sys.exit(main())
