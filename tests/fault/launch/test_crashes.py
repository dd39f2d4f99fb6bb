#!/usr/bin/env python3
"""What `tutti run` reports of a rank that crashes: its stack, its last calls; and that it ends as it would have
ended."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI, PROGRAMS = os.environ["TUTTI"], pathlib.Path(os.environ["TT_PROGRAMS"])
CRASHES = str(PROGRAMS / "crashes")
SOURCE = (pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "fault" / "launch" / "crashes.c").read_text().splitlines()
LINE = 1 + next(i for i, line in enumerate(SOURCE) if "CRASHES HERE" in line)
SANITIZED = "TT_SANITIZED" in os.environ  # which have handlers of their own for what an instruction raises
WRITES = rf"#0 +write_nowhere at launch/crashes\.c:{LINE} \(crashes\)\n +#1 +reach_nowhere at launch/crashes\.c:\d+ "
FRAMES = r"(?ms)^    thread \d+, crashes:\n      "


def start(*what, nproc=2, flags=(), **variables):
    """TT_CRASH_STACKS: a busy machine may take seconds for what a quiet one does in 0.05."""
    return subprocess.Popen([TUTTI, "run", f"--nproc-per-node={nproc}", "--settle-period=1000", *flags, CRASHES, *what],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "TT_CRASH_STACKS": "20", **variables}, start_new_session=True)


def run(*what, **how):
    job = start(*what, **how)
    _, err = job.communicate(timeout=DEADLINE)
    return job.returncode, err


class Crashes(unittest.TestCase):
    def sees(self, err, pattern):
        if re.search(r"its stack can't be seen: .*(ptrace|not permitted)", err):
            self.skipTest("this machine lets no process look at another one's stack")
        self.assertRegex(err, pattern)

    def last_calls(self, err, rank=1):
        """The last two calls, which every rank here has made."""
        report = err[err.index(f"rank {rank} failed first"):]
        calls = re.search(r"^  its last calls:\n((?:    .*\n)+)", report, re.M).group(1).splitlines()
        self.assertEqual(len(calls), 2, err)
        for call, kind in zip(calls, ("f32 x 512, sum", "f32 x 256, max")):
            self.assertRegex(call, rf"^    all_reduce\({kind}\) at crashes\.c:\d+, call \d of group 0-1, "
                                   r"done \d+\.\d+ s before its end$")

    def test_abort(self):
        code, err = run("abort", "1")
        self.assertEqual(code, 134, err)
        self.assertRegex(err, r"rank 1 failed first: killed by SIGABRT \(signal 6\)")
        self.assertIn("\n  its stack (SIGABRT):\n", err)
        self.sees(err, FRAMES + r".*#\d+ +abort.*#\d+ +(main|misbehave)")
        self.last_calls(err)

    def test_what_is_no_crash_has_no_stack(self):
        code, err = run("exit", "1")
        self.assertEqual(code, 3, err)
        self.last_calls(err)
        self.assertNotIn("stack", err)

    def test_a_call_has_one_number(self):
        """In the error and among the last calls, whether the ranks share memory or send messages."""
        for host in ("both", "$RANK"):
            with self.subTest(host=host):
                program = ["sh", "-c", f'TT_HOST_ID={host} exec "$0" "$@"', CRASHES, "differ", "1"]
                done = subprocess.run([TUTTI, "run", "--nproc-per-node=2", "--settle-period=1000", *program],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE)
                self.assertIn(done.returncode, (4, 96), done.stderr)
                told = re.search(r"message:\n.* call (\d+) of the group differs", done.stderr)
                failed = re.search(r"^    (?:barrier|all_reduce)\(.*, call (\d+) of group 0-1, failed ", done.stderr,
                                   re.M)
                self.assertTrue(told and failed, done.stderr)
                self.assertEqual((told[1], failed[1]), ("6", "6"), done.stderr)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_function_and_line(self):
        code, err = run("null", "1")
        self.assertEqual(code, 139, err)
        self.assertRegex(err, r"rank 1 failed first: killed by SIGSEGV \(signal 11\)")
        self.assertIn("\n  its stack (SIGSEGV, address 0x0):\n", err)
        self.sees(err, FRAMES + WRITES + r".*#2 +main")  # nothing of the handler is above it
        self.last_calls(err)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_a_function_that_is_not_there(self):
        code, err = run("call", "1")
        self.assertEqual(code, 139, err)
        self.assertIn("\n  its stack (SIGSEGV, no code at address 0x0):\n", err)
        self.sees(err, FRAMES + r"#0 +(main|misbehave) at launch/crashes\.c:")

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_a_stack_that_is_used_up(self):
        code, err = run("deep", "1")
        self.assertEqual(code, 139, err)
        self.sees(err, FRAMES + r"#0 +use_up at launch/crashes\.c:.*\.\.\. \d+ more of the same")

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_another_thread(self):
        """That which crashed comes first."""
        code, err = run("thread", "1")
        self.assertEqual(code, 139, err)
        self.sees(err, FRAMES + WRITES + r".*crash_elsewhere.*^    thread \d+, crashes:.*#\d+ +main")

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_a_signal_of_somebody_else(self):
        code, err = run("sent", "1")
        self.assertEqual(code, 139, err)
        self.assertIn("\n  its stack (SIGSEGV):\n", err)
        self.sees(err, FRAMES + r"#0 +kill\b")

    @unittest.skipIf(SANITIZED, "a sanitizer sees what leads to the signal")
    def test_a_handler_of_the_program(self):
        code, err = run("handler", "1")
        self.assertEqual(code, 7, err)
        self.assertNotIn("its stack", err)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_a_child_of_a_rank(self):
        """It crashes as it would have, and is not taken for the rank."""
        code, err = run("fork", "1")
        self.assertEqual(code, 9, err)
        self.assertNotIn("its stack", err)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_without_a_group(self):
        code, err = run("leave", "1")
        self.assertEqual(code, 139, err)
        self.assertRegex(err, r"rank 1 failed first: killed by SIGSEGV")
        self.assertNotIn("its stack", err)
        self.last_calls(err)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_several_at_once(self):
        """More than are looked at together."""
        code, err = run("null", *map(str, range(1, 8)), nproc=8)
        self.assertEqual(code, 139, err)
        first = re.search(r"rank (\d) failed first: killed by SIGSEGV", err)
        self.assertTrue(first, err)
        self.sees(err, FRAMES + WRITES)
        self.assertEqual(err.count("its stack"), 1, err)

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_a_launcher_that_is_away(self):
        """It is stopped until the rank has ended, which it does by itself."""
        began = time.monotonic()
        code, err = run("unheard", "1", TT_CRASH_STACKS="0.7")
        self.assertEqual(code, 139, err)
        self.assertGreater(time.monotonic() - began, 0.7)
        self.assertRegex(err, r"rank 1 failed first: killed by SIGSEGV")
        self.assertNotIn("write_nowhere", err)

    def test_not_wanted(self):
        code, err = run("abort", "1", TT_CRASH_STACKS="0")
        self.assertEqual(code, 134, err)
        self.assertNotIn("its stack", err)
        self.last_calls(err)

    def test_without_libdw(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libdw.so.1").touch()
            code, err = run("abort", "1", LD_LIBRARY_PATH=folder)
        self.assertEqual(code, 134, err)
        self.assertRegex(err, r"its stack \(SIGABRT\):\n    not to be seen: stacks need libdw, .*libdw1")
        self.last_calls(err)

    def test_attempts(self):
        """Each is reported with its stack."""
        code, err = run("abort", "1", flags=["--max-restarts=2"])
        self.assertEqual(code, 134, err)
        self.assertEqual(err.count("\n  its stack (SIGABRT):\n"), 3, err)
        self.assertEqual(err.count("\n  its last calls:\n"), 3, err)
        self.assertRegex(err, r"attempt 2 of 3: rank 1 \(pid \d+\) was killed by SIGABRT")

    def test_nodes(self):
        """Every node's report has what the rank's own saw."""
        port = free_port()
        nodes = [start("abort", "1", nproc=1, flags=["--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                                                     "--master-addr=127.0.0.1"]) for node in (0, 1)]
        for node in nodes:
            _, err = node.communicate(timeout=DEADLINE)
            self.assertEqual(node.returncode, 134, err)
            self.assertRegex(err, r"rank 1 failed first: killed by SIGABRT \(signal 6\) \(node 1 ")
            self.sees(err, r"(?ms)^  its stack \(SIGABRT\):\n" + r".*#\d+ +abort.*#\d+ +(main|misbehave)")
            self.last_calls(err)

    @unittest.skipIf(SANITIZED, "a sanitizer's code has other frames")
    def test_who_makes_no_call_is_seen(self):
        """The others time out: the report has its stack and its last calls, in each attempt."""
        code, err = run("spin", "1", nproc=3, flags=["--settle-period=0.1", "--max-restarts=1"], CALLS_MS="500")
        self.assertEqual(code, 96, err)
        self.assertEqual(len(re.findall(r"^tutti run: rank 1 made no call while others waited for it:\n"
                                        r"  its stacks then:\n", err, re.M)), 2, err)
        self.sees(err, r"(?ms)^    thread \d+, crashes:\n      #0 +spin_here at launch/crashes\.c:\d+.*#\d+ +main.*"
                       r"^  its last calls:\n    all_reduce\(f32 x 512, sum\) [^\n]*\n"
                       r"    all_reduce\(f32 x 256, max\) at crashes\.c:\d+, call 2 of group 0-2, done ")


class EndedMainThreads(unittest.TestCase):
    """A main thread that ends by pthread_exit() while another thread lives: the kernel shows the process as a zombie,
    which it is not."""

    def job(self, what, calls_ms=1000 * DEADLINE, flags=(), heartbeat_ms=1000):
        return run(what, "1", nproc=3, flags=["--settle-period=1", *flags], CALLS_MS=str(int(calls_ms)),
                   HEARTBEAT_MS=str(heartbeat_ms))

    @unittest.skipIf(SANITIZED, "what the ended thread had is a leak")
    def test_who_calls_no_more_is_named_with_what_is_known(self):
        code, err = self.job("asleep", calls_ms=1500, flags=["--wait-notice=0.5"])
        self.assertEqual(code, 96, err)
        self.assertRegex(err, r"waiting for rank 1 \(host .*, pid \d+, whose main thread has ended\): ")
        self.assertRegex(err, r"rank 1 did not come to all_reduce\(.* \(call 3 of the group\); the main thread of rank "
                              r"1 \(pid \d+\) has ended, and another thread keeps that process alive\n")

    def test_who_goes_on_in_another_thread_is_not_blamed(self):
        code, err = self.job("goes_on")
        self.assertEqual(code, 0, err)
        self.assertNotIn("rank 1:", err)

    @unittest.skipIf(SANITIZED, "what the ended thread had is a leak")
    def test_who_is_stopped_is_frozen(self):
        code, err = self.job("stopped")
        self.assertEqual(code, 96, err)
        self.assertRegex(err, r"rank 1 \(pid \d+\) is frozen: stopped by a signal for \d+ ms")

    @unittest.skipIf(SANITIZED, "a sanitizer handles the signal")
    def test_who_crashes_is_seen(self):
        code, err = self.job("orphan", flags=["--settle-period=1000"])
        self.assertEqual(code, 139, err)
        if not re.search(r"its stack can't be seen: .*(ptrace|not permitted)", err):
            self.assertRegex(err, FRAMES + WRITES + r".*crash_late.*^    thread \d+, crashes:\n      has ended\n")


if __name__ == "__main__":
    unittest.main()
