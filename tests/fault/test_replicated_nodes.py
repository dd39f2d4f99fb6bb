#!/usr/bin/env python3
"""tutti run whose --rdzv-endpoint names three replicas of a store, here all on one host: of the launchers' own, and of
`tutti store`. Launchers and replicas are killed and frozen, and the job goes on."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "fault"))
from patience import DEADLINE, free_port  # noqa: E402
import test_elastic_nodes  # noqa: E402

TUTTI = os.environ["TUTTI"]
FOREVER = test_elastic_nodes.FOREVER
SAY = test_elastic_nodes.SAY
CONF = f"last_call_timeout=0.3,heartbeat={10 if os.environ.get('TT_SANITIZED') else 3},timeout=60"


def three_places():
    """As they follow "127.0.0.1:"."""
    ports = []
    while len(set(ports)) < 3:
        ports = [free_port() for _ in range(3)]
    return ",127.0.0.1:".join(map(str, ports))


class Replica:
    """A `tutti store --replicas`."""

    def __init__(self, places):
        self.process = subprocess.Popen([TUTTI, "store", f"--replicas=127.0.0.1:{places}"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=dict(os.environ, TT_LOG="info"))
        self.said = self.process.stdout.readline()

    def wait_until_in(self):
        for line in self.process.stderr:
            if "holds all of the store" in line:
                return
        raise AssertionError("it has ended")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Replicated(unittest.TestCase):
    def setUp(self):
        self.port, self.launchers, self.replicas = three_places(), [], []

    def tearDown(self):
        test_elastic_nodes.Elastic.tearDown(self)
        for replica in self.replicas:
            replica.end()

    def start(self, *flags, script=SAY + FOREVER, nnodes="2:3", conf=CONF, **how):
        self.launchers.append(test_elastic_nodes.Launcher(self.port, script, f"--rdzv-id={self._testMethodName}",
                                                          *flags, nnodes=nnodes, conf=conf, **how))
        return self.launchers[-1]

    def start_replicas(self):
        for _ in range(3):
            self.replicas.append(Replica(self.port))
        for replica in self.replicas:
            replica.wait_until_in()

    def end_all_in_any_order(self, *launchers):
        """One of them is the coordinator, which ends them all; others leave."""
        for launcher in launchers:
            launcher.process.send_signal(signal.SIGTERM)
        for launcher in launchers:
            launcher.end()

    def begin_anew(self, launchers, nodes):
        """Wait for the next round of each; returns which one is node 0."""
        said = [launcher.wait_for_world(nodes) for launcher in launchers]
        return next(launcher for launcher, line in zip(launchers, said) if " node 0 " in line)


class OwnReplicas(Replicated):
    def test_nodes_without_numbers_find_each_other(self):
        test_elastic_nodes.Elastic.test_nodes_without_numbers_find_each_other(self)

    def test_each_launcher_is_lost_once(self):
        """The one that coordinates is killed, with its replica; another comes in its place, and gets both."""
        with tempfile.TemporaryDirectory() as folder:
            stop = os.path.join(folder, "stop")
            script = SAY + f"while ! test -e {stop}; do sleep 0.1; done"
            alive = [self.start(script=script) for _ in range(3)]
            for _ in range(3):
                first = self.begin_anew(alive, 3)
                alive.remove(first)
                first.end(signal.SIGKILL)
                self.begin_anew(alive, 2)
                os.environ["TT_LOG"] = "info"
                try:
                    alive.append(self.start(script=script))
                finally:
                    del os.environ["TT_LOG"]
                alive[-1].wait_for("holds all of the store")
            self.begin_anew(alive, 3)
            pathlib.Path(stop).touch()
            for launcher in alive:
                code, err = launcher.end()
                self.assertEqual(code, 0, err)

    def test_workers_that_survive_the_coordinator_go_on(self):
        """Their processes stay: tutti/elastic.h."""
        with tempfile.TemporaryDirectory() as folder:
            worker = os.path.join(os.environ["TT_PROGRAMS"], "test_elastic")
            script = (f"echo node $GROUP_RANK of 3; cd {folder}; export E_EPOCHS=20 E_PACE_MS=10 E_QUIET=1; "
                      f"exec {worker} worker elastic")
            launchers = [self.start("--max-restarts=3", script=script, nnodes="2:3") for _ in range(3)]
            said = [launcher.read_until(launcher.out_lines, "^node") for launcher in launchers]
            for rank in range(3):
                self.wait_for_step(folder, rank)
            first = next(launcher for launcher, line in zip(launchers, said) if line.startswith("node 0"))
            first.end(signal.SIGKILL)
            for launcher in launchers:
                if launcher is first:
                    continue
                launcher.wait_for("looking for the job again in the replicated store")
                launcher.wait_for("round [0-9]+ begins on 2 nodes")
                code, err = launcher.end()
                self.assertEqual(code, 0, err)
                more = [line for line in iter(launcher.out_lines.get, None) if line.startswith("node")]
                self.assertEqual(more, [], err)

    def wait_for_step(self, folder, rank):
        """Until the rank has noted one: COMMIT ROUND RANK EPOCH: INDICES."""
        audit, deadline = pathlib.Path(folder, "audit"), time.monotonic() + DEADLINE
        while not (audit.exists() and re.search(rf"^\d+ \d+ {rank} ", audit.read_text(encoding="ascii"), re.M)):
            self.assertLess(time.monotonic(), deadline, "".join(self.launchers[-1].err))
            time.sleep(0.01)

    def test_one_alone_begins_nothing(self):
        alone = self.start(conf="timeout=4")
        alone.wait_for("waiting for the replicated store: .* it is new, and waits for all to begin; it does not reach ")
        code, err = alone.end()
        self.assertEqual(code, 1, err)
        self.assertIn("none of the store's 3 replicas served it in time, of which 2 must be there", err)


class ReplicasOfTheirOwn(Replicated):
    def test_the_job_does_not_notice_that_replicas_are_lost(self):
        self.start_replicas()
        launchers = [self.start(nnodes="1:2"), self.start(nnodes="1:2")]
        for launcher in launchers:
            launcher.wait_for_world(2)
        for i in range(3):
            self.replicas[i].end()
            self.replicas[i] = Replica(self.port)
            self.replicas[i].wait_until_in()
        rounds = [len(re.findall("round [0-9]+ begins", "".join(launcher.err))) for launcher in launchers]
        self.assertLessEqual(max(rounds), 2, "as many as when they began")
        self.end_all_in_any_order(*launchers)

    def test_a_coordinator_that_was_frozen_is_none_any_more(self):
        self.start_replicas()
        first = self.start(nnodes="1:2")
        first.wait_for_world(1)
        second = self.start(nnodes="1:2")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        first.process.send_signal(signal.SIGSTOP)
        second.wait_for(r"node 0 \(.*\) is lost")
        second.wait_for_world(1)
        first.process.send_signal(signal.SIGCONT)
        first.wait_for("the replicated store names another node than this one by now")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        self.end_all_in_any_order(second, first)

    def test_the_next_job_of_that_name(self):
        """The first one has left, so that the second need not wait for its silence; a third does, after a kill."""
        self.start_replicas()
        for _ in range(2):  # with a heartbeat that is longer than any wait here
            alone = self.start(nnodes="1:2", conf=re.sub("heartbeat=[0-9]+", "heartbeat=1000", CONF))
            alone.wait_for_world(1)
            self.assertEqual(alone.end(signal.SIGTERM)[0], 143)
        alone = self.start(nnodes="1:2")
        alone.wait_for_world(1)
        alone.end(signal.SIGKILL)
        again = self.start(nnodes="1:2")
        again.wait_for_world(1)
        self.end_all_in_any_order(again)


class Spelling(unittest.TestCase):
    def test_places_that_are_none(self):
        for places, expected in (("a:1,b:2", "expected three or five HOST:PORT"), ("a:1,b:2,a:1", '"a:1" twice'),
                                 ("a:1,b:2,c:x", 'got "x"'), ("a:1,b:2,c:99999", "99999"), ("a:1,,c:2", "HOST:PORT")):
            for argv in (["run", "--nnodes=2:3", f"--rdzv-endpoint={places}", "true"],
                         ["store", f"--replicas={places}"]):
                with self.subTest(argv=argv):
                    done = subprocess.run([TUTTI, *argv], capture_output=True, text=True, timeout=DEADLINE,
                                          check=False)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(expected, done.stderr)


def has_libraft():
    """Three addresses that are nobody's here: it is loaded before they are tried."""
    places = "198.51.100.1:1,198.51.100.2:1,198.51.100.3:1"
    done = subprocess.run([TUTTI, "store", f"--replicas={places}"], capture_output=True, text=True, timeout=DEADLINE,
                          check=False)
    return "libraft" not in done.stderr


if __name__ == "__main__":
    if not has_libraft():
        print("skipped: no libraft (packages libraft-dev, libraft2)")
        sys.exit(77)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    unittest.main(verbosity=1)
