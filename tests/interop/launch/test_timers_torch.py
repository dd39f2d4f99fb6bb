#!/usr/bin/env python3
"""PyTorch's timers under `tutti run`: torch.distributed.elastic.timer with its FileTimerClient."""
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import torch.distributed.elastic.timer  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing} (./dev setup --interop installs it)")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE  # noqa: E402

WORKER = """
import os, sys, time
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=1000, scope="the whole"):
    for _ in range(3):
        with timer.expires(after=1000):
            pass
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        with timer.expires(after=0.2, scope="validation"):
            time.sleep(1000)
    time.sleep(1.2)
"""


class Timers(unittest.TestCase):
    def test_one_that_expires_is_a_failure(self):
        argv = [os.environ["TUTTI"], "run", "--nproc-per-node=2", "--max-restarts=1", sys.executable, "-c", WORKER]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL,
                              env={**os.environ, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)  # the second attempt ends well
        self.assertRegex(done.stderr, r"attempt 1 of 2: rank 1 \(pid \d+\) was killed by SIGKILL")
        self.assertIn('rank 1: the timer "validation" has expired; tutti sent SIGKILL', done.stderr)


if __name__ == "__main__":
    unittest.main()
