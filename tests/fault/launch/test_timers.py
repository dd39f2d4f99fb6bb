#!/usr/bin/env python3
"""Workers that hang in what a timer watches are ended, and the report says which timer and where they were.
tt_expires(), and torchrun's protocol for the same."""
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI, PROGRAMS = os.environ["TUTTI"], pathlib.Path(os.environ["TT_PROGRAMS"])
HANGS = str(PROGRAMS / "hangs")
SOURCE = (pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "fault" / "launch" / "hangs.c").read_text().splitlines()
SANITIZED = "TT_SANITIZED" in os.environ
SET, NESTED = (1 + next(i for i, line in enumerate(SOURCE) if mark in line) for mark in ("SET HERE", "NESTED HERE"))

# What FileTimerClient writes: a line of JSON into the pipe, opened for it.
CLIENT = r'''
import json, os, sys, time
def say(**request):
    with open(os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY), "wt") as pipe:
        line = json.dumps({"version": 1, "pid": os.getpid(), **request}) if request else "\n".join(sys.argv[2:])
        pipe.write(line + "\n")
def acquire(scope, after, signal=9):
    say(scope_id=scope, expiration_time=time.time() + after, signal=signal)
def release(scope):
    say(scope_id=scope, expiration_time=-1, signal=0)
what = sys.argv[1]
if os.environ["RANK"] == "0":
    if what == "garbage":
        say()
        print("said", flush=True)
    acquire("loop.py#1", 1000)
    acquire("loop.py#2", 3)
    release("loop.py#2")
    if what == "hang":
        acquire("eval.py#40", 0.2)
    if what == "term":
        acquire("eval.py#40", 0.2, 15)
    if what == "none":  # which ends nobody
        acquire("eval.py#40", 0.2, 0)
    if what in ("none", "garbage"):
        time.sleep(4)  # longer than any that is to have no effect
        sys.exit(0)
time.sleep(1000)
'''


def start(*program, nproc=2, flags=(), user=None, limit=None, command=TUTTI, **variables):
    argv = [command, "run", f"--nproc-per-node={nproc}", "--settle-period=0.2", "--grace-period=5", *flags, *program]
    if limit:
        argv = ["sh", "-c", f'ulimit -S -n {limit}; exec "$@"', "sh", *argv]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, **variables}, start_new_session=True, user=user)


def run(*program, **how):
    job = start(*program, **how)
    _, err = job.communicate(timeout=DEADLINE)
    return job.returncode, err


class Timers(unittest.TestCase):
    def expires(self, err, what, rank=1, sig="SIGKILL"):
        self.assertRegex(err, rf"rank {rank} failed first: ")
        self.assertRegex(err, rf"(?m)^    rank {rank}: the timer {what} has expired; tutti sent {sig}$")
        self.assertNotIn("dmesg", err)

    def expires_below(self, err, rank):
        self.assertRegex(err, rf'(?m)^tutti run: process \d+, below rank {rank}: the timer "validation" of 0.3 s, '
                              rf"set at hangs.c:{SET}, has expired; it gets SIGKILL$")

    def sees(self, err, pattern):
        if re.search(r"its stack can't be seen: .*(ptrace|not permitted)", err):
            self.skipTest("this machine lets no process look at another one's stack")
        self.assertIn("\n  its stacks when the timer expired:\n", err)
        if "it took longer" not in err:
            self.assertRegex(err, pattern)

    def test_named(self):
        code, err = run(HANGS, "named")
        self.assertEqual(code, 137, err)
        self.expires(err, rf'"validation" of 0.3 s, set at hangs.c:{SET},')
        self.sees(err, r"(?ms)^    thread \d+, hangs:\n.*#\d +hang_here .*#\d +main")

    def test_nested(self):
        """The inner one, which TT_EXPIRES has set."""
        code, err = run(HANGS, "nested")
        self.assertEqual(code, 137, err)
        self.expires(err, rf"of 0.3 s, set at hangs.c:{NESTED},")

    def test_another_thread(self):
        """That which set the timer comes first."""
        code, err = run(HANGS, "thread")
        self.assertEqual(code, 137, err)
        self.sees(err, r"(?ms)^    thread \d+, hangs:\n.*hang_here.*hang_in_thread.*^    thread \d+, hangs:\n.*main")

    def test_child(self):
        """Who hangs is ended, and nobody else."""
        code, err = run(HANGS, "child")
        self.assertEqual(code, 59, err)
        self.expires_below(err, 1)
        self.assertNotIn("tutti sent", err)  # the rank has ended for a reason of its own

    def test_below_a_script(self):
        code, err = run("sh", "-c", f"{HANGS} named; exit $?", nproc=1)
        self.assertEqual(code, 137, err)
        self.expires_below(err, 0)
        if "its stack can't be seen" not in err and "it took longer" not in err:
            self.assertRegex(err, r"(?s)the stacks of process \d+, below it, when its timer expired:\n.*hang_here")

    def test_a_child_of_a_rank_that_goes_on(self):
        """Its rank is well, and what it says in the end is not replaced."""
        program = f"""
import json, os, subprocess, sys, time, urllib.request
child = subprocess.Popen(["sleep", "1000"])
with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
    pipe.write(json.dumps(dict(version=1, pid=child.pid, scope_id="child", expiration_time=0, signal=9)) + "\\n")
assert child.wait() == -9
with urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1], timeout={DEADLINE}) as answer:
    assert answer.status == 200
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump(dict(message="its own reason"), file)
os.kill(os.getpid(), 15)
"""
        port = free_port()
        code, err = run(sys.executable, "-c", program, str(port), nproc=1, flags=[f"--health-check-port={port}"],
                        TORCHELASTIC_ENABLE_FILE_TIMER="1")
        self.assertEqual(code, 143, err)
        self.assertRegex(err, r'tutti run: process \d+, below rank 0: the timer "child" has expired; it gets SIGKILL')
        self.assertIn("its own reason", err)
        self.assertNotIn("tutti sent", err)

    def test_stopped(self):
        self.assertEqual(run(HANGS, "stopped")[0], 137)

    def test_ended_in_time(self):
        code, err = run(HANGS, "ended")
        self.assertEqual(code, 0, err)
        self.assertNotIn("timer", err)

    def test_too_many(self):
        code, err = run(HANGS, "many")
        self.assertEqual(code, 0, err)

    def test_without_a_launcher(self):
        """Nobody watches; the program goes on."""
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(free_port())}
        for socket in ("", "tutti-job/1/0123456789abcdef"):
            done = subprocess.run([HANGS, "alone"], env={**environment, "TT_JOB_SOCKET": socket}, timeout=DEADLINE)
            self.assertEqual(done.returncode, 0)

    def test_attempts(self):
        code, err = run(HANGS, "once", flags=["--max-restarts=1"])
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"attempt 1 of 2: rank 1 \(pid \d+\) was killed by SIGKILL .*; starting again")
        self.assertIn("has expired", err)

    def kept(self, way, after):
        job = start(HANGS, "kept", flags=["--max-restarts=1"], WAY=way, AFTER_S=str(after),
                    TORCHELASTIC_ENABLE_FILE_TIMER="1")
        out, err = job.communicate(timeout=DEADLINE)
        return job.returncode, err, out

    def test_recovery(self):
        """A rank that goes on while another one is replaced keeps its timers, both kinds."""
        for way, what in (("memory", r'"kept" of [\d.]+ s, set at hangs.c:\d+,'), ("pipe", '"kept"')):
            with self.subTest(way):
                after = 1
                code, err, out = self.kept(way, after)
                while "rank 0 has recovered" not in out and after < 100:  # a busy machine: it expired before
                    after *= 3
                    code, err, out = self.kept(way, after)
                self.assertEqual(code, 137, err)
                self.assertIn("replacing what is lost, the other ranks go on", err)
                self.assertIn("rank 0 has recovered", out)
                self.expires(err, what, rank=0)

    @unittest.skipIf(SANITIZED, "a sanitizer needs descriptors, too")
    def test_descriptors(self):
        """However many processes set timers, the launcher keeps descriptors for the store. Half of those that nobody
        has counted on are for timers, 3 a process."""
        def family(limit, children):
            return run("sh", "-c", f'ulimit -n $(ulimit -H -n); exec "{HANGS}" family', nproc=1, limit=limit,
                       FAMILY=str(children))

        code, err = family(20, 0)
        self.assertEqual(code, 1, err)
        need = int(re.search(r"takes (\d+) descriptors at least", err).group(1))
        code, err = family(need + 24, 4)
        self.assertEqual((code, err.count("timers")), (0, 0), err)
        code, err = family(need + 24, 40)
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("timers"), 1, err)
        self.assertRegex(err, r"timers of process \d+, and of others that come, are not watched: descriptors are left "
                              r"for those of 4 processes \(ulimit -n\)")

    def test_nodes(self):
        port = free_port()
        nodes = [start(HANGS, "named", nproc=1, flags=["--nnodes=2", f"--node-rank={node}", f"--master-port={port}",
                                                       "--master-addr=127.0.0.1"]) for node in (0, 1)]
        for node in nodes:
            _, err = node.communicate(timeout=DEADLINE)
            self.assertEqual(node.returncode, 137, err)
            self.expires(err, rf'"validation" of 0.3 s, set at hangs.c:{SET},')


class FileTimers(unittest.TestCase):
    def run_client(self, what, *more, **variables):
        return run(sys.executable, "-c", CLIENT, what, *more, TORCHELASTIC_ENABLE_FILE_TIMER="1", **variables)

    def test_expires(self):
        code, err = self.run_client("hang")
        self.assertEqual(code, 137, err)
        Timers.expires(self, err, '"eval.py#40"', rank=0)

    def test_its_signal(self):
        code, err = self.run_client("term")
        self.assertEqual(code, 143, err)
        Timers.expires(self, err, '"eval.py#40"', rank=0, sig="SIGTERM")

    def test_no_signal(self):
        job = start(sys.executable, "-c", CLIENT, "none", nproc=1, TORCHELASTIC_ENABLE_FILE_TIMER="1")
        _, err = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 0, err)

    def test_garbage(self):
        """What is no request is passed over, also without a line end within reach."""
        garbage = ["", "{", "[1]", '{"pid": "x"}', '{"pid": 1, "scope_id": "a", "expiration_time": 0, "signal": 9}',
                   '{"pid": 99999999999, "scope_id": "a", "expiration_time": 0, "signal": 9}', "x" * 20000, "y" * 8191]
        job = start(sys.executable, "-c", CLIENT, "garbage", *garbage, nproc=1, TORCHELASTIC_ENABLE_FILE_TIMER="1")
        _, err = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 0, err)

    def test_a_file_of_the_users(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "timers"
            os.mkfifo(path)  # of an earlier job
            code, err = self.run_client("hang", TORCHELASTIC_TIMER_FILE=str(path))
            self.assertEqual(code, 137, err)
            Timers.expires(self, err, '"eval.py#40"', rank=0)
            self.assertFalse(path.exists())

    def test_a_file_that_is_no_pipe(self):
        """It is said, and left alone."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "timers"
            path.write_text("mine")
            code, err = run("true", TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=str(path))
            self.assertEqual(code, 0, err)
            self.assertEqual(path.read_text(), "mine")
            job = start("sleep", "1000", TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=str(path))
            for line in job.stderr:
                if "can't watch torchrun's timers" in line:
                    break
            else:
                self.fail("nothing is said")
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=DEADLINE)

    def test_a_pipe_that_others_may_write_into(self):
        """It is left alone, where it can't be replaced: who is not this user could have workers killed through it."""
        user = {"user": 65534} if os.geteuid() == 0 else {}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "timers"
            os.mkfifo(path)
            path.chmod(0o666)
            command = shutil.copy(TUTTI, folder)  # the build may lie where that user can't go
            os.chmod(folder, 0o555)
            job = start("sleep", "20", nproc=1, TORCHELASTIC_ENABLE_FILE_TIMER="1", TORCHELASTIC_TIMER_FILE=str(path),
                        command=command, **user)
            try:
                said = any("can't watch torchrun's timers" in line for line in job.stderr)
                self.assertTrue(said)
            finally:
                os.chmod(folder, 0o700)
                job.send_signal(signal.SIGTERM)
                job.communicate(timeout=DEADLINE)

    def test_its_folder(self):
        """Where nobody chose a path the pipe is in the job's private folder, and goes with it, also where the launcher
        is killed."""
        job = start("sh", "-c", "echo $TORCHELASTIC_TIMER_FILE; exec sleep 1000", nproc=1,
                    TORCHELASTIC_ENABLE_FILE_TIMER="1")
        path = pathlib.Path(job.stdout.readline().strip())
        self.assertTrue(stat.S_ISFIFO(path.stat().st_mode))
        job.kill()
        job.communicate(timeout=DEADLINE)
        deadline = time.monotonic() + DEADLINE
        while path.parent.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(path.parent.exists())

    def test_not_wanted(self):
        done = subprocess.run([TUTTI, "run", "sh", "-c", "echo ${TORCHELASTIC_TIMER_FILE-none}"], capture_output=True,
                              text=True, timeout=DEADLINE)
        self.assertEqual(done.stdout, "none\n")


if __name__ == "__main__":
    unittest.main()
