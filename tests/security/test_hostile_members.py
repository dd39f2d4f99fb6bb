#!/usr/bin/env python3
"""Members of a job that tell its launcher nonsense.

What a worker hands in is memory that can be read at once, or the launcher hangs up on it: it would wait for any other
file, and with it the job. A launcher of another node says how many workers it has, which signal it got and how a rank
ended: what can't be so is refused, and starts or ends nothing."""
import array
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE, free_port  # noqa: E402
from torch_client import TorchClient  # noqa: E402

TUTTI = os.environ["TUTTI"]

MAGIC, SIZE = 0x32626F4A74747554, 688  # of src/net/job/job_socket.h
RECORDER, TIMERS = 1, 8
BLOB, RANK_SIZE, RANK_AT = 0x31626F6C42747454, 168, 88  # of src/launch/local/snapshot.c, job_socket.h


def hand_in(kind, file, offset=0):
    """Is the launcher still there for this process?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(DEADLINE)
        s.connect("\0" + os.environ["TT_JOB_SOCKET"])
        recorder = struct.pack("<iIQ", 0, 4096, offset)
        s.sendmsg([(struct.pack("<Qi4x", MAGIC, kind) + recorder).ljust(SIZE, b"\0")],
                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        try:
            return s.recv(SIZE) != b""
        except ConnectionResetError:
            return False


class Job:
    """A launcher that waits for node 1, and what node 1 says to it, without a secret."""

    def __init__(self, script="exec sleep 1000"):
        self.port, self.beats, self.news = free_port(), 0, 0
        self.launcher = subprocess.Popen([TUTTI, "run", "--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1",
                                          f"--master-port={self.port}", "sh", "-c", f"echo $WORLD_SIZE; {script}"],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True, env=dict(os.environ, TT_SECRET="", TT_SECRET_FILE=""))
        self.store = TorchClient.of_port(self.port)
        while not self.store.has("tutti/nodes/card/0"):
            time.sleep(0.01)
        self.card = dict(json.loads(self.store.get("tutti/nodes/card/0")), hostname="other", nonce="0" * 32)

    def beat(self):
        self.beats += 1
        self.store.set("tutti/nodes/beat/1", f"{self.beats} {self.news} 1")

    def join(self, **says):
        self.store.add("tutti/nodes/claim/1", 1)
        self.beat()
        self.store.set("tutti/nodes/alive/1", "1")
        self.store.set("tutti/nodes/card/1", json.dumps(dict(self.card, **says)))
        self.store.append("tutti/nodes/list", "1 ")

    def say(self, **news):
        self.news += 1
        self.store.set(f"tutti/nodes/news/1/{self.news}", json.dumps(dict(news, node=1)))
        self.beat()

    def world(self):
        for line in self.launcher.stdout:
            if line.strip().isdigit():
                return int(line)
        raise AssertionError("the launcher ended before its rank began")

    def ends(self):
        """(exit code, output)"""
        out, _ = self.launcher.communicate(timeout=DEADLINE)
        return self.launcher.returncode, out


class HostileNode(unittest.TestCase):
    def start(self):
        job = Job()
        self.addCleanup(job.store.socket.close)
        self.addCleanup(job.launcher.stdout.close)
        self.addCleanup(job.launcher.wait)
        self.addCleanup(job.launcher.kill)
        return job

    def test_a_card_that_no_node_has(self):
        for says, text in (({"workers": 2**31 - 1}, "has 2147483647 workers: expected 1 to 4096"),
                           ({"workers": 0}, "has 0 workers"),
                           ({"attempt": 2**31 - 1}, "was in attempt 2147483647, round 0,"),
                           ({"recovery": 2**31 - 1}, "round 2147483647, after 0 restarts"),
                           ({"restarts": -1}, "after -1 restarts")):
            with self.subTest(says):
                job = self.start()
                job.join(**says)
                code, out = job.ends()
                self.assertEqual(code, 1, out)
                self.assertRegex(out, f"node 1 says that it .*{text}")
                self.assertNotRegex(out, r"(?m)^-?\d+$")

    def test_a_host_name_that_is_cut_within_a_character(self):
        """The node is no less there for that."""
        job = self.start()
        job.join(hostname="h" * 62 + "\u00e9")
        self.assertEqual(job.world(), 2)

    def test_lines_that_are_forged(self):
        """What a node says stands in one line of the launcher's, and a terminal obeys nothing of it."""
        forged = "\ntutti run: forged\x1b[2J\u009b31m"
        job = self.start()
        job.join(hostname="other" + forged)
        self.assertEqual(job.world(), 2)
        job.say(what="signal", signal=15)
        job.say(what="done")
        job.store.append("tutti/nodes/left", "1 ")
        _, out = job.ends()
        self.assertIn("node 1 (other tutti run: forged31m) got SIGTERM", out)
        job = self.start()
        job.join(version=forged)
        _, out = job.ends()
        self.assertRegex(out, "node 1 runs Tutti .*tutti run: fo")

    def test_more_ranks_than_a_node_has(self):
        """Each that is shown to a reader takes the launcher a descriptor."""
        job = self.start()
        job.join()
        self.assertEqual(job.world(), 2)
        rank = struct.pack("<ii", 1, 1).ljust(RANK_AT, b"\0") + struct.pack("<iIQ", 1, 1, 0)
        blob = struct.pack("<QII", BLOB, 3000, RANK_SIZE) + (rank.ljust(RANK_SIZE, b"\0") + b"x") * 3000
        job.store.set("tutti/nodes/look/1/1", blob)
        top = subprocess.run([TUTTI, "top", "--once", str(job.launcher.pid)], capture_output=True, text=True,
                             timeout=DEADLINE, check=False)
        self.assertEqual(top.returncode, 0, top.stderr)
        self.assertLess(len(os.listdir(f"/proc/{job.launcher.pid}/fd")), 100)
        job.launcher.terminate()
        self.assertIn("shows 3000 ranks: expected at most 1", job.ends()[1])

    def test_news_that_no_node_has(self):
        end = dict(what="ended", attempt=0, rank=1, pid=7, status=256, exec_errno=0, told=0, secondary=False,
                   waited=False, message="", tail="", when=1, error_s=0, signal_s=0)
        job = self.start()
        job.join()
        self.assertEqual(job.world(), 2)
        for wrong in ({"rank": 0}, {"rank": -1}, {"rank": 2}, {"exec_errno": -5}, {"told": 70}):
            job.say(**dict(end, message="invented", **wrong))
        for signal in (-128, 0, 70, 2**40):
            job.say(what="signal", signal=signal)
        job.say(**dict(end, status=512, exec_errno=2, message="no such thing\ntutti run: forged"))
        job.say(what="done")
        job.store.append("tutti/nodes/left", "1 ")
        code, out = job.ends()
        self.assertEqual(code, 126, out)
        self.assertRegex(out, r"rank 1 failed first: could not be started: no such thing: No such file")
        self.assertFalse(re.search("invented|forged|got signal", out), out)


class HostileWorker(unittest.TestCase):
    def test_what_is_no_sealed_memory(self):
        """Nor memory in which a recorder can't be, as its numbers would be read at odd addresses."""
        job = subprocess.run([TUTTI, "run", sys.executable, __file__, "worker"], capture_output=True,
                             text=True, timeout=2 * DEADLINE, check=False)
        self.assertEqual((job.returncode, job.stdout), (0, "False False False False False\n"), job.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        unsealed = os.memfd_create("worker")
        os.truncate(unsealed, 1 << 16)
        # /dev/kmsg, where this user may read it: its next line may never come
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY)
        except OSError:  # for root alone, on most machines
            log = os.open("/dev/zero", os.O_RDONLY)
        os.lseek(log, 0, os.SEEK_END)
        sealed = os.memfd_create("worker", os.MFD_ALLOW_SEALING)
        os.truncate(sealed, 1 << 16)
        fcntl.fcntl(sealed, 1033, 7)  # F_ADD_SEALS: F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
        print(*(hand_in(kind, file) for file in (unsealed, log) for kind in (RECORDER, TIMERS)),
              hand_in(RECORDER, sealed, offset=1))
        sys.exit()
    unittest.main()
