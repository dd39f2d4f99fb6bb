#!/usr/bin/env python3
"""A job of two launchers that compute while strangers call the store: garbage, scans, silence, one byte at a time, TLS,
guesses. They are refused and logged, but not each in a line of its own, and the job goes on."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
FOREVER = str(pathlib.Path(os.environ["TT_PROGRAMS"]) / "reduce_forever")
SECRET = "a-secret-nobody-may-see-0123456789"


class Job:
    """Two launchers with a rank each, joined by TCP. Nobody gets into the store without the secret."""

    def __init__(self, encrypted):
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory()
        self.logs = [pathlib.Path(self.folder.name) / f"log{node}" for node in (0, 1)]
        self.nodes = [self.start(node, encrypted) for node in (0, 1)]

    def start(self, node, encrypted):
        env = dict(os.environ, TT_SECRET=SECRET, TT_TLS="1" if encrypted else "0", TT_TRANSPORT="tcp",
                   FOREVER_PAUSE_US="2000")
        argv = [TUTTI, "run", "--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                f"--master-port={self.port}", "--store-auth=required", "--rdzv-conf=heartbeat=20", FOREVER]
        with open(self.logs[node], "w", encoding="utf-8") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def calls(self):
        """How many calls rank 0 has made."""
        done = subprocess.run([TUTTI, "top", "--json", "--once", str(self.nodes[0].pid)], capture_output=True,
                              text=True,
                              timeout=DEADLINE, check=False)
        ranks = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
        return max([rank["call"]["seq"] for rank in ranks if rank.get("call")], default=0)

    def wait_for_calls(self, more):
        """Until `more` calls were made from now on."""
        deadline, first = time.monotonic() + DEADLINE, self.calls()
        while self.calls() < first + more:
            if time.monotonic() > deadline or any(node.poll() is not None for node in self.nodes):
                raise AssertionError(f"the job does not go on: {self.text(0)} {self.text(1)}")
            time.sleep(0.02)

    def text(self, node):
        return self.logs[node].read_text(errors="replace")

    def end(self):
        self.nodes[0].send_signal(signal.SIGINT)
        for node in self.nodes:
            try:
                node.wait(DEADLINE)
            finally:
                node.kill()
        self.folder.cleanup()


class Stranger:
    def __init__(self, port):
        self.port = port
        self.held = []

    def call(self, words=b"", hold=False):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        self.held.append(s)
        try:
            s.sendall(words)
        except OSError:  # shown out already
            pass
        if not hold:
            self.held.pop().close()
        return s

    def hang_up(self):
        while self.held:
            self.held.pop().close()

    def is_shown_out(self, words):
        """What comes before the end."""
        s = self.call(words, hold=True)
        answer = b""
        try:
            while more := s.recv(4096):
                answer += more
        except ConnectionResetError:
            pass
        return answer

    def scan(self):
        for _ in range(1000):
            self.call()

    def talk_nonsense(self):
        dice = random.Random(7)
        for _ in range(200):
            self.call(dice.randbytes(dice.randrange(1, 3000)))
        for first in (b"\xf5", b"\xf5\x01\x01", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64):
            self.call(first + dice.randbytes(200))

    def say_nothing(self):
        for i in range(300):
            self.call(b"" if i % 2 else b"\xf5", hold=True)

    def speak_slowly(self):
        for _ in range(3):
            for s in self.held[:50]:
                try:
                    s.send(b"\x01")
                except OSError:
                    pass
            time.sleep(0.05)

    def speak_tls(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        for _ in range(20):
            s = self.call(hold=True)
            try:
                context.wrap_socket(s).close()
                raise AssertionError("a stranger was let in")
            except OSError:
                pass


class Strangers(unittest.TestCase):
    def attack(self, encrypted):
        job = Job(encrypted)
        stranger = Stranger(job.port)
        try:
            job.wait_for_calls(20)
            for attack in (stranger.scan, stranger.talk_nonsense, stranger.say_nothing, stranger.speak_slowly,
                           stranger.speak_tls):
                attack()
                job.wait_for_calls(20)
            # PyTorch's dialect, the tag of "get"; and someone of the job, so far as one can be who hasn't the secret.
            self.assertEqual(stranger.is_shown_out(b"\x03" + b"\x01" + b"\0" * 7 + b"k"), b"")
            guess = subprocess.run([TUTTI, "run", "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1",
                                    f"--master-port={job.port}", "--rdzv-conf=timeout=5", "true"], text=True,
                                   env=dict(os.environ, TT_SECRET=SECRET[::-1], TT_TLS="1" if encrypted else "0"),
                                   capture_output=True, timeout=DEADLINE, check=False)
            self.assertEqual(guess.returncode, 1)
            self.assertRegex(guess.stderr, "TLS failed" if encrypted else "has another job secret")
            job.wait_for_calls(20)
            stranger.hang_up()
            job.wait_for_calls(20)
            refused = [line for line in job.text(0).splitlines() if "refused" in line]
            windows = 1 + len([line for line in refused if "more connections within" in line])
            self.assertTrue(refused)
            self.assertLessEqual(len(refused), 11 * windows, refused)
            self.assertRegex(refused[0], r"store: refused 127\.0\.0\.1:\d+: ")
            self.assertIsNone(re.search("refused", job.text(1)))
        finally:
            stranger.hang_up()
            job.end()

    def test_they_disturb_no_job(self):
        self.attack(False)

    def test_they_disturb_no_encrypted_job(self):
        self.attack(True)


if __name__ == "__main__":
    unittest.main()
