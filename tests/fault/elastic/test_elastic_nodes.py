#!/usr/bin/env python3
"""tutti run --nnodes=MIN:MAX and --rdzv-backend=c10d, here several launchers on one host: nodes without numbers find
each other, come, go, are lost, frozen, cut off and replaced, and the job goes on with those that are there."""
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
SAY = 'echo "restarts $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE node $GROUP_RANK of $GROUP_WORLD_SIZE"; '
FOREVER = "exec sleep 1000"
SURVIVE = "exec " + os.path.join(os.environ["TT_PROGRAMS"], "reduce_forever") + " 60000 elastic"


class Launcher:
    """A launcher; end of file on its output: nothing of it is left."""

    def __init__(self, port, script, *flags, nnodes="1:4", conf="last_call_timeout=0.3,heartbeat=2,timeout=60"):
        argv = [TUTTI, "run", f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                f"--rdzv-conf={conf}", "--grace-period=2", *flags, "sh", "-c", script]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, process_group=0)
        self.err, self.out_lines, self.err_lines = [], queue.Queue(), queue.Queue()
        self.readers = [threading.Thread(target=self.read, args=how) for how in
                        ((self.process.stdout, self.out_lines), (self.process.stderr, self.err_lines))]
        for reader in self.readers:
            reader.start()

    def read(self, stream, lines):
        for line in stream:
            if lines is self.err_lines:
                self.err.append(line)
            lines.put(line)
        lines.put(None)

    def read_until(self, lines, pattern):
        while True:
            try:
                line = lines.get(timeout=DEADLINE)
            except queue.Empty as empty:
                raise AssertionError(f"no {pattern}: {''.join(self.err)}") from empty
            if line is None:
                raise AssertionError(f"it ended before {pattern}: {''.join(self.err)}")
            if re.search(pattern, line):
                return line

    def wait_for(self, pattern):
        """Read on, from its stderr, until a line matches."""
        return self.read_until(self.err_lines, pattern)

    def wait_for_world(self, nodes, restarts=0):
        """Read on, from its stdout, until ranks have begun on so many nodes."""
        return self.read_until(self.out_lines, rf"restarts {restarts} rank \d+ of \d+ node \d+ of {nodes}$")

    def has_said(self, pattern):
        """Wait until its stderr has a line that matches, also one before those that were waited for: a worker's line on
        stdout can be here before what the launcher said earlier."""
        deadline = time.monotonic() + DEADLINE
        while not re.search(pattern, "".join(self.err)):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern}: {''.join(self.err)}")
            time.sleep(0.01)

    def end(self, sig=None):
        if sig:
            self.process.send_signal(sig)
        try:
            code = self.process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"it does not end: {''.join(self.err)}") from expired
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, "".join(self.err)


class Elastic(unittest.TestCase):
    def setUp(self):
        self.port, self.launchers = free_port(), []

    def tearDown(self):
        for launcher in self.launchers:
            if launcher.process.poll() is None:
                launcher.process.send_signal(signal.SIGCONT)
                launcher.end(signal.SIGKILL)

    def start(self, *flags, script=SAY + FOREVER, **how):
        self.launchers.append(Launcher(self.port, script, *flags, **how))
        return self.launchers[-1]

    def start_two(self, *flags, **how):
        """The first serves the store."""
        first = self.start(*flags, **how)
        first.wait_for_world(1)
        second = self.start(*flags, **how)
        for launcher in (first, second):
            launcher.wait_for_world(2)
        return first, second

    def end_all(self, first, *others):
        """The first one ends them all."""
        self.assertEqual(first.end(signal.SIGTERM)[0], 143)
        for other in others:
            other.end()

    def test_nodes_without_numbers_find_each_other(self):
        launchers = [self.start("--nproc-per-node=2", nnodes="3", script=SAY) for _ in range(3)]
        said = []
        for launcher in launchers:
            said += [launcher.wait_for_world(3) for _ in range(2)]
        self.assertEqual(sorted(said), [f"restarts 0 rank {rank} of 6 node {rank // 2} of 3\n" for rank in range(6)])
        for launcher in launchers:
            code, err = launcher.end()
            self.assertEqual(code, 0, err)

    def test_a_job_grows(self):
        first, second = self.start_two()
        first.has_said("joins: ending the workers here")
        third = self.start()
        for launcher in (first, second, third):
            launcher.wait_for_world(3)
        self.end_all(first, second, third)

    def test_nodes_come_one_after_the_other(self):
        launchers = []
        for n in range(1, 5):
            launchers.append(self.start())
            for launcher in launchers:
                launcher.wait_for_world(n)
        self.end_all(*launchers)

    def test_a_spare_outlives_who_serves_the_store(self):
        first = self.start(nnodes="1:2")
        first.wait_for_world(1)
        second = self.start(nnodes="1:2")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        spare = self.start(nnodes="1:2")
        spare.wait_for("all 2 places are taken")
        first.end(signal.SIGKILL)
        for launcher in (second, spare):
            launcher.wait_for("looking for the job again")
            launcher.wait_for_world(2)
        serves = second if self.serves(second) else spare
        self.end_all(serves, *({second, spare} - {serves}))

    def test_too_few_are_left(self):
        """The job ends on all nodes that are left, though some of them don't serve the store."""
        conf = "last_call_timeout=0.3,heartbeat=2,timeout=3"
        launchers = [self.start(nnodes="3:4", conf=conf)]
        launchers[0].wait_for("OMP_NUM_THREADS")
        launchers += [self.start(nnodes="3:4", conf=conf) for _ in range(2)]
        for launcher in launchers:
            launcher.wait_for_world(3)
        lost = next(launcher for launcher in launchers if not self.serves(launcher))
        lost.end(signal.SIGKILL)
        for launcher in launchers:
            if launcher is not lost:
                code, err = launcher.end()
                self.assertNotEqual(code, 0, err)
                self.assertIn("not all of 3 nodes came within 3 s", err)

    def test_a_node_may_leave(self):
        first, second = self.start_two()
        code, err = second.end(signal.SIGTERM)
        self.assertEqual(code, 143, err)
        first.wait_for(r"node 1 \(.*\) leaves \(SIGTERM\)")
        first.wait_for_world(1)
        self.end_all(first)

    def test_a_node_that_is_killed_is_done_without(self):
        first, second = self.start_two()
        second.end(signal.SIGKILL)
        first.wait_for(r"node 1 \(.*\) is lost: its launcher has ended")
        first.wait_for_world(1)
        self.end_all(first)

    def test_a_node_that_was_frozen_comes_back(self):
        first, second = self.start_two()
        second.process.send_signal(signal.SIGSTOP)
        first.wait_for(r"node 1 \(.*\) is lost: its launcher has been silent for")
        first.wait_for_world(1)
        second.process.send_signal(signal.SIGCONT)
        second.wait_for("looking for the job again")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        self.end_all(first, second)

    def test_a_node_that_looks_for_the_job_ends_when_it_is_told_to(self):
        """Its rank survives the loss of the others. It is in no round, so it waits for nobody."""
        conf = "heartbeat=2,timeout=60,rejoin=1000"
        first = self.start("--max-restarts=3", nnodes="2", conf=conf, script=SURVIVE)
        first.wait_for("OMP_NUM_THREADS")
        second = self.start("--max-restarts=3", nnodes="2", conf=conf + ",is_host=false", script=SURVIVE)
        second.read_until(second.out_lines, "is pid")
        first.end(signal.SIGKILL)
        second.wait_for("looking for the job again")
        second.wait_for("waiting for the launcher that serves the store")
        code, err = second.end(signal.SIGTERM)
        self.assertEqual(code, 143, err)
        self.assertIn("ending 1 worker", err)

    def test_who_serves_the_store_may_be_replaced(self):
        first, second = self.start_two("--max-restarts=3")
        first.end(signal.SIGKILL)
        second.wait_for(r"node 0 \(.*\) is lost")
        second.wait_for("looking for the job again")
        second.wait_for_world(1)  # it has the address itself
        third = self.start("--max-restarts=3")
        for launcher in (second, third):
            launcher.wait_for_world(2)
        attempts = re.findall(r"attempt (\d+) begins", "".join(second.err))
        self.assertEqual(attempts, sorted(set(attempts)))
        self.end_all(second, third)

    def test_too_few_nodes_wait_for_others(self):
        first = self.start(nnodes="2:3")
        first.wait_for("waiting for other nodes: 1 of at least 2 is here")
        second = self.start(nnodes="2:3")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        second.end(signal.SIGKILL)
        first.wait_for("waiting for other nodes: 1 of at least 2 is here")
        third = self.start(nnodes="2:3")
        for launcher in (first, third):
            launcher.wait_for_world(2)
        self.end_all(first, third)

    def test_too_few_nodes_give_up(self):
        first, second = self.start_two(conf="last_call_timeout=0.3,timeout=2", nnodes="1:2")
        self.end_all(first, second)
        self.setUp()
        alone = self.start(conf="timeout=1", nnodes="2:3")
        code, err = alone.end()
        self.assertEqual(code, 1)
        self.assertIn("not all of 2 nodes came within 1 s: waiting for other nodes: 1 of at least 2 is here", err)

    def test_a_spare_takes_the_place_of_a_lost_node(self):
        """A fixed number of nodes: the loss of one is a failure."""
        first = self.start("--max-restarts=1", nnodes="2")
        second = self.start("--max-restarts=1", nnodes="2")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        spare = self.start("--max-restarts=1", nnodes="2")
        spare.wait_for("all 2 places are taken: waiting for one to become free")
        serves = first if "has no secret" in "".join(first.err) and self.serves(first) else second
        other = second if serves is first else first
        other.end(signal.SIGKILL)
        for launcher in (serves, spare):
            launcher.wait_for_world(2, restarts=1)
        spare.end(signal.SIGKILL)
        code, err = serves.end()
        self.assertEqual(code, 1, err)
        self.assertIn("is lost: its launcher has ended", err)

    def serves(self, launcher):
        """Does it listen at the endpoint?"""
        listening = subprocess.run(["ss", "-Hltnp", f"sport = :{self.port}"], capture_output=True, text=True,
                                   check=True).stdout
        return f"pid={launcher.process.pid}," in listening

    def test_a_spare_that_was_not_needed_ends_well(self):
        go = f"/tmp/tutti-go-{os.getpid()}"
        pathlib.Path(go).unlink(missing_ok=True)
        script = SAY + f"until [ -e {go} ]; do sleep 0.05; done"
        first = self.start(nnodes="1:1", script=script)  # one node: no one else can join it
        first.wait_for_world(1)
        pathlib.Path(go).touch()
        self.assertEqual(first.end()[0], 0)
        pathlib.Path(go).unlink()
        first = self.start(nnodes="2", script=script)
        second = self.start(nnodes="2", script=script)
        for launcher in (first, second):
            launcher.wait_for_world(2)
        spare = self.start(nnodes="2", script=script)
        spare.wait_for("places are taken")
        pathlib.Path(go).touch()
        for launcher in (first, second, spare):
            code, err = launcher.end()
            self.assertEqual(code, 0, err)
        self.assertIn("the job has ended: this node was not needed", err)
        pathlib.Path(go).unlink()

    def test_failures_count_and_changes_do_not(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        said = f"{folder.name}/$TORCHELASTIC_RESTART_COUNT"  # by rank 0, which a failure ends at any time
        fails = SAY + (f"test $WORLD_SIZE = 1 && {FOREVER}; test $RANK = 1 || {{ : > {said}; {FOREVER}; }}; "
                       f"until test -e {said}; do sleep 0.01; done; exit 7")
        first = self.start("--max-restarts=2", script=fails)
        first.wait_for_world(1)
        second = self.start("--max-restarts=2", script=fails)
        for restarts in range(3):
            first.wait_for_world(2, restarts)
        for launcher in (first, second):
            code, err = launcher.end()
            self.assertEqual(code, 7, err)
            self.assertRegex(err, r"rank 1 failed first: exit code 7")
        self.assertEqual(err.count("starting again"), 2)

    def test_nobody_joins_a_job_that_is_ending(self):
        """A rank that has ended well can't be asked to train with more."""
        first = self.start("--nproc-per-node=2", script=SAY + f"test $RANK = 0 || {FOREVER}")
        first.wait_for_world(1)
        second = self.start("--nproc-per-node=2", script=SAY + FOREVER)
        second.wait_for("waiting|has no secret|OMP")
        self.assertNotIn("joins", "".join(first.err))
        self.end_all(first)
        second.end(signal.SIGTERM)

    def test_another_job_at_the_same_place(self):
        first, second = self.start_two("--rdzv-id=a")
        other = self.start("--rdzv-id=b")
        code, err = other.end()
        self.assertEqual(code, 1)
        self.assertIn('node 0 belongs to job "a", this one to "b" (--rdzv-id)', err)
        self.assertIsNone(first.process.poll())
        self.assertIsNone(second.process.poll())
        self.end_all(first, second)

    def test_one_without_the_secret(self):
        secret = f"/tmp/tutti-secret-{os.getpid()}"
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write("0123456789abcdef" * 2)
        first = self.start(f"--secret-file={secret}")
        first.wait_for_world(1)
        other = self.start()
        code, err = other.end()
        self.assertEqual(code, 1)
        self.assertIn("has no job secret, but node 0 has one", err)
        second = self.start(f"--secret-file={secret}")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        os.unlink(secret)
        self.end_all(first, second)

    def test_quotes_around_the_settings(self):
        """As PyTorch's tests write them."""
        first = self.start(nnodes="1:2", script=SAY, conf="'join_timeout=5,last_call_timeout=0.2,timeout=5'")
        first.wait_for_world(1)
        self.assertEqual(first.end()[0], 0)

    def test_enough_nodes_begin_although_the_last_call_is_longer(self):
        """They gave up: "not all of 1 nodes came: 1 of at least 1 is here"."""
        first = self.start(nnodes="1:2", script=SAY, conf="timeout=1,last_call_timeout=1000")
        first.wait_for_world(1)
        self.assertEqual(first.end()[0], 0)

    def test_a_program_that_is_missing_on_one_node(self):
        first = self.start()
        first.wait_for_world(1)
        other = subprocess.run([TUTTI, "run", "--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                                "./no-such-program"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(other.returncode, 127)
        first.wait_for("a node is not taken: .*no-such-program")
        self.end_all(first)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    unittest.main(verbosity=1)
