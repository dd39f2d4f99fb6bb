#!/usr/bin/env python3
"""tutti top and tutti trace: what they say of jobs that hang, of ranks that are stopped or dead, and of jobs that run
well."""
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from fcntl import ioctl

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402
from terminal import on_terminal, read_rest  # noqa: E402

TUTTI = os.environ["TUTTI"]
HANG = str(pathlib.Path(os.environ["TT_PROGRAMS"]) / "hang")
CALLS = 100
TRACED = 1500


def tutti(*argv, check=True):
    done = subprocess.run([TUTTI, *argv], capture_output=True, text=True, timeout=DEADLINE)
    if check and done.returncode:
        raise AssertionError(f"{argv}: {done.returncode}: {done.stderr}")
    return done


class Job:
    """A job that ends with the block, also in the ways that hang."""

    def __init__(self, what, rank, nproc=3, flags=(), calls=CALLS, grace=0.2):
        self.argv = [TUTTI, "run", "--master-port=0", f"--nproc-per-node={nproc}", f"--grace-period={grace}", *flags,
                     HANG, str(calls), what, str(rank)]

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True)
        return self

    def __exit__(self, *_):
        try:
            for patience in (1, DEADLINE):  # the second signal ends the grace period
                self.process.send_signal(signal.SIGINT)
                try:
                    self.process.communicate(timeout=patience)
                    break
                except subprocess.TimeoutExpired:
                    pass
        finally:
            self.process.kill()

    def top(self, true):
        """The first look of which `true` holds."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline and self.process.poll() is None:
            done = tutti("top", "--json", "--once", str(self.process.pid), check=False)
            look = json.loads(done.stdout) if done.returncode == 0 else {"ranks": []}
            if look["ranks"] and true(look):
                return look
        raise AssertionError(f"waited in vain; last: {done.stdout} {done.stderr}")

    def says(self, pattern, name=None):
        """The first look for people that has `pattern`: on a busy machine one may come before all ranks wait again."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline and self.process.poll() is None:
            text = tutti("top", "--once", name or str(self.process.pid)).stdout
            if re.search(pattern, text):
                return text
        raise AssertionError(f"waited in vain for {pattern}; last: {text}")


def waits(*ranks, after=CALLS):
    """These ranks wait, in a call of a higher number than `after`: a look at a busy machine also meets ranks that wait
    for a moment, in one of the calls before the one that hangs."""
    return lambda look: all(look["ranks"][r]["waits"] and look["ranks"][r]["call"]["seq"] > after for r in ranks)


def read_trace(test, path, ranks):
    """The events by phase; slices by call and rank. Checks what every trace must fulfil. Processes count from 1 in the
    file (Perfetto hides 0), and are ranks here."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    events = {}
    for event in trace["traceEvents"]:
        test.assertGreater(event["pid"], 0)
        test.assertGreater(event["tid"], 0)
        event["pid"] -= 1
        events.setdefault(event["ph"], []).append(event)
    rows, calls = {}, {}
    for s in events["X"]:
        rows.setdefault((s["pid"], s["tid"]), []).append((s["ts"], s["ts"] + s["dur"]))
        calls.setdefault((s["args"]["group"], s["args"]["seq"]), {})[s["pid"]] = s
    for row in rows.values():
        for (_, end), (begin, _) in zip(sorted(row), sorted(row)[1:]):
            test.assertLessEqual(end, begin + 0.002)
    names = {e["pid"]: e["args"]["name"] for e in events["M"] if e["name"] == "process_name"}
    test.assertEqual(names, {rank: f"rank {rank}" for rank in range(ranks)})
    ends = {}
    for e in events.get("s", []) + events.get("f", []):
        ends.setdefault(e["id"], []).append(e["ph"])
        test.assertTrue(any(b - 0.002 <= e["ts"] <= t + 0.002 for b, t in rows[e["pid"], e["tid"]]))
    test.assertTrue(all(sorted(phases) == ["f", "s"] for phases in ends.values()))
    return events, calls


def check_overlap(test, calls, ranks):
    """No rank is through with a call before all have begun it: so it is on the one clock, too. A rank reads the clock
    just after it has told the others, so one that loses its CPU in between seems to begin late: that is rare."""
    whole = [by for by in calls.values() if len(by) == ranks]
    test.assertGreater(len(whole), 900)
    late = []
    for by in whole:
        latest = max(s["ts"] for s in by.values())
        earliest = min((s["ts"] + s["dur"] for s in by.values() if s["args"]["state"] == "done"), default=latest)
        if latest > earliest + 1.0:  # microseconds: how well two clocks can be read at one moment
            late.append(by)
    test.assertLessEqual(len(late), len(whole) // 100, late[:3])


class Top(unittest.TestCase):
    def test_a_stopped_rank(self):
        with Job("stop", 1) as job:
            look = job.top(lambda look: waits(0, 2)(look) and look["ranks"][1]["state"] == "stopped")
            for rank in (0, 2):
                self.assertEqual(look["ranks"][rank]["state"], "runs")
                self.assertEqual(look["ranks"][rank]["waits"]["for_rank"], 1)
                self.assertTrue(look["ranks"][rank]["call"]["open"])
                self.assertRegex(look["ranks"][rank]["call"]["text"], r"^all_reduce\(f32 x 100, max\) at hang\.c:\d+$")
                self.assertEqual(look["ranks"][rank]["call"]["group"], "0-2")
            self.assertFalse(look["ranks"][1]["call"]["open"])
            self.assertEqual(look["ranks"][1]["call"]["seq"] + 1, look["ranks"][0]["call"]["seq"])
            job.says(r"ranks 0, 2 wait for rank 1, for .*\. Rank 1 is STOPPED, after all_reduce")

    def test_a_rank_that_never_calls(self):
        with Job("away", 2) as job:
            job.top(waits(0, 1))
            job.says(r"ranks 0-1 wait for rank 2, for .*\. Rank 2 runs, after all_reduce\(.*ago")

    def test_workers(self):
        """What each has under way, whose values lie where, and the oldest call; also in a trace."""
        def is_there(look):
            workers = [rank["worker"] for rank in look["ranks"]]
            return all(workers) and workers[1]["serving"] == 2 and workers[1]["owned"] == 6 and \
                all(workers[r]["calls"] == 1 and workers[r]["oldest"] for r in (0, 2))

        with Job("serve", 1) as job:
            look = job.top(is_there)
            served, caller = look["ranks"][1]["worker"], look["ranks"][0]["worker"]
            self.assertEqual((served["name"], served["id"], served["served"]), ("worker1", 1, 8))
            self.assertEqual(served["owned_by_function"], {"make": 6})
            self.assertEqual((served["calls"], served["held"], served["oldest"]), (0, 0, None))
            self.assertEqual((caller["calls_made"], caller["held"], caller["owned"]), (4, 3, 0))
            self.assertEqual((caller["oldest"]["function"], caller["oldest"]["to"]), ("hold", 1))
            self.assertTrue(5000 <= caller["oldest"]["bytes"] < 5200, caller)
            self.assertGreaterEqual(served["threads"], 1)
            job.says(r"(?m)^ +1 worker1 .* owns 6 of make\(\)$")
            job.says(r"(?m)^ +2 worker2 .* oldest hold\(\) to 1, for ")
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "trace.json")
                tutti("trace", str(job.process.pid), "-o", path)
                with open(path, encoding="utf-8") as file:
                    events = json.load(file)["traceEvents"]
        calls = [(e["pid"] - 1, e["name"], e["args"]["to"], e["args"]["state"]) for e in events
                 if e.get("cat") == "rpc"]
        expected = [(rank, *call) for rank in (0, 2) for call in 3 * [("make", 1, "done")] + [("hold", 1, "under way")]]
        self.assertEqual(sorted(calls), sorted(expected))

    def test_workers_without_a_group(self):
        """Those that meet through a store have a recorder of their own."""
        argv = [TUTTI, "bench", "rpc", "--workers=2", "--iterations=100000000"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as bench:
            try:
                seen, deadline = {}, time.monotonic() + DEADLINE
                while len(seen) < 3 and time.monotonic() < deadline and bench.poll() is None:
                    children = pathlib.Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split()
                    looks = [tutti("top", "--json", "--once", f"--pid={child}", check=False) for child in children]
                    workers = [json.loads(look.stdout)["ranks"][0]["worker"] for look in looks if not look.returncode]
                    seen = {worker["name"]: worker for worker in workers
                            if worker and (worker["served"] > 10 if worker["name"] == "server" else worker["oldest"])}
            finally:
                bench.kill()
        self.assertEqual(sorted(seen), ["server", "worker1", "worker2"])
        for name in ("worker1", "worker2"):
            self.assertEqual((seen[name]["oldest"]["function"], seen[name]["oldest"]["to"]), ("tutti.bench.take", 0))

    def stacks(self, job):
        """The text of --stacks, by rank."""
        done = tutti("top", "--stacks", str(job.process.pid), check=False)
        if "ptrace_scope" in done.stdout:
            self.skipTest("this machine lets no process look at another one's stack")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        parts = re.split(r"^rank (\d+), pid \d+, ", done.stdout, flags=re.M)
        return dict(zip(map(int, parts[1::2]), parts[2::2]))

    def test_stacks(self):
        with Job("away", 2) as job:
            look = job.top(waits(0, 1))
            for _ in range(2):  # being looked at changes nothing
                seen = self.stacks(job)
                self.assertEqual(sorted(seen), [0, 1, 2])
                for rank in (0, 1):
                    self.assertRegex(seen[rank], r"^runs, in all_reduce\(f32 x 100, max\) at hang\.c:\d+")
                    self.assertRegex(seen[rank], r"(?m)^  thread \d+, hang:\n")
                    self.assertRegex(seen[rank], r"(?m)^    #\d+ +tt_all_reduce_with\b")
                self.assertRegex(seen[2], r"^runs, after all_reduce")
                self.assertNotIn("tt_all_reduce", seen[2].split("\n", 1)[1])
                self.assertRegex(seen[2], r"(?m)^    #\d+ +main( at command/hang\.c:\d+)? \(hang\)$")
            again = job.top(waits(0, 1))
            self.assertEqual([rank["state"] for rank in again["ranks"]], [rank["state"] for rank in look["ranks"]])

    def test_the_stack_of_a_stopped_rank(self):
        with Job("stop", 1) as job:
            stopped = lambda look: look["ranks"][1]["state"] == "stopped"  # noqa: E731
            job.top(lambda look: waits(0, 2)(look) and stopped(look))
            self.assertRegex(self.stacks(job)[1], r"(?m)^    #\d+ +main ")
            job.top(stopped)  # it stays so

    def test_stacks_that_cant_be_seen(self):
        with Job("kill", 1, grace=60, flags=["--settle-period=60"]) as job:
            job.top(lambda look: look["ranks"][1]["state"] == "ended")
            self.assertRegex(self.stacks(job)[1], r"^DEAD: [^\n]*\n*\Z")
        done = tutti("top", "--stacks", "--json", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--stacks and --json", done.stderr)

    def test_ranks_that_wait_in_different_groups(self):
        """They wait for each other, so one of them soon fails, and perhaps all do: each call stays to be seen."""
        with Job("groups", 1, grace=60) as job:
            look = job.top(lambda look: all(rank["call"] for rank in look["ranks"]) and
                           all(look["ranks"][r]["call"]["seq"] > CALLS for r in (0, 2)) and
                           look["ranks"][1]["call"]["op"] == "barrier")
            groups = [rank["call"]["group"] for rank in look["ranks"]]
            self.assertEqual(groups, ["0-2", "0-1", "0-2"])

    def test_a_dead_rank(self):
        """The others have the grace period, which they use: long enough to look."""
        with Job("kill", 0, grace=60) as job:
            look = job.top(lambda look: look["ranks"][0]["state"] == "ended")
            self.assertEqual(look["ranks"][0]["end"], "signal 9 (SIGKILL)")
            self.assertTrue(look["ranks"][0]["joined"])
            self.assertEqual(look["ranks"][0]["call"]["op"], "all_reduce")

    def test_who_comes_late(self):
        with Job("late", 1, calls=200) as job:
            look = job.top(waits(0, 2, after=400))
            group = look["groups"][0]
            self.assertEqual((group["ranks"], group["last_rank"]), ("0-2", 1))
            self.assertGreater(group["last_count"],
                               100)  # who loses the CPU for longer than rank 1 is late is the last, and rightly named
            self.assertGreater(group["late_usec"], 200)
            job.says(r"group 0-2: rank 1 came last in \d+ of the last \d+ calls")

    def test_a_process_without_launcher(self):
        with Job("away", 1) as job:
            look = job.top(waits(0, 2))
            pid = str(look["ranks"][0]["pid"])
            other = json.loads(tutti("top", "--json", "--once", "--pid", pid).stdout)
            self.assertEqual([rank["pid"] for rank in other["ranks"]], [rank["pid"] for rank in look["ranks"]])
            self.assertEqual([rank["call"]["seq"] for rank in other["ranks"]],
                             [rank["call"]["seq"] for rank in look["ranks"]])
            self.assertEqual(other["program"], "hang")
        done = tutti("top", "--once", "--pid", str(os.getpid()), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("shares no memory", done.stderr)

    def test_which_job(self):
        name = f"job-{os.getpid()}"
        with Job("away", 0, flags=[f"--rdzv-id={name}"]) as job:
            job.top(waits(1, 2))
            job.says("ranks 1-2 wait for rank 0", name)
        done = tutti("top", "--once", "no such job", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such job", done.stderr)

    def test_launchers_that_do_not_answer(self):
        """All are asked at once, in a network of the test's own: each costs the same three seconds."""
        ask = ("import os, socket, subprocess, sys\n"
               "silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(12)]\n"
               "for i, s in enumerate(silent):\n"
               "    s.bind(f'\\0tutti-job/{1000 + i}/silent')\n"
               "    s.listen()\n"
               "sys.exit(subprocess.run([os.environ['TUTTI'], 'top', '--once', *sys.argv[1:]]).returncode)\n")
        began = time.monotonic()
        done = subprocess.run(["unshare", "-rn", sys.executable, "-c", ask, "no-such"], capture_output=True, text=True,
                              timeout=DEADLINE)
        if "unshare" in done.stderr:
            self.skipTest("no network of its own can be made here")
        self.assertEqual(done.returncode, 1)
        self.assertIn('there is no job "no-such"', done.stderr)
        self.assertIn("\n  1000  does not answer\n", done.stderr)
        self.assertLess(time.monotonic() - began, 30)  # one after the other, and twice, they took 72

    def test_a_standalone_job_says_its_id(self):
        with Job("away", 0, flags=["--standalone", "--rdzv-id=mine"]) as job:
            job.top(waits(1, 2))
            for line in job.process.stderr:
                if said := re.search(r"--standalone makes its own id, ([0-9a-f-]{36}), .* not used: --rdzv-id=mine$",
                                     line):
                    break
            job.says("ranks 1-2 wait for rank 0", said[1])
            self.assertNotEqual(tutti("top", "--once", "mine", check=False).returncode, 0)

    def test_lines_until_the_job_ends(self):
        with Job("away", 0) as job:
            job.top(waits(1))
            watcher = subprocess.Popen([TUTTI, "top", "--interval=0.05", str(job.process.pid)], stdout=subprocess.PIPE,
                                       text=True)
            for line in watcher.stdout:
                if "wait for rank 0" in line:
                    break
        rest = watcher.stdout.read()
        watcher.stdout.close()
        self.assertEqual(watcher.wait(DEADLINE), 0)
        self.assertIn("the job ended", rest)

    def test_on_a_terminal(self):
        with Job("away", 0) as job:
            job.top(waits(1))
            pid, fd = pty.fork()
            if pid == 0:
                os.execv(TUTTI, [TUTTI, "top", "--interval=0.1", str(job.process.pid)])
            seen = b""
            while seen.count(b"\033[H") < 3:
                seen += os.read(fd, 65536)
            os.write(fd, b"q")
            try:
                while chunk := os.read(fd, 65536):
                    seen += chunk
            except OSError:
                pass
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            os.close(fd)
            self.assertIn(b"\033[?1049h", seen)
            self.assertTrue(seen.rstrip().endswith(b"\033[?25h\033[?1049l"), seen[-40:])

    @staticmethod
    def screen(job, rows, columns, pattern):
        """The first screen of that size that has the pattern; the last one, if none has."""
        pid, fd = pty.fork()
        if pid == 0:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(TUTTI, [TUTTI, "top", "--interval=0.1", str(job.process.pid)], os.environ | {"NO_COLOR": "1"})
        seen, shown, deadline = b"", "", time.monotonic() + DEADLINE
        while time.monotonic() < deadline and not re.search(pattern, shown):
            seen += os.read(fd, 65536)
            screens = seen.split(b"\033[H")
            if len(screens) > 2:
                shown = re.sub(r"\x1b\[\??[0-9]*[A-Za-z]", "", screens[-2].decode()).replace("\r\n", "\n")
        os.write(fd, b"q")
        try:
            while os.read(fd, 65536):
                pass
        except OSError:
            pass
        os.close(fd)
        os.waitpid(pid, 0)
        return shown

    def test_a_small_terminal_has_what_matters(self):
        with Job("away", 0) as job:
            job.top(waits(1, 2))
            for rows, columns, pattern in ((24, 80, r"(?s)^job .*\n\n rank +pid.*\n\nranks 1-2 wait for rank 0"),
                                           (10, 80, r"(?s)^job .*training: .*2/5.*\n rank .*\n +0 runs +after all_red"
                                                    r".*\n +1 runs +in all_reduce.*\n +2 runs +in all_reduce"
                                                    r".*ranks 1-2 wait for rank 0"),
                                           (5, 80, r"(?s)^job .*\nranks 1-2 wait for rank 0.*\n +0 runs +after all_red"
                                                   r".*\n\.\.\. 2 more ranks\n$"),
                                           (3, 60, r"(?s)^ +0 runs +after all_reduce.*\n\.\.\. 2 more ranks\n$")):
                shown = self.screen(job, rows, columns, pattern)
                self.assertRegex(shown, pattern, f"{rows} x {columns}:\n{shown}")
                self.assertLess(shown.count("\n"), rows)
                self.assertLessEqual(max(map(len, shown.split("\n"))), columns, shown)
                self.assertNotIn("more lines", shown)

    def test_progress(self):
        with Job("away", 0) as job:
            is_away = waits(1, 2)  # a look on a busy machine may have read the progress some calls before
            look = job.top(lambda look: is_away(look) and
                           all((rank["progress"] or {}).get("step") == CALLS for rank in look["ranks"]))
            for rank in look["ranks"]:
                told = rank["progress"]
                self.assertEqual([told[key] for key in ("epoch", "epochs", "step", "steps", "loss", "samples")],
                                 [2, 5, CALLS, CALLS, 0.25, 10 * CALLS])
                self.assertGreater(told["samples_per_sec"], 0)
                self.assertGreaterEqual(told["seconds"], 0)
            text = job.says(rf"training: epoch 2/5, step {CALLS}/{CALLS}, loss 0\.25, [0-9.]+[kM]? samples/s")
            self.assertRegex(text, rf"(?m)^ +0 +\d+ +runs .* 2/5 +{CALLS}/{CALLS} +0\.25 +[0-9.]+[kM]? +"
                                   r"after all_reduce")

    def test_lines_fit_the_terminal(self):
        with Job("away", 0) as job:
            job.top(waits(1, 2))
            for columns in (50, 80, 120, 200):
                text = on_terminal([TUTTI, "top", "--once", str(job.process.pid)], columns,
                                   os.environ | {"NO_COLOR": "1"})
                self.assertLessEqual(max(map(len, text.split("\n"))), columns, text)
                words = " ".join(text.split())
                self.assertIn("ranks 1-2 wait for rank 0", words)
                self.assertRegex(words, r"all_reduce\(f32 x 100, max\) at hang\.c:\d+, call \d+ of group 0-2")
                self.assertIn("2/5", words)


class Training(unittest.TestCase):
    def test_where_a_step_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job("", 0)
            job.argv = [TUTTI, "run", "--master-port=0", "--nproc-per-node=2", "--grace-period=0.2",
                        os.environ["TT_BUILD"] + "/examples/gpt_char", "--layers=1", "--width=8", "--heads=1",
                        "--block=8", "--steps=10000000", "--save-every=0", "--eval-every=10000000",
                        f"--checkpoint={folder}/model.safetensors"]
            with job:
                look = job.top(lambda look: all((rank["averaging"] or {"steps": 0})["steps"] > 2
                                                for rank in look["ranks"]))
                for told in (rank["averaging"] for rank in look["ranks"]):
                    self.assertEqual(told["buckets"], 1)
                    self.assertGreater(told["bytes"], 4 * 8 * 8)
                    self.assertGreater(min(told["forward"], told["backward"], told["averaging"]), 0)
                    self.assertLessEqual(told["overlap"], told["averaging"])
                job.says(r"(?m)^gradients: [0-9.e-]+ MB in 1 bucket; forward [0-9.]+ ms, backward [0-9.]+ ms, "
                         r"averaging [0-9.]+ ms, of which [0-9.]+ ms beside backward$")


class Notices(unittest.TestCase):
    """What tutti run says by itself."""

    def test_a_long_wait_is_told_once(self):
        for what in ("away", "slices"):
            with self.subTest(what=what):
                self.wait_long(what)

    def wait_long(self, what):
        with Job(what, 1, flags=["--wait-notice=0.2", "--log-level=info"]) as job:
            look = job.top(waits(0, 2))
            lines, logged = [], set()
            for line in job.process.stderr:
                if line.startswith("tutti run: waiting for"):
                    lines.append(line)
                if said := re.search(r"rank (\d): info: waiting for rank 1: [0-9.]+ s in "
                                     r"all_reduce\(f32 x 100, max\) at "
                                     r"hang\.c:\d+$", line):
                    logged.add(said[1])
                if lines and logged == {"0", "2"}:
                    break
            job.top(lambda look: waits(0, 2)(look) and look["ranks"][0]["waits"]["seconds"] > 2)
            job.process.send_signal(signal.SIGINT)
            rest = job.process.stderr.read()
            pid = look["ranks"][1]["pid"]
            for line in lines:
                self.assertRegex(line, rf"^tutti run: waiting for rank 1 \(host \S+, pid {pid}\): [0-9.]+ s in "
                                 r"all_reduce\(f32 x 100, max\) at hang\.c:\d+, on ranks? [0-2, ]+$")
            self.assertNotIn("waiting for rank 1:", rest.replace("run: waiting", ""))
            self.assertLessEqual(len(lines) + rest.count("tutti run: waiting for"), 2)

    def test_none_where_none_is_asked_for(self):
        with Job("away", 1, flags=["--wait-notice=0"]) as job:
            job.top(lambda look: waits(0, 2)(look) and look["ranks"][0]["waits"]["seconds"] > 1)
            job.process.send_signal(signal.SIGINT)
            self.assertNotIn("waiting for", job.process.stderr.read())

    def follow(self, stdout):
        """What stands on a terminal that is the launcher's stderr."""
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            argv = [TUTTI, "run", "--standalone", "--nproc-per-node=2", HANG, str(CALLS), "until", stop]
            mine, its = pty.openpty()
            ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
            job = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=its, stdout=its if stdout == "terminal" else
                                   subprocess.DEVNULL, env=os.environ | {"TERM": "xterm"})
            os.close(its)
            deadline, seen = time.monotonic() + DEADLINE, b""
            wanted = rb"again" if stdout == "terminal" else rb"(?s)step 1.*again"
            while time.monotonic() < deadline and not re.search(wanted, seen):
                seen += os.read(mine, 65536)
            open(stop, "w", encoding="utf-8").close()
            seen += read_rest(mine)
            self.assertEqual(job.wait(DEADLINE), 0)
            return seen.decode()

    def test_the_training_is_followed_on_a_terminal(self):
        seen = self.follow("elsewhere")
        lines = re.findall(r"\r\033\[K(epoch 2/5, step 1\d*/\d+[^\r\n]*)", seen)
        self.assertTrue(lines, seen)
        self.assertLessEqual(max(map(len, lines)), 39)
        # no number is cut
        self.assertTrue(all(re.search(r"(\d/\d+|loss 0.25|samples/s)$", line) for line in lines), lines)
        self.assertIn("\r\033[K", seen.rsplit("epoch", 1)[1])  # it is removed in the end
        self.assertRegex(seen, r"\r\033\[Kagain\r\n")  # what a rank writes stands on a line of its own
        self.assertNotIn("step", self.follow("terminal"))  # there the program itself writes


class Nodes(unittest.TestCase):
    """Two launchers on one host are two nodes: each shows the ranks of both."""

    def start(self, what, rank, per_node=((), ()), calls=CALLS):
        port = free_port()
        argv = [TUTTI, "run", "--nnodes=2", "--nproc-per-node=2", f"--master-port={port}", "--grace-period=0.2"]
        self.launchers = [subprocess.Popen([*argv, f"--node-rank={node}", *per_node[node], HANG, str(calls), what,
                                            str(rank)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, start_new_session=True)
                          for node in range(2)]

    def end(self, *, ask):
        if ask:
            self.launchers[0].send_signal(signal.SIGINT)
        return [launcher.communicate(timeout=DEADLINE)[1] for launcher in self.launchers]

    def test_each_launcher_shows_all_ranks(self):
        self.start("stop", 3)
        try:
            for launcher in self.launchers:
                job = Job("", 0)
                job.process = launcher
                look = job.top(lambda look: len(look["ranks"]) == 4 and look["ranks"][3]["state"] == "stopped" and
                               waits(0, 1, 2)(look))
                self.assertEqual([rank["node"] for rank in look["ranks"]], [0, 0, 1, 1])
                self.assertEqual({rank["waits"]["for_rank"] for rank in look["ranks"][:3]}, {3})
                job.says(r"ranks 0-2 wait for rank 3, for .*\. Rank 3 is STOPPED")
        finally:
            self.end(ask=True)

    def test_the_run_id_means_one_job(self):
        name = f"nodes-{os.getpid()}"
        self.start("stop", 3, [[f"--rdzv-id={name}"]] * 2)
        try:
            job = Job("", 0)
            job.process = self.launchers[0]
            job.top(lambda look: len(look["ranks"]) == 4 and waits(0, 1, 2)(look))
            job.says("ranks 0-2 wait for rank 3", name)
        finally:
            self.end(ask=True)

    def test_a_trace_has_the_ranks_of_all_nodes(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, f"{node}.json") for node in range(2)]
            self.start("finish", 0, [[f"--trace={path}"] for path in paths], TRACED)
            errors = self.end(ask=False)
            for launcher, path, err in zip(self.launchers, paths, errors):
                self.assertEqual(launcher.returncode, 0, err)
                events, calls = read_trace(self, path, 4)
                self.assertEqual({e["pid"] for e in events["X"]}, {0, 1, 2, 3})
                check_overlap(self, calls, 4)


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "out.json")

    def tearDown(self):
        self.folder.cleanup()

    def read(self, ranks):
        return read_trace(self, self.path, ranks)

    def test_a_hung_job(self):
        with Job("stop", 2, calls=TRACED) as job:
            job.top(waits(0, 1, after=TRACED))
            tutti("trace", str(job.process.pid), "-o", self.path)
            events, calls = self.read(3)
            check_overlap(self, calls, 3)
            open_calls = [s for s in events["X"] if s["args"]["state"] == "under way"]
            self.assertEqual({s["pid"] for s in open_calls}, {0, 1})
            self.assertEqual(open_calls[0]["args"]["bytes"], 400)
            self.assertEqual(open_calls[0]["args"]["dtype"], "f32")
            done = [s for s in events["X"] if s["args"]["state"] == "done"]
            self.assertLessEqual({s["args"].get("algorithm") for s in done}, {"inline", None})
            self.assertRegex(open_calls[0]["args"]["at"], r"^hang\.c:\d+$")
            said = {(e["pid"], e["name"]) for e in events["i"]}
            self.assertLessEqual({(0, "waits for rank 2"), (1, "waits for rank 2"), (2, "STOPPED")}, said)

    def test_arrows_lead_from_the_last(self):
        with Job("late", 0, calls=500) as job:
            job.top(waits(1, 2, after=1000))
            tutti("trace", str(job.process.pid), "-o", self.path)
        events, _ = self.read(3)
        self.assertGreater(len(events["s"]), 400)
        # As above.
        self.assertGreater(sum(e["pid"] == 0 for e in events["s"]), 0.5 * len(events["s"]))

    def test_when_the_job_ends(self):
        job = subprocess.run([TUTTI, "run", "--standalone", "--nproc-per-node=2", f"--trace={self.path}", HANG,
                              str(TRACED), "finish", "0"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(job.returncode, 0, job.stderr)
        _, calls = self.read(2)
        check_overlap(self, calls, 2)

    def test_when_a_rank_is_killed(self):
        job = subprocess.run([TUTTI, "run", "--standalone", "--nproc-per-node=3", "--grace-period=0.2",
                              f"--trace={self.path}", HANG,
                              str(TRACED), "kill", "1"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(job.returncode, 137, job.stderr)
        events, calls = self.read(3)
        check_overlap(self, calls, 3)
        self.assertIn((1, "DEAD: signal 9 (SIGKILL)"), {(e["pid"], e["name"]) for e in events["i"]})
        self.assertTrue({"failed"} <= {s["args"]["state"] for s in events["X"] if s["pid"] != 1})

    def test_a_file_that_cannot_be_written(self):
        job = subprocess.run([TUTTI, "run", "--standalone", "--no-python", "--trace=/nowhere/at/all", "echo", "ran"],
                             capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual((job.returncode, job.stdout), (1, ""), "told before anything runs")
        self.assertIn("/nowhere/at/all", job.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
