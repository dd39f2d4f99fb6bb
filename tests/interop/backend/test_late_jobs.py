"""How long tests wait for a job of PyTorch cases (torch_package.launch_cases): as long as its cases end one by one, but
not for a case that does not end. Skipped (77) where torch is not installed. The ranks are this program, without it."""
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))


class Late(unittest.TestCase):
    def setUp(self):
        torch_package.DEADLINE = DEADLINE / 20

    def launch(self, **naps):
        """Run cases, {name: seconds}."""
        cases = {name: ("nap", {"TT_NAP": str(seconds)}) for name, seconds in naps.items()}
        return torch_package.launch_cases(2, __file__, cases)

    def test_a_job_may_take_longer_than_a_case(self):
        for name, done in self.launch(**dict.fromkeys("abc", 0.4 * torch_package.DEADLINE)).items():
            self.assertEqual(done.returncode, 0, name)

    def test_a_case_that_does_not_end_is_told(self):
        with self.assertRaises(AssertionError) as late:
            self.launch(short=0, long=threading.TIMEOUT_MAX)
        self.assertIn("the last case that began: long", str(late.exception))
        self.assertRegex(str(late.exception), r"process \d+ ran for [\d.]+ s and waited [\d.]+ s for a CPU")


if __name__ == "__main__":
    if "RANK" in os.environ:
        import one_job
        one_job.function(sys.argv[1])
        threading.Event().wait(float(os.environ["TT_NAP"]))
    else:
        import torch_package
        from patience import DEADLINE
        unittest.main(verbosity=1)
