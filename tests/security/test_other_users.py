#!/usr/bin/env python3
"""Other users of a job's machine: each row of docs/security.md's table of who may use the store, and what its other
sentences say, tried by processes of other users while the job goes on."""
import os
import pathlib
import re
import socket
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import DEADLINE, NODES, OWNER, PORT, SECRET, STRANGER, Job, Lab, TorchClient, torch_ping, why_not  # noqa: E402

OTHER_ADDRESS = "10.78.0.77"  # of node 0's, too

# What the cells of the table mean: who is served.
MEANS = {
    "served": {OWNER, STRANGER, 0},
    "served, after one warning in the log": {OWNER, STRANGER, 0},
    "served, if it is the same user's or root's": {OWNER, 0},
    "refused": set(),
}


def table():
    """{setting: (the cell of this machine, the cell of another)}"""
    page = (pathlib.Path(os.environ["TT_SOURCE"]) / "docs" / "security.md").read_text()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines() if line[:2] == "| "]
    return {cells[0].split("`")[1]: cells[1:] for cells in rows if cells[0].startswith("`")}


def read_environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return len(f.read())


def torch_get(address, key):
    with socket.create_connection((address, PORT), timeout=DEADLINE) as s:
        return len(TorchClient(s).get(key))


def call_launcher(name):
    """The texts that come over a launcher's socket until it is closed, and how many packets."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(DEADLINE)
        s.connect("\0" + name)
        packets = list(iter(lambda: s.recv(4096), b""))
        return [text.decode() for text in re.findall(rb"[ -~]{6,}", b"".join(packets))], len(packets)


class OtherUsers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.end)
        cls.lab.nodes[0].ip(f"addr add {OTHER_ADDRESS}/24 dev eth0")
        cls.job = Job(cls.lab, user=OWNER, apart=False)
        cls.addClassCleanup(cls.job.end)

    def setUp(self):
        self.job.goes_on()

    def test_one_address_of_this_machine_to_another(self):
        job = self.job
        seen = self.lab.nodes[0].as_user(OWNER, torch_ping, NODES[0], OTHER_ADDRESS)
        self.assertEqual(seen, "refused")
        job.says(rf"store: refused {re.escape(OTHER_ADDRESS)}:\d+: .* from another machine")
        job.goes_on()

    def test_no_key_goes_to_another_user(self):
        job = self.job
        self.assertGreater(self.lab.nodes[0].as_user(OWNER, torch_get, NODES[0], "tutti/nodes/card/0"), 0)
        self.assertRegex(self.lab.nodes[0].as_user(STRANGER, torch_get, NODES[0], "tutti/nodes/card/0"),
                         "ConnectionError: the store hung up|ConnectionReset|BrokenPipe")
        job.says("belongs to another user of this machine")
        job.goes_on()

    def test_the_secret_is_seen_by_nobody(self):
        job = self.job
        self.assertRegex(self.lab.nodes[0].as_user(STRANGER, read_environment, job.nodes[0].pid), "PermissionError")
        for node in job.nodes:
            self.assertNotIn(SECRET, pathlib.Path(f"/proc/{node.pid}/cmdline").read_text())
        self.assertNotIn(SECRET, job.text(0) + job.text(1))

    def test_launchers_of_others_without_the_secret(self):
        """As a second node on node 0's machine: the owner, who may write the store, and somebody else."""
        job = self.job
        argv = [*job.argv(1), "echo", "started"]
        for user, why in ((OWNER, "another launcher is node 1 already|has no job secret"),
                          (STRANGER, "without the job secret .*the same TT_SECRET_FILE")):
            done = self.lab.nodes[0].run(argv, user, env=dict(os.environ, TT_SECRET=""))
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertRegex(done.stderr, why)
        job.says("belongs to another user of this machine")
        job.goes_on()

    def test_top_shows_nothing_to_others(self):
        job = self.job
        with self.lab.nodes[0].inside(), open("/proc/thread-self/net/unix", encoding="utf-8") as f:
            names = [name for name in re.findall(r"@(tutti-job/\S+)", f.read()) if f"/{job.nodes[0].pid}/" in name]
        self.assertTrue(names)
        (_, why), packets = self.lab.nodes[0].as_user(STRANGER, call_launcher, names[0])
        self.assertEqual((why, packets), (f"it is user {STRANGER}'s; served are user {OWNER}'s and root's", 1))
        done = self.lab.nodes[0].run([self.lab.tutti, "top", "--once", str(job.nodes[0].pid)], STRANGER)
        self.assertNotEqual(done.returncode, 0)
        done = self.lab.nodes[0].run([self.lab.tutti, "top", "--once", str(job.nodes[0].pid)], OWNER)
        self.assertEqual(done.returncode, 0, done.stderr)
        job.goes_on()


class Table(unittest.TestCase):
    def setUp(self):
        self.lab = Lab()
        self.addCleanup(self.lab.end)

    def try_row(self, setting, here, elsewhere):
        job = Job(self.lab, f"--store-auth={setting}", user=OWNER, apart=False)
        self.addCleanup(job.end)
        job.goes_on()
        for machine, cell in ((0, here), (1, elsewhere)):
            for user in (OWNER, 0, STRANGER):
                seen = self.lab.nodes[machine].as_user(user, torch_ping, NODES[0])
                self.assertEqual(seen, "served" if user in MEANS[cell] else "refused", (setting, machine, user))
            if not MEANS[cell] >= {OWNER, STRANGER, 0}:
                job.says(rf"store: refused {re.escape(NODES[machine])}:\d+: it speaks PyTorch's dialect")
            if "warning" in cell:
                job.says("authentication is turned off")
                self.assertEqual(job.text().count("authentication is turned off"), 1)
        job.goes_on()
        job.end()

    def test_who_may_use_the_store(self):
        rows = table()
        self.assertEqual(set(rows), {"local", "required", "none"})
        for setting, (here, elsewhere) in rows.items():
            with self.subTest(setting=setting):
                self.try_row(setting, here, elsewhere)


if __name__ == "__main__":
    if why := why_not():
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
