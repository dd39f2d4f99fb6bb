#!/usr/bin/env python3
"""Signals to a job's launchers and workers on several nodes, at moments that are held still: processes are frozen while
others are told, killed or lost, so that what storms meet by chance (test_storm_signals.py) happens each time."""
import os
import pathlib
import queue
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
TRAINER = os.path.join(os.environ["TT_PROGRAMS"], "audited_trainer")
WORKER = [os.path.join(os.environ["TT_PROGRAMS"], "test_elastic"), "worker"]
# Who waits for one of these, wrongly, waits too long for a test.
LONG = 10 * DEADLINE


def look(task):
    """State, parent."""
    words = pathlib.Path(task, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return words[0], int(words[1])


def wait_for_state(task, state):
    until = time.monotonic() + DEADLINE
    while look(task)[0] != state:
        if time.monotonic() > until:
            raise AssertionError(f"{task} is in state {look(task)[0]}, not {state}")
        time.sleep(0.001)


def freeze(pid):
    """Stop it, and wait until all of its threads have."""
    os.kill(pid, signal.SIGSTOP)
    for task in list(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        wait_for_state(task, "T")


def wait_until_gone(pids):
    until = time.monotonic() + DEADLINE
    while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            raise AssertionError(f"of {list(pids)} some are still there")
        time.sleep(0.001)


class Launcher:
    """One launcher with two ranks."""

    def __init__(self, folder, program, *flags, **how):
        argv = [TUTTI, "run", "--nproc-per-node=2", f"--grace-period={LONG}", *flags, *program]
        # The search for leaks at the end of a process waits forever if it is continued (SIGCONT) as that stops it.
        leaks = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        env = dict(os.environ, ASAN_OPTIONS=leaks, E_EPOCHS="1000000", E_QUIET="1", E_PACE_MS="1", OMP_NUM_THREADS="1",
                   TT_LOG="debug")
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=folder, env=env,
                                        stderr=subprocess.PIPE, text=True, **(how or {"process_group": 0}))
        self.said, self.lines = [], queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.said.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def wait_for(self, pattern):
        """Read on until a line matches."""
        while True:
            try:
                line = self.lines.get(timeout=DEADLINE)
            except queue.Empty as empty:
                raise AssertionError(f"no {pattern}: {''.join(self.said)}") from empty
            if line is None:
                raise AssertionError(f"it ended before {pattern}: {''.join(self.said)}")
            if match := re.search(pattern, line):
                return match

    def workers(self):
        """{rank: pid} of those that it starts next."""
        found = {}
        while len(found) < 2:
            match = self.wait_for(r"rank (\d+) is process (\d+)$")
            found[int(match[1])] = int(match[2])
        return found

    def signal(self, sig):
        self.process.send_signal(sig)

    def end(self):
        """Its exit code, and what it has said."""
        try:
            code = self.process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"it does not end: {''.join(self.said)}") from expired
        self.reader.join()
        self.process.stderr.close()
        return code, "".join(self.said)


class Signals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.launchers, self.place = [], f"--rdzv-endpoint=127.0.0.1:{free_port()}"

    def tearDown(self):
        for launcher in self.launchers:
            if launcher.process.poll() is None:
                launcher.signal(signal.SIGCONT)
                launcher.signal(signal.SIGKILL)
                launcher.end()
        self.folder.cleanup()

    def start(self, *flags, program=(*WORKER, "elastic"), nnodes="1:2", conf="last_call_timeout=0.3"):
        where = ["--rdzv-backend=c10d", f"--nnodes={nnodes}", self.place,
                 f"--rdzv-conf=heartbeat={LONG},timeout={DEADLINE},{conf}"]
        self.launchers.append(Launcher(self.folder.name, program, *where, *flags))
        return self.launchers[-1]

    def wait_for_steps(self, round_number, ranks):
        """Wait until all of the ranks have trained in the round (each line of the file: commit, round, rank)."""
        path, until, seen = pathlib.Path(self.folder.name, "audit"), time.monotonic() + DEADLINE, set()
        while seen != set(ranks):
            self.assertLess(time.monotonic(), until, f"ranks {seen} of {ranks} train in round {round_number}: " +
                            "".join("".join(launcher.said) for launcher in self.launchers))
            time.sleep(0.01)
            lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
            words = [line.split() for line in lines]
            seen = {int(w[2]) for w in words if len(w) > 3 and int(w[1]) == round_number and int(w[2]) in ranks}

    def start_two(self, *flags):
        """Two launchers in round 1 of a job that recovers; {rank: pid}."""
        first = self.start(*flags, conf="last_call_timeout=1000")
        workers = {}
        second = self.start(*flags, conf="last_call_timeout=1000")
        first.wait_for("begins on 2 nodes")
        second.wait_for("begins on 2 nodes")
        for launcher in (first, second):
            workers.update(launcher.workers())
        if 0 not in workers or 3 not in workers:
            self.fail(f"ranks {workers}")
        self.wait_for_steps(0, range(4))
        return (first, second, workers) if "serving the store" in "".join(first.said) else (second, first, workers)

    def test_a_failure_that_is_heard_of_late(self):
        """Ranks that survive wait for another round before their launcher hears that none follows: they are not given
        the grace period for that."""
        first, second, workers = self.start_two("--max-restarts=0")
        freeze(workers[1])  # so that not all of its node wait
        freeze(second.process.pid)
        os.kill(workers[3], signal.SIGQUIT)
        first.wait_for("ranks here wait for another round")
        first.wait_for("waiting for rank 1 to come to the next round; who has not in [0-9]+ s is killed")
        second.signal(signal.SIGCONT)
        for launcher in (first, second):
            code, said = launcher.end()
            self.assertEqual(code, 128 + signal.SIGQUIT, said)
            self.assertIn("rank 3 failed first: killed by SIGQUIT", said)

    def test_ranks_that_were_kept_for_nothing(self):
        """Those of another node wait for a round before their launcher hears that none follows: it ends them, and
        misses nobody who is done before."""
        first, second, workers = self.start_two("--max-restarts=0")
        freeze(first.process.pid)
        os.kill(workers[0], signal.SIGINT)
        second.wait_for("nothing is left here of attempt 1 but ranks that go on")
        first.signal(signal.SIGCONT)
        for launcher in (first, second):
            code, said = launcher.end()
            self.assertEqual(code, 128 + signal.SIGINT, said)
            self.assertIn("rank 0 failed first: killed by SIGINT", said)
            self.assertNotIn("is lost", said)

    def test_a_node_that_leaves_after_its_ranks(self):
        """Its ranks are seen to end, and those of the others wait for another round, before it says that it leaves:
        that is no failure."""
        first, second, workers = self.start_two("--max-restarts=0")
        freeze(second.process.pid)
        second.signal(signal.SIGTERM)
        for rank in (2, 3):
            os.kill(workers[rank], signal.SIGKILL)
        first.wait_for("nothing is left here of attempt 1 but ranks that go on")
        second.signal(signal.SIGCONT)
        self.assertEqual(second.end()[0], 128 + signal.SIGTERM)
        first.wait_for("round 2 begins on 1 node, with 2 ranks")
        self.wait_for_steps(1, range(2))
        self.end_job(first)

    def freeze_as_ranks_look_for_the_store(self, heartbeat):
        """Two launchers, of which the first, who serves the store, is frozen before the ranks of both join."""
        gate = os.path.join(self.folder.name, "gate")
        os.mkfifo(gate)
        program = ("sh", "-c", f"read line < {gate}; exec {' '.join(WORKER)} elastic")
        first = self.start("--max-restarts=3", program=program, conf=f"last_call_timeout=1000,heartbeat={heartbeat}")
        first.wait_for("serving the store")
        second = self.start("--max-restarts=3", program=program, conf=f"last_call_timeout=0.3,heartbeat={heartbeat}")
        for launcher in (first, second):
            launcher.wait_for("begins on 2 nodes")
            launcher.workers()
        freeze(first.process.pid)
        with open(os.open(gate, os.O_RDWR), "wb", buffering=0) as opened:
            opened.write(b"\n\n\n\n")
            for _ in range(2):
                second.wait_for("connecting to the store")
        return first, second

    def test_a_launcher_is_killed_as_ranks_look_for_its_store(self):
        """Those of the other node hear from their own launcher that another round follows."""
        first, second = self.freeze_as_ranks_look_for_the_store(heartbeat=LONG)
        first.signal(signal.SIGKILL)
        first.end()
        second.wait_for("round 2 begins on 1 node, with 2 ranks")
        self.wait_for_steps(1, range(2))
        self.end_job(second)

    def test_a_launcher_is_frozen_as_ranks_look_for_its_store(self):
        """They do not go on waiting for its answer when it counts as lost."""
        heartbeat = 15 if os.environ.get("TT_SANITIZED") else 5  # less than all waits, more than ranks take to begin
        first, second = self.freeze_as_ranks_look_for_the_store(heartbeat)
        second.wait_for(r"node 0 \(.*\) is lost")
        second.wait_for("nothing is left here of attempt 1 but ranks that go on")
        second.signal(signal.SIGTERM)
        code, said = second.end()
        self.assertEqual(code, 128 + signal.SIGTERM, said)

    def end_job(self, *launchers):
        """All agree to stop."""
        launchers[0].signal(signal.SIGTERM)
        for launcher in launchers:
            code, said = launcher.end()
            self.assertEqual(code, 128 + signal.SIGTERM, said)
            self.assertNotIn("failed first", said)

    def test_a_node_that_goes_before_its_ranks_join(self):
        """Those of the others wait for them in a later round than the first, whose keys have its number."""
        for sig in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=sig.name):
                first = self.start("--max-restarts=3")
                first.wait_for("round 1 begins on 1 node")
                self.wait_for_steps(0, range(2))
                second = self.start("--max-restarts=3", program=("sleep", str(LONG)))
                second.wait_for("round 2 begins on 2 nodes, with 4 ranks")
                second.workers()
                second.signal(sig)
                first.wait_for("round 3 begins on 1 node")
                self.wait_for_steps(2, range(2))
                self.assertEqual(second.end()[0], -sig if sig == signal.SIGKILL else 128 + sig)
                self.end_job(first)
                pathlib.Path(self.folder.name, "audit").unlink()
                self.place = f"--rdzv-endpoint=127.0.0.1:{free_port()}"

    def test_workers_that_end_well_as_a_node_comes(self):
        """They have when their launcher hears of the newcomer, before it hears of them: the round is not run again."""
        gate = os.path.join(self.folder.name, "gate")
        os.mkfifo(gate)
        first = self.start(program=("sh", "-c", f"read line < {gate}"))
        workers = first.workers()
        keeper = look(f"/proc/{workers[0]}")[1]
        freeze(keeper)
        with open(os.open(gate, os.O_RDWR), "wb", buffering=0) as opened:
            opened.write(b"\n\n")
            for pid in workers.values():
                wait_for_state(f"/proc/{pid}", "Z")
        second = self.start(program=("sh", "-c", f"read line < {gate}"))
        first.wait_for("joins: ending the workers here")
        os.kill(keeper, signal.SIGCONT)
        for launcher in (first, second):
            code, said = launcher.end()
            self.assertEqual(code, 0, said)
            self.assertNotIn("round 2", said)
        self.assertIn("this node was not needed", said)

    def test_a_rank_that_fails_as_its_store_is_lost(self):
        """It may have failed for that, though it does not say so: it is not said to be the first."""
        gate, port = os.path.join(self.folder.name, "gate"), free_port()
        os.mkfifo(gate)
        programs = ("sleep", str(LONG)), ("sh", "-c", f"read line < {gate}; exit 3")
        for node in range(2):
            self.launchers.append(Launcher(self.folder.name, programs[node], "--nnodes=2", f"--node-rank={node}",
                                           "--master-addr=127.0.0.1", f"--master-port={port}",
                                           f"--settle-period={LONG}", f"--rdzv-conf=heartbeat={LONG}"))
        self.launchers[1].workers()
        self.launchers[0].signal(signal.SIGKILL)
        self.launchers[0].end()
        with open(os.open(gate, os.O_RDWR), "wb", buffering=0) as opened:
            opened.write(b"\n\n")
            code, said = self.launchers[1].end()
        self.assertEqual(code, 3, said)
        self.assertRegex(said, r"node 0 \(.*\) is lost: ")
        self.assertRegex(said, r"rank [23] failed, perhaps because of that: exit code 3")

    def test_a_trainer_that_loses_a_rank_before_it_has_its_state(self):
        """examples/mnist_trainer.c goes on in the group of the round that followed. Rank 1 has joined, and stops
        itself."""
        data = os.path.join(self.folder.name, "data")
        subprocess.run([TUTTI, "data", "digits", data, "--train", "256", "--test", "64"], check=True,
                       stdout=subprocess.DEVNULL)
        script = (f"test $RANK = 1 && mkdir stopped && export A_STOPS=1; "
                  f"exec {TRAINER} --elastic --epochs=1 --data={data}")
        launcher = Launcher(self.folder.name, ("sh", "-c", script), "--max-restarts=1")
        self.launchers.append(launcher)
        workers = launcher.workers()
        wait_for_state(f"/proc/{workers[1]}", "T")
        os.kill(workers[1], signal.SIGKILL)
        code, said = launcher.end()
        self.assertEqual(code, 0, said)
        self.assertIn("rank 0: info: now rank 0 of 2", said)

    def test_a_frozen_launcher_in_a_session_of_its_own(self):
        """Its workers end meanwhile, which reaches no process group of its session: each leads one of its own."""
        launcher = Launcher(self.folder.name, ("sleep", str(LONG)), start_new_session=True)
        self.launchers.append(launcher)
        workers = launcher.workers()
        freeze(launcher.process.pid)
        for rank in (1, 0):
            os.kill(workers[rank], signal.SIGKILL)
        wait_for_state(f"/proc/{launcher.process.pid}", "T")
        os.kill(launcher.process.pid, signal.SIGCONT)
        code, said = launcher.end()
        self.assertEqual(code, 128 + signal.SIGKILL, said)
        self.assertIn("failed first: killed by SIGKILL", said)
        self.assertNotIn("SIGHUP", said)

    def test_a_keeper_that_is_killed_before_it_starts_the_next_attempt(self):
        """The error files of the last attempt are still there: they are no reports of this one's workers."""
        launcher = Launcher(self.folder.name, (*WORKER, "plain"), "--max-restarts=1")
        self.launchers.append(launcher)
        workers = launcher.workers()
        self.wait_for_steps(0, range(2))
        keeper = look(f"/proc/{workers[0]}")[1]
        freeze(launcher.process.pid)
        os.kill(workers[0], signal.SIGKILL)
        wait_until_gone(workers.values())
        wait_for_state(f"/proc/{keeper}", "S")  # it has told the launcher
        freeze(keeper)
        second = int(time.time())
        while int(time.time()) == second:  # a report of an earlier second would be older than any signal to its worker
            time.sleep(0.01)
        launcher.signal(signal.SIGCONT)
        launcher.wait_for("starting again")
        os.kill(keeper, signal.SIGKILL)
        code, said = launcher.end()
        self.assertEqual(code, 1, said)
        of_keeper = said[said.index("the keeper process"):]
        self.assertNotIn("another rank", of_keeper)
        self.assertNotIn("its message", of_keeper)

    def test_ranks_that_notice_a_signal_to_another_node(self):
        """They fail because of that node's ranks before they are told: it was the signal that ended the job."""
        for sig in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=sig.name):
                port = free_port()
                launchers = [Launcher(self.folder.name, (*WORKER, "plain"), "--nnodes=2", f"--node-rank={node}",
                                      "--master-addr=127.0.0.1", f"--master-port={port}",
                                      f"--rdzv-conf=heartbeat={LONG}") for node in range(2)]
                self.launchers += launchers
                workers = {**launchers[0].workers(), **launchers[1].workers()}
                self.wait_for_steps(0, range(4))
                freeze(launchers[1].process.pid)
                launchers[1].signal(sig)
                for rank in (2, 3):
                    os.kill(workers[rank], sig)
                launchers[0].wait_for("nothing is left here of attempt 1")
                launchers[1].signal(signal.SIGCONT)
                for launcher in launchers:
                    code, said = launcher.end()
                    self.assertEqual(code, 128 + sig, said)
                    self.assertNotIn("failed because of another rank", said)
                pathlib.Path(self.folder.name, "audit").unlink()


if __name__ == "__main__":
    unittest.main(verbosity=1)
