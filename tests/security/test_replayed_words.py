#!/usr/bin/env python3
"""Who may write the store of a job, but has not its secret, plays into it what ranks and launchers of an earlier job
with the same secret file have left in theirs: a rank's card, and the note that it was killed. Neither is taken."""
import os
import pathlib
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
from torch_client import TorchClient  # noqa: E402

SECRET = "a-secret-nobody-may-see-0123456789"
PROGRAM = pathlib.Path(os.environ["TT_BUILD"]) / "tests" / "fault" / "reduce_forever"
CARD, END = "tutti/0/1/rank/1", "tutti/ended/1"


class Job:
    """Two launchers with a rank each, which tells its number before it joins; rank 1 waits for go()."""

    def __init__(self, folder, settle):
        self.port, self.go_file = free_port(), folder / f"go{free_port()}"
        script = f'test $RANK = 0 || until test -e {self.go_file}; do sleep 0.02; done; exec {PROGRAM} 20000'
        flags = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={self.port}",
                 f"--secret-file={folder / 'secret'}", f"--settle-period={settle}"]
        self.nodes = [subprocess.Popen([os.environ["TUTTI"], "run", f"--node-rank={node}", *flags, "sh", "-c", script],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       env=dict(os.environ, TT_LOG="warning"), text=True) for node in (0, 1)]
        self.said, self.news = "", threading.Condition()
        self.readers = [threading.Thread(target=self.read, args=(node.stdout,)) for node in self.nodes]
        for reader in self.readers:
            reader.start()
        self.store = TorchClient.of_port(self.port)

    def read(self, stream):
        for line in stream:
            with self.news:
                self.said += line
                self.news.notify_all()

    def says(self, pattern):
        with self.news:
            if not self.news.wait_for(lambda: re.search(pattern, self.said), DEADLINE):
                raise AssertionError(f'nobody says "{pattern}":\n{self.said}')
            return re.search(pattern, self.said)

    def value(self, key):
        deadline = time.monotonic() + DEADLINE
        while not self.store.has(key):
            if time.monotonic() > deadline:
                raise AssertionError(f"{key} does not come:\n{self.said}")
            time.sleep(0.01)
        return self.store.get(key)

    def go(self):
        self.go_file.touch()

    def end(self):
        for node in self.nodes:
            node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            node.wait(DEADLINE)
        for reader, node in zip(self.readers, self.nodes):
            reader.join(DEADLINE)
            node.stdout.close()
        self.store.socket.close()


class ReplayedWords(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "secret").write_text(SECRET)
        (cls.folder / "secret").chmod(0o600)
        job = cls.start(settle=60)
        job.go()
        job.says("rank 0 is pid")
        os.kill(int(job.says(r"rank 1 is pid (\d+)")[1]), signal.SIGKILL)
        cls.recorded = {key: job.value(key) for key in (CARD, END)}
        job.end()

    @classmethod
    def start(cls, settle):
        return Job(cls.folder, settle)

    def refused(self, key, whose):
        job = self.start(settle=0)
        self.addCleanup(job.end)
        job.store.set(key, self.recorded[key])
        job.says(f'rank.*: what the store holds under "{key}" as the words of {whose} is refused')
        job.go()
        for rank in (0, 1):
            job.says(f"rank {rank} is pid")

    def test_a_card(self):
        self.assertIn(b"tutti 4 2 ", self.recorded[CARD])
        self.refused(CARD, "rank 1")

    def test_a_launchers_note(self):
        self.assertTrue(self.recorded[END].startswith(b"signal 9 (SIGKILL)\0"), self.recorded[END])
        self.refused(END, "the launcher")


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"there is no {PROGRAM}")
        sys.exit(77)
    unittest.main(verbosity=2)
