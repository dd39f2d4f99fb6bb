"""bindings/torch, built for the PyTorch that runs this: its collectives give gloo's results, DistributedDataParallel
gloo's losses, and a rank that differs or dies is named on all others with the line of its script. Skipped (77) where
torch or its headers are not installed, and under a sanitizer."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import torch_package  # noqa: E402
from long_form import gate  # noqa: E402

PROGRAM = HERE / "torch_backend.py"


class BackEnd(unittest.TestCase):
    def test_gloo_s_results(self):
        for world in gate((3,), (1, 2, 3, 4)):
            with self.subTest(world=world):
                done = torch_package.launch(world, PROGRAM)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @classmethod
    def setUpClass(cls):
        cls.said = torch_package.launch_cases(3, PROGRAM, {how: (how, {}) for how in ("mismatch", "absent")})

    def test_a_rank_that_differs_is_named(self):
        done = self.said["mismatch"]
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 3, done.stdout)
        for line in lines:
            self.assertRegex(line, r"TT_ERR_MISMATCH: .*rank 0 called all_reduce\(f32 x 4, sum\) at "
                             r"torch_backend\.py:\d+ while ranks 1-2 called all_reduce\(f32 x \d, sum\)")

    def test_a_rank_that_dies_is_named(self):
        done = torch_package.launch(3, PROGRAM, "death")
        errors = [line for line in done.stdout.splitlines() if "TT_ERR" in line]
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(errors and all("TT_ERR_PEER: rank 0 (" in line for line in errors), done.stdout + done.stderr)
        self.assertNotIn("no error", done.stdout)

    def test_monitored_barrier_names_the_rank_that_does_not_come(self):
        done = self.said["absent"]
        self.assertEqual(done.returncode, 0, done.stderr)
        said = sorted(done.stdout.splitlines())
        self.assertEqual(len(said), 2, done.stdout)
        for line in said:
            self.assertIn("TT_ERR_TIMEOUT: rank 1 did not come to monitored_barrier() within 1000 ms", line)
        self.assertTrue(any("Rank 1 failed to pass monitoredBarrier" in line for line in said), said)
        self.assertTrue(any("Rank 2 successfully reached monitoredBarrier" in line for line in said), said)


if __name__ == "__main__":
    torch_package.main()
