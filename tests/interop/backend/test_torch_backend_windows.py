"""bindings/torch, built for the PyTorch that runs this: windows beside a model in one process (torch_windows.py), over
shared memory and TCP, and what a program hears of its calls (torch_observed.py). Skipped (77) where torch or its
headers are missing, and under a sanitizer."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import torch_package  # noqa: E402
from long_form import gate  # noqa: E402

WINDOWS, OBSERVED = HERE / "torch_windows.py", HERE / "torch_observed.py"
TRANSPORTS = {"shm": {}, "tcp": {"TT_TRANSPORT": "tcp"}}


class Backend(unittest.TestCase):
    def expect_checks(self, world, program, names, transports=("shm",)):
        cases = {f"{name} over {t}": (name, TRANSPORTS[t]) for name in names for t in transports}
        for case, done in torch_package.launch_cases(world, program, cases).items():
            with self.subTest(case, world=world):
                name = case.split()[0]
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, rf"{name}: [1-9]\d* checks|{name} lacks all")

    def test_windows(self):
        for world in gate((3,), (2, 3, 4)):
            self.expect_checks(world, WINDOWS, ("against_a_model", "views", "registering", "bad_input",
                                                "a_rank_leaves"), TRANSPORTS)
        self.expect_checks(2, WINDOWS, ("signals_count", "speed"), TRANSPORTS)

    def test_what_is_heard(self):
        self.expect_checks(2, OBSERVED, ("durations", "on_completion", "failures_are_no_completions", "hooks_around",
                                         "recorder"))


if __name__ == "__main__":
    torch_package.main()
