#!/usr/bin/env python3
"""A storm of signals: SIGKILL, SIGTERM, SIGINT, SIGHUP and SIGQUIT to a launcher or a worker at a random moment, while
ranks join, train, save and leave, on one node and on two launchers, with and without --max-restarts, of programs that
recover. Never a process is left, and exit codes and reports say what came first. TT_STORM_CASES, TT_STORM_SEED and
TT_STORM_ONLY as in tests/support/storm.h."""
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
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
CASES = int(os.environ.get("TT_STORM_CASES") or ("6" if "TT_SANITIZED" in os.environ else "10"))
SEED = int(os.environ.get("TT_STORM_SEED") or random.randrange(1 << 30))
ONLY = os.environ.get("TT_STORM_ONLY")
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
TRAINER = os.path.join(os.environ["TT_BUILD"], "examples", "mnist_trainer")
WORKER = os.path.join(os.environ["TT_PROGRAMS"], "test_elastic")
MARK = "TT_STORM_MARK"
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


class Case:
    """What is drawn for a case, and what came of it."""

    def __init__(self, number):
        self.number, self.random = number, random.Random(f"{SEED} {number}")
        draw = self.random
        self.nodes = draw.choice([1, 2])
        self.restarts = draw.choice([0, 3])
        self.meets = draw.choice(["static", "c10d"]) if self.nodes > 1 else "standalone"
        self.program = draw.choice(["worker", "trainer"])
        self.signal = draw.choice(SIGNALS)
        self.whom = draw.choice(["launcher", "worker"])
        if self.meets == "c10d" and not self.restarts:  # a worker's death there is test_elastic_nodes'
            self.whom = "launcher"
        self.node = draw.randrange(self.nodes)
        self.moment = draw.uniform(0, 1.15)
        self.told = None  # the pid that got the signal
        self.rank = None  # and its rank, if it was a worker's

    def __str__(self):
        return (f"case {self.number} (seed {SEED}): {self.signal.name} to a {self.whom} of node {self.node} of "
                f"{self.nodes} ({self.meets}, {self.restarts} restarts, {self.program}) after {self.moment:.2f} of its "
                f"time; told: {self.told}, rank {self.rank}")

    def command(self, data):
        if self.program == "worker":
            return [WORKER, "worker", "elastic"]
        return [TRAINER, f"--data={data}", "--elastic", "--epochs=4", "--save-every=1"]

    def start(self, folder, data):
        self.mark = f"{SEED}.{self.number}.{os.getpid()}.{time.monotonic_ns()}"
        env = dict(os.environ, E_EPOCHS="6", E_PACE_MS="2", E_QUIET="1", OMP_NUM_THREADS="1", TMPDIR=folder)
        env[MARK] = self.mark
        flags = [f"--grace-period={3 * DEADLINE}", f"--max-restarts={self.restarts}", "--nproc-per-node=2"]
        port = free_port()
        self.launchers, self.logs = [], []
        for node in range(self.nodes):
            where = {"standalone": ["--standalone"],
                     "static": ["--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                                f"--master-port={port}", f"--rdzv-conf=timeout={DEADLINE / 4}"],
                     "c10d": ["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{port}",
                              f"--rdzv-conf=last_call_timeout=0.5,heartbeat=3,timeout={DEADLINE / 4}"]}[self.meets]
            self.logs.append(pathlib.Path(folder, f"log.{node}"))
            with open(self.logs[-1], "wb") as log:
                self.launchers.append(subprocess.Popen([TUTTI, "run", *flags, *where, *self.command(data)], env=env,
                                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                                                       start_new_session=True))

    def victim(self):
        """A process to be told, once there is one; None: the job was over before."""
        launcher = self.launchers[self.node]
        while launcher.poll() is None:
            if self.whom == "launcher":
                return launcher.pid, None
            workers = [(pid, rank) for pid, rank in marked(self.mark).items()
                       if rank is not None and rank // 2 == self.node and program_of(pid) != "tutti"]
            if workers:
                return self.random.choice(sorted(workers))
            time.sleep(0.001)
        return None

    def play(self, usual):
        time.sleep(self.moment * usual)
        found = self.victim()
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], self.signal)
                self.told, self.rank = found
        self.codes = [launcher.wait(DEADLINE) for launcher in self.launchers]
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
        return self.wrong_after_launcher() if self.whom == "launcher" else self.wrong_after_worker()

    def wrong_after_worker(self):
        code = 128 + self.signal
        if set(self.codes) == {0}:
            return ""
        if set(self.codes) != {code}:
            return f"expected exit codes 0, or all {code}"
        if self.signal == signal.SIGTERM:  # they have agreed to stop
            return ""
        if self.restarts:
            return "it was not started again"
        first = f"rank {self.rank} failed first: killed by {self.signal.name} "
        return "" if all(first in said for said in self.said) else f"not all say \"{first}\""

    def wrong_after_launcher(self):
        code = 128 + self.signal if self.signal != signal.SIGKILL else -signal.SIGKILL
        if self.codes[self.node] not in (0, code, -self.signal):  # before it takes signals, or after
            return f"expected {code} of the launcher that was told"
        if any("failed first" in said for said in self.said):
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
        wrong, usual, codes = [], {}, collections.Counter()
        with tempfile.TemporaryDirectory(prefix="tutti-storm-") as data:
            subprocess.run([TUTTI, "data", "digits", data, "--train", "1500", "--test", "200"], check=True,
                           stdout=subprocess.DEVNULL)
            for number in range(CASES):
                case = Case(number)
                kind = (case.nodes, case.meets, case.program)
                if ONLY and number != int(ONLY):
                    continue
                if kind not in usual:
                    usual[kind] = self.undisturbed(Case(number), data)
                with tempfile.TemporaryDirectory(prefix="tutti-storm-") as folder:
                    problem = self.play(case, folder, data, usual[kind])
                codes[case.told is not None, any(case.codes)] += 1
                if problem:
                    wrong.append(number)
                    print(f"{case}: {problem}\nexit codes {case.codes}\n" + "----\n".join(case.said), file=sys.stderr,
                          flush=True)
        print(f"{CASES} jobs, {len(wrong)} of them wrong; {codes[True, True]} ended by a signal, {codes[True, False]} "
              f"well in spite of it, {codes[False, False]} before it", flush=True)
        self.assertEqual(wrong, [])

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

    @staticmethod
    def play(case, folder, data, usual):
        case.said, case.codes = [], []
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
