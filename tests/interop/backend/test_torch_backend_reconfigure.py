"""bindings/torch, built for the PyTorch that runs this: groups whose members change in the same processes
(torch_reconfigure.py), as gloo's do and beyond. Skipped (77) where torch or its headers are missing, and under a
sanitizer."""
import pathlib
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import torch_package  # noqa: E402
from patience import DEADLINE  # noqa: E402

PROGRAM = HERE / "torch_reconfigure.py"
AS_GLOO = ("all_of_them", "without_one", "parts_and_whole", "late_ones", "in_a_set", "messages", "used_twice",
           "after_an_abort", "after_a_timeout")
OWN = ("no_members_yet", "wrong_handles", "one_does_not_come", "other_members", "store_is_gone", "works_under_way",
       "hooks_stay", "many_times", "suspended")


class Reconfigure(unittest.TestCase):
    def expect_checks(self, name, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"{name}: [1-9]\d* checks|{name} lacks all")

    def test_members_change(self):
        for name, done in torch_package.launch_cases(4, PROGRAM, {n: (n, {}) for n in AS_GLOO + OWN}).items():
            with self.subTest(name):
                self.expect_checks(name, done)

    def test_training_goes_on_without_a_rank_that_is_killed(self):
        """Under a launcher that lets the others live: this program."""
        from torch.distributed import TCPStore
        store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "4",
                  "TORCHELASTIC_USE_AGENT_STORE": "True"}
        ranks = [subprocess.Popen([sys.executable, str(PROGRAM), "a_rank_is_killed"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=torch_package.environment(**shared, RANK=str(rank))) for rank in range(4)]
        for rank in ranks:
            self.addCleanup(rank.kill)
        said = [rank.communicate(timeout=DEADLINE)[0] for rank in ranks]
        if "lacks all" in said[0]:
            return
        self.assertEqual([rank.returncode for rank in ranks], [0, -signal.SIGKILL, 0, 0], "".join(said))
        self.assertRegex(said[0], r"a_rank_is_killed: [1-9]\d* checks")


if __name__ == "__main__":
    torch_package.main()
