#!/usr/bin/env python3
"""tutti run --rdzv-backend=etcd, here several launchers on one host: etcd names the one that serves the store. It is
lost, frozen, replaced; etcd is killed, restarted, missing."""
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "fault" / "elastic"))
from patience import DEADLINE, free_port  # noqa: E402
import test_elastic_nodes  # noqa: E402

TUTTI = os.environ["TUTTI"]
FOREVER = test_elastic_nodes.FOREVER
SAY = 'echo "master $MASTER_ADDR $MASTER_PORT"; ' + test_elastic_nodes.SAY
CONF = f"last_call_timeout=0.3,heartbeat={10 if os.environ.get('TT_SANITIZED') else 3},timeout=60"


class Etcd:
    """A server with data of its own. Another process may take its port before it does: then another one."""

    def __init__(self, folder):
        self.data = tempfile.mkdtemp(dir=folder)
        for _ in range(5):
            self.client, self.peer = free_port(), free_port()
            if self.start():
                return
        raise AssertionError(f"etcd doesn't start; {self.data}")

    def start(self):
        client, peer = f"http://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        with open(self.data + ".log", "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", self.data, "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                 f"default={peer}"], stdout=log, stderr=log)
        while self.process.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.client)) == 0:
                    return True
            time.sleep(0.02)
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def call(self, what, **body):
        """POST to the v3 API, texts in base64."""
        text = json.dumps({name: base64.b64encode(value.encode()).decode() for name, value in body.items()})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.client}/v3/kv/{what}", text.encode(),
                                    timeout=DEADLINE) as answer:
            return json.load(answer)

    def get(self, key):
        found = self.call("range", key=key).get("kvs")
        return base64.b64decode(found[0]["value"]).decode() if found else ""


class Launcher(test_elastic_nodes.Launcher):
    """As there, but they meet in etcd."""

    def __init__(self, port, script, *flags, conf=CONF, **how):
        super().__init__(port, script, "--rdzv-backend=etcd", *flags, conf=conf, **how)


class MeetInEtcd(test_elastic_nodes.Elastic):
    """Some of the tests there, and those of what is different."""
    test_a_node_that_is_killed_is_done_without = None
    test_a_node_that_was_frozen_comes_back = None
    test_too_few_nodes_give_up = None
    test_too_few_nodes_wait_for_others = None
    test_a_spare_takes_the_place_of_a_lost_node = None
    test_a_spare_that_was_not_needed_ends_well = None
    test_failures_count_and_changes_do_not = None
    test_nobody_joins_a_job_that_is_ending = None
    test_another_job_at_the_same_place = None
    test_a_spare_outlives_who_serves_the_store = None
    test_too_few_are_left = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-etcd-")
        cls.shared = Etcd(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.shared.kill()
        cls.folder.cleanup()

    def setUp(self):
        self.etcd, self.launchers, self.id = self.shared, [], self._testMethodName
        self.addCleanup(lambda: self.etcd is self.shared or self.etcd.kill())

    def start(self, *flags, script=SAY + FOREVER, job=None, **how):
        self.launchers.append(Launcher(self.etcd.client, script, f"--rdzv-id={job or self.id}", *flags, **how))
        return self.launchers[-1]

    def coordinator(self):
        """ADDRESS PORT, as etcd has it."""
        return self.etcd.get(f"tutti/{self.id}/coordinator")

    def rounds(self, launcher, last=None):
        """(number, nodes) of those that it took part in until `last`, or until now."""
        if last:
            launcher.has_said(f"round {last[0]} begins on {last[1]} node")
        return [(int(number), int(nodes)) for number, nodes in
                re.findall(r"round (\d+) begins on (\d+) node", "".join(launcher.err))]

    def test_ranks_are_told_the_coordinator(self):
        first = self.start()
        second = self.start()
        for launcher in (first, second):
            launcher.wait_for_world(2)
        third = self.start()
        self.assertEqual(third.read_until(third.out_lines, "^master"), f"master {self.coordinator()}\n")
        self.end_all_in_any_order(first, second, third)
        self.assertEqual(self.coordinator(), "", "the lease ends with the job")

    def end_all_in_any_order(self, *launchers):
        """One of them is the coordinator, which ends them all; others leave."""
        for launcher in launchers:
            launcher.process.send_signal(signal.SIGTERM)
        for launcher in launchers:
            launcher.end()

    def test_counts_go_on_with_another_coordinator(self):
        script = SAY + f"test $WORLD_SIZE$TORCHELASTIC_RESTART_COUNT = 20 && exit 7; {FOREVER}"
        first, second = (self.start("--max-restarts=3", script=script, nnodes="1:2") for _ in range(2))
        for launcher in (first, second):
            launcher.wait_for_world(2, restarts=1)
        name = self.coordinator()
        dead, alive = (first, second) if self.serves(first) else (second, first)
        dead.end(signal.SIGKILL)
        alive.wait_for("looking for the job again in etcd")
        alive.wait_for_world(1, restarts=1)
        self.assertNotEqual(self.coordinator(), name)
        third = self.start("--max-restarts=3", script=script, nnodes="1:2")
        for launcher in (alive, third):
            launcher.wait_for_world(2, restarts=1)
        numbers = [number for number, _ in self.rounds(alive)]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.end_all(alive, third)

    def serves(self, launcher):
        """Does it listen where etcd says?"""
        listening = subprocess.run(["ss", "-Hltnp", f"sport = :{self.coordinator().split()[1]}"], capture_output=True,
                                   text=True, check=True).stdout
        return f"pid={launcher.process.pid}," in listening

    def test_workers_that_survive_the_coordinator_go_on(self):
        """Their processes stay: tutti/elastic.h."""
        folder = tempfile.mkdtemp(dir=self.folder.name)
        worker = os.path.join(os.environ["TT_PROGRAMS"], "test_elastic")
        script = f"echo begun; cd {folder}; export E_EPOCHS=20 E_PACE_MS=10 E_QUIET=1; exec {worker} worker elastic"
        first = self.start("--max-restarts=3", script=script)
        self.wait_for_step(folder, 0)
        second = self.start("--max-restarts=3", script=script)
        self.wait_for_step(folder, 1)
        first.end(signal.SIGKILL)
        second.wait_for("looking for the job again in etcd")
        second.wait_for("round [0-9]+ begins on 1 node")
        code, err = second.end()
        self.assertEqual(code, 0, err)
        begun = [line for line in iter(second.out_lines.get, None) if line == "begun\n"]
        self.assertEqual(len(begun), 1, err)

    def wait_for_step(self, folder, rank):
        """Until the rank has noted one: COMMIT ROUND RANK EPOCH: INDICES."""
        audit, deadline = pathlib.Path(folder, "audit"), time.monotonic() + DEADLINE
        while not (audit.exists() and re.search(rf"^\d+ \d+ {rank} ", audit.read_text(encoding="ascii"), re.M)):
            self.assertLess(time.monotonic(), deadline, "".join(self.launchers[-1].err))
            time.sleep(0.01)

    def test_a_coordinator_that_is_dead_is_still_named(self):
        first = self.start()
        first.wait_for_world(1)
        first.end(signal.SIGKILL)
        second = self.start()
        second.wait_for_world(1)
        self.end_all(second)

    def test_a_job_needs_no_etcd_while_all_is_well(self):
        self.etcd = Etcd(self.folder.name)
        environment = os.environ.copy()
        os.environ["TT_LOG"] = "debug"
        try:
            first, second = self.start_two("--max-restarts=1")
        finally:
            os.environ.clear()
            os.environ.update(environment)
        self.etcd.kill()
        first.wait_for("debug: etcd: ")
        self.assertTrue(self.etcd.start())
        first.wait_for("debug: etcd is back")
        for launcher in (first, second):
            self.assertEqual(self.rounds(launcher, last=(2, 2))[-1], (2, 2))
            self.assertIsNone(launcher.process.poll())
        first.end(signal.SIGKILL)
        second.wait_for("looking for the job again in etcd")
        second.wait_for_world(1)
        self.end_all(second)

    def test_a_coordinator_that_was_frozen_is_none_any_more(self):
        first, second = self.start_two()
        first.process.send_signal(signal.SIGSTOP)
        second.wait_for(r"node 0 \(.*\) is lost")
        second.wait_for_world(1)
        name = self.coordinator()
        first.process.send_signal(signal.SIGCONT)
        first.wait_for("etcd names another node than this one by now")
        for launcher in (first, second):
            launcher.wait_for_world(2)
        self.assertEqual(self.coordinator(), name)
        self.assertEqual(self.rounds(first, last=(4, 2)), [(1, 1), (2, 2), (4, 2)], "it goes on with nobody alone")
        self.end_all(second, first)

    def test_a_coordinator_that_was_frozen_before_anything_began(self):
        first = self.start(nnodes="2:3")
        first.wait_for("waiting for other nodes: 1 of at least 2 is here")
        first.process.send_signal(signal.SIGSTOP)
        second = self.start(nnodes="2:3")
        second.wait_for("waiting for other nodes: 1 of at least 2 is here")
        first.process.send_signal(signal.SIGCONT)
        for launcher in (first, second):
            launcher.wait_for_world(2)
        self.assertEqual(self.rounds(first, last=(1, 2)), [(1, 2)])
        self.end_all(second, first)

    def test_who_waits_looks_again_when_the_coordinator_ends(self):
        first = self.start(nnodes="3")
        second = self.start(nnodes="3")
        for launcher in (first, second):
            launcher.wait_for("waiting for other nodes: [12] of 3")  # who does not serve reads it in the store
        dead, alive = (first, second) if self.serves(first) else (second, first)
        dead.end(signal.SIGKILL)
        alive.wait_for("waiting for other nodes: 1 of 3 is here")
        self.assertTrue(self.serves(alive))
        self.assertEqual(alive.end(signal.SIGTERM)[0], 143)

    def test_a_name_that_etcd_has_lost(self):
        first = self.start()
        first.wait_for_world(1)
        name = self.coordinator()
        self.etcd.call("deleterange", key=f"tutti/{self.id}/coordinator")
        first.wait_for("etcd did not name the coordinator any more: it does again")
        self.assertEqual(self.coordinator(), name)
        self.end_all(first)

    def test_two_jobs_in_one_etcd(self):
        jobs = [[self.start(job=self.id + name, nnodes="2") for _ in range(2)] for name in ("-a", "-b")]
        for job in jobs:
            for launcher in job:
                launcher.wait_for_world(2)
        for job in jobs:
            self.end_all_in_any_order(*job)

    def test_etcd_that_is_not_there(self):
        for protocol in "http", "https":
            self.etcd = Etcd(self.folder.name)
            self.etcd.kill()
            alone = self.start(conf=f"timeout=1,protocol={protocol}")
            code, err = alone.end()
            self.assertEqual(code, 1, err)
            self.assertIn(f"{protocol}://127.0.0.1:{self.etcd.client}", err)

    def test_a_program_that_is_missing_on_one_node(self):
        first = self.start()
        first.wait_for_world(1)
        other = subprocess.run([TUTTI, "run", "--nnodes=1:4", "--rdzv-backend=etcd", f"--rdzv-id={self.id}",
                                f"--rdzv-endpoint=127.0.0.1:{self.etcd.client}", "./no-such-program"],
                               capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(other.returncode, 127)
        first.wait_for("a node is not taken: .*no-such-program")
        self.end_all(first)


if __name__ == "__main__":
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed (package etcd-server)")
        sys.exit(77)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    unittest.main(verbosity=1)
