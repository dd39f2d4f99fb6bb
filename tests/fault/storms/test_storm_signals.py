#!/usr/bin/env python3
"""A storm of signals: SIGKILL, SIGTERM, SIGINT, SIGHUP and SIGQUIT to a launcher or a worker at a random moment, while
ranks join, train, save and leave: on one node, on two launchers with numbers, without, and where they may come and go,
with and without --max-restarts, of programs that recover and that don't, and of one that starts its ranks itself. Never
a process is left, and exit codes and reports say what came first. TT_STORM_CASES, TT_STORM_SEED and TT_STORM_ONLY as in
tests/support/storm.h; TT_STORM_PARALLEL: how many are played at a time."""
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
CASES = int(os.environ.get("TT_STORM_CASES") or ("6" if "TT_SANITIZED" in os.environ else "10"))
SEED = int(os.environ.get("TT_STORM_SEED") or random.randrange(1 << 30))
ONLY = os.environ.get("TT_STORM_ONLY")
PARALLEL = int(os.environ.get("TT_STORM_PARALLEL") or "1")
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
TRAINER = os.path.join(os.environ["TT_BUILD"], "examples", "mnist_trainer")
WORKER = os.path.join(os.environ["TT_PROGRAMS"], "test_elastic")
MARK = "TT_STORM_MARK"
PLACES = {"standalone": 1, "static": 2, "c10d": 2, "changing": 2, "spawn": 1}  # how many launchers
# What a launcher says that is left alone before or while it is part of a job.
ALONE = (r"is lost: |ended before all nodes had come|the server closed the connection|(came|come) within|"
         r"was told to end before|writing to the connection|reading from the connection")


def environment(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
        return dict(part.split(b"=", 1) for part in f.read().split(b"\0") if b"=" in part)
    return {}


def marked(mark):
    """{pid: RANK or None} of the processes that carry the mark. A zombie has no environment."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        variables = environment(path.name)
        if variables.get(MARK.encode()) == mark.encode():
            rank = variables.get(b"RANK")
            found[int(path.name)] = int(rank) if rank else None
    return found


def program_of(pid):
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""


def parent_of(pid):
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rpartition(")")[2].split()[1])
    return 0


class Case:
    """What is drawn for a case, and what came of it."""

    def __init__(self, number):
        self.number, self.random = number, random.Random(f"{SEED} {number}")
        draw = self.random
        self.meets = draw.choice(list(PLACES))
        self.nodes = PLACES[self.meets]
        self.restarts = draw.choice([0, 3])
        self.program = draw.choice(["worker", "trainer"]) if self.meets != "spawn" else "worker"
        self.recovers = draw.choice([True, False]) and self.meets != "spawn"
        self.signal = draw.choice(SIGNALS)
        self.whom = draw.choice(["launcher", "worker"])
        self.node = draw.randrange(self.nodes)
        self.moment = draw.uniform(0, 1.15)
        self.told = None  # the pid that got the signal
        self.rank = None  # and its rank, if it was a worker's
        self.took = None  # how long it was undisturbed to its end
        self.said, self.codes = [], []

    def __str__(self):
        return (f"case {self.number} (seed {SEED}): {self.signal.name} to a {self.whom} of node {self.node} of "
                f"{self.nodes} ({self.meets}, {self.restarts} restarts, {self.program}"
                f"{', which recovers' if self.recovers else ''}) after {self.moment:.2f} of its time; told: "
                f"{self.told}, rank {self.rank}")

    def kind(self):
        return self.meets, self.program, self.recovers

    def command(self, data):
        if self.meets == "spawn":
            return [WORKER, "worker", "spawn"]
        if self.program == "worker":
            return [WORKER, "worker", "elastic" if self.recovers else "plain"]
        return [TRAINER, f"--data={data}", *(["--elastic"] if self.recovers else []), "--epochs=4", "--save-every=1"]

    def start(self, folder, data):
        self.mark = f"{SEED}.{self.number}.{os.getpid()}.{time.monotonic_ns()}"
        env = dict(os.environ, E_EPOCHS="6", E_PACE_MS="2", E_QUIET="1", OMP_NUM_THREADS="1", TMPDIR=folder)
        env[MARK] = self.mark
        flags = [f"--grace-period={3 * DEADLINE}", f"--max-restarts={self.restarts}", "--nproc-per-node=2"]
        port = free_port()
        self.launchers, self.logs = [], []
        for node in range(self.nodes):
            c10d = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                    f"--rdzv-conf=last_call_timeout=0.5,heartbeat=3,timeout={DEADLINE / 4}"]
            where = {"standalone": ["--standalone"],
                     "static": ["--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                                f"--master-port={port}", f"--rdzv-conf=timeout={DEADLINE / 4}"],
                     "c10d": ["--nnodes=2", *c10d],
                     "changing": ["--nnodes=1:2", *c10d]}
            start = [] if self.meets == "spawn" else [TUTTI, "run", *flags, *where[self.meets]]
            self.logs.append(pathlib.Path(folder, f"log.{node}"))
            with open(self.logs[-1], "wb") as log:
                self.launchers.append(subprocess.Popen([*start, *self.command(data)], env=env, stdin=subprocess.DEVNULL,
                                                       stdout=log, stderr=log, cwd=folder, start_new_session=True))

    def workers(self):
        """[(pid, rank)] of the node; no rank is known of those that a program has forked."""
        if self.meets == "spawn":
            parent = self.launchers[0].pid
            return [(pid, None) for pid in marked(self.mark) if parent_of(pid) == parent]
        return [(pid, rank) for pid, rank in marked(self.mark).items()
                if rank is not None and rank // 2 == self.node and program_of(pid) != "tutti"]

    def victim(self):
        """A process to be told, once there is one; None: the job was over before."""
        launcher = self.launchers[self.node]
        while launcher.poll() is None:
            if self.whom == "launcher":
                return launcher.pid, None
            workers = sorted(self.workers())
            if workers:
                return self.random.choice(workers)
            time.sleep(0.001)
        return None

    def play(self, usual):
        begun = time.monotonic()
        while time.monotonic() - begun < self.moment * usual and None in [each.poll() for each in self.launchers]:
            time.sleep(0.002)
        found = self.victim()
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], self.signal)
                self.told, self.rank = found
        self.codes = [launcher.wait(DEADLINE) for launcher in self.launchers]
        self.took = time.monotonic() - begun if self.told is None else None
        self.said = [log.read_text(errors="replace") for log in self.logs]

    def leftovers(self):
        """Processes that carry the mark when everything has had time to end."""
        until = time.monotonic() + DEADLINE
        while (left := marked(self.mark)) and time.monotonic() < until:
            time.sleep(0.01)
        return {pid: program_of(pid) for pid in left}

    def end(self):
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.kill()
                launcher.wait()

    # ---- judging

    def wrong(self, folder):
        """What is not as it must be; "" if nothing is."""
        left = self.leftovers()
        if left:
            return f"processes are left: {left}"
        if self.told is None:
            return "" if not any(self.codes) else "nobody was told, but it did not end well"
        if self.program == "trainer" and not any(self.codes) and not os.path.exists(f"{folder}/checkpoint.safetensors"):
            return "it ended well without a checkpoint"
        if self.meets == "spawn":
            return self.wrong_after_parent() if self.whom == "launcher" else self.wrong_after_child()
        return self.wrong_after_launcher() if self.whom == "launcher" else self.wrong_after_worker()

    def wrong_after_parent(self):
        return "" if self.codes[0] in (0, -self.signal) else f"expected 0 or {-self.signal} of the parent"

    def wrong_after_child(self):
        first = f"terminated with signal {self.signal.name} (pid {self.told})"
        if self.codes[0] == 0:
            return ""
        return "" if self.codes[0] == 1 and first in self.said[0] else f"expected 0, or 1 and \"{first}\""

    def wrong_after_worker(self):
        code = 128 + self.signal
        if set(self.codes) == {0}:
            return ""
        if set(self.codes) != {code}:
            return f"expected exit codes 0, or all {code}"
        if self.signal == signal.SIGTERM and self.recovers:  # they have agreed to stop
            return ""
        if self.restarts:
            return "it was not started again"
        first = f"rank {self.rank} failed first: killed by {self.signal.name} "
        return "" if all(first in said for said in self.said) else f"not all say \"{first}\""

    def wrong_after_launcher(self):
        code = 128 + self.signal if self.signal != signal.SIGKILL else -signal.SIGKILL
        if self.codes[self.node] not in (0, code, -self.signal):  # before it takes signals, or after
            return f"expected {code} of the launcher that was told"
        if any("failed first" in said or (code > 0 and "failed because of another" in said) for said in self.said):
            return "a rank is blamed"
        for node, got in enumerate(self.codes):
            if node == self.node or got in (0, code if code > 0 else 0):
                continue
            if got != 1 or not re.search(ALONE, self.said[node]):
                return f"node {node}: expected 0, {code}, or 1 and the reason"
        return ""


class Storm(unittest.TestCase):
    def test_signals(self):
        print(f"TT_STORM_SEED={SEED}", flush=True)
        self.wrong, self.codes, self.lock = [], collections.Counter(), threading.Lock()
        cases = [Case(number) for number in range(CASES) if not ONLY or number == int(ONLY)]
        with tempfile.TemporaryDirectory(prefix="tutti-storm-") as data:
            subprocess.run([TUTTI, "data", "digits", data, "--train", "1500", "--test", "200"], check=True,
                           stdout=subprocess.DEVNULL)
            self.usual = {kind: self.undisturbed(Case(number), data)
                          for kind, number in {case.kind(): case.number for case in cases}.items()}
            players = [threading.Thread(target=self.play_all, args=(iter(cases[i::PARALLEL]), data))
                       for i in range(PARALLEL)]
            for player in players:
                player.start()
            for player in players:
                player.join()
        print(f"{len(cases)} jobs, {len(self.wrong)} of them wrong; {self.codes[True, True]} ended by a signal, "
              f"{self.codes[True, False]} well in spite of it, {self.codes[False, False]} before it", flush=True)
        self.assertEqual(sum(self.codes.values()), len(cases))
        self.assertEqual(self.wrong, [])

    def undisturbed(self, case, data):
        """Seconds that such a job takes."""
        with tempfile.TemporaryDirectory(prefix="tutti-storm-") as folder:
            begun = time.monotonic()
            case.start(folder, data)
            try:
                self.assertEqual([launcher.wait(DEADLINE) for launcher in case.launchers], [0] * case.nodes,
                                 case.logs[0].read_text())
            finally:
                case.end()
            return time.monotonic() - begun

    def play_all(self, cases, data):
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="tutti-storm-") as folder:
                problem = self.play(case, folder, data, self.usual[case.kind()])
            with self.lock:
                self.codes[case.told is not None, any(case.codes)] += 1
                if case.took:  # the load is not what it was
                    self.usual[case.kind()] = min(self.usual[case.kind()], case.took)
                if problem:
                    self.wrong.append(case.number)
                    print(f"{case}: {problem}\nexit codes {case.codes}\n" + "----\n".join(case.said), file=sys.stderr,
                          flush=True)

    @staticmethod
    def play(case, folder, data, usual):
        case.start(folder, data)
        try:
            case.play(usual)
            return case.wrong(folder)
        except subprocess.TimeoutExpired:
            case.codes = [launcher.poll() for launcher in case.launchers]
            case.said = [log.read_text(errors="replace") for log in case.logs]
            return "it does not end"
        finally:
            case.end()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    unittest.main(verbosity=1)
