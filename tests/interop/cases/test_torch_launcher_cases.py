"""PyTorch's own tests of its launchers, with tutti run and tutti launch in the places of torch.distributed.run and
torch.distributed.launch: what comes of each case is what docs/launch/torchrun.md says of it.

The tests are PyTorch's, and not here: TT_TORCH_TESTS is a copy of the folder test/distributed/launcher of its sources.
They need the Python packages expecttest, pytest (2.x) and python-etcd (1.13), and etcd for 1.13's."""

import importlib.util
import os
import re
import subprocess
import sys
import types
import unittest

TUTTI = os.environ["TUTTI"]
FOLDER = os.environ.get("TT_TORCH_TESTS", "")
FILES = ("run_test.py", "test_run.py", "launch_test.py")
TIMEOUT = 0.3 * float(os.environ["TT_TIMEOUT"])
PAGE = os.path.join(os.environ["TT_SOURCE"], "docs", "launch", "torchrun.md")


def play(verb, argv):
    """tutti's verb, which says and raises what the function main() of PyTorch's module does."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    said = subprocess.run([TUTTI, verb, *argv], env=dict(os.environ, PYTHON_EXEC=sys.executable),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
    sys.stdout.write(said.stdout)
    sys.stderr.write(said.stderr)
    if said.returncode == 2 and f"Try 'tutti {verb} --help'" in said.stderr:
        raise ValueError(said.stderr)
    if said.returncode:
        error = ChildFailedError.__new__(ChildFailedError)
        Exception.__init__(error, said.stderr)
        raise error


def run(argv=None):
    play("run", argv)


def launch(argv=None):
    import torch
    spelling = ["--local-rank-name=local_rank"] if torch.__version__.startswith("1.") else []
    play("launch", [*spelling, *argv])


def take_the_places():
    import torch.distributed.launch
    import torch.distributed.run
    torch.distributed.run.main, torch.distributed.launch.main = run, launch
    if importlib.util.find_spec("expecttest") is None:  # what the cases take of PyTorch's own test tools
        tools = types.ModuleType("torch.testing._internal.common_utils")
        tools.TEST_WITH_DEV_DBG_ASAN = False
        tools.sandcastle_skip_if = tools.skip_but_pass_in_sandcastle_if = lambda _skip, _why: lambda case: case
        tools.TestCase = unittest.TestCase
        sys.modules[tools.__name__] = tools


def load(name):
    spec = importlib.util.spec_from_file_location(name[:-3], os.path.join(FOLDER, name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


class Results(unittest.TextTestResult):
    """What came of each case, by its name."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.outcomes = {}

    def note(self, case, outcome):
        self.outcomes[case.id().split(".")[-1]] = outcome

    def stopTest(self, test):
        """Cases that join a group in this process leave it to the next."""
        import torch.distributed
        super().stopTest(test)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passes")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "fails")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "fails")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "is skipped")


def expected(version):
    """What the page says: of each case its outcome with this version of PyTorch."""
    column = 2 if version.startswith("1.") else 3
    with open(PAGE, encoding="utf-8") as page:
        rows = [[cell.strip() for cell in line.split("|")] for line in page if re.match(r"\| `test_", line)]
    return {row[1].strip("`"): row[column] for row in rows if row[column] != ""}


def main():
    import torch
    take_the_places()
    suite = unittest.TestSuite(load(name) for name in FILES if os.path.exists(os.path.join(FOLDER, name)))
    got = unittest.TextTestRunner(verbosity=2, resultclass=Results).run(suite).outcomes
    want = expected(torch.__version__)
    differ = {name: (got.get(name), want.get(name)) for name in sorted(got.keys() | want.keys())
              if got.get(name) != want.get(name)}
    for name, (here, there) in differ.items():
        print(f"{name}: {here}, but {PAGE} has: {there}")
    print(f"{sum(outcome == 'passes' for outcome in got.values())} of {len(got)} pass")
    return 1 if differ or not got else 0


if __name__ == "__main__":
    if not FOLDER:
        print("skipped: TT_TORCH_TESTS names no copy of PyTorch's test/distributed/launcher")
        sys.exit(77)
    sys.exit(main())
