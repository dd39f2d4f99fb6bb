"""Programs that name no meeting place meet in etcd when TT_INIT_METHOD says so: started by hand, without any address of
theirs, and by `tutti run`."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, TUTTI = pathlib.Path(os.environ["TT_BUILD"]), os.environ["TUTTI"]
PATIENCE = float(os.environ["TT_TIMEOUT"]) / 3
PLACES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TT_INIT_METHOD")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_etcd(folder):
    """A server that listens, and its port. Another process may take the port before it does: then another one."""
    for _ in range(5):
        client, peer = free_port(), free_port()
        name = f"{folder}/{client}"
        with open(name + ".log", "wb") as log:
            server = subprocess.Popen(
                ["etcd", "--data-dir", name, "--listen-client-urls", f"http://127.0.0.1:{client}",
                 "--advertise-client-urls", f"http://127.0.0.1:{client}", "--listen-peer-urls",
                 f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                 "--initial-cluster", f"default=http://127.0.0.1:{peer}"], stdout=log, stderr=log)
        while server.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", client)) == 0:
                    return server, client
            time.sleep(0.02)
    raise AssertionError(f"etcd doesn't start; {folder}")


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-etcd-")
        cls.server, port = start_etcd(cls.folder.name)
        cls.environment = {k: v for k, v in os.environ.items() if k not in PLACES}
        cls.environment["TT_INIT_METHOD"] = f"etcd://127.0.0.1:{port}/jobs/examples"

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait()
        cls.folder.cleanup()

    def by_hand(self, ranks, program, **more):
        started = [subprocess.Popen([BUILD / "examples" / program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, env=dict(self.environment, RANK=str(r), WORLD_SIZE=str(ranks), **more))
                   for r in range(ranks)]
        said = [p.communicate(timeout=PATIENCE)[0] for p in started]
        self.assertEqual([p.returncode for p in started], [0] * ranks, said)
        return "".join(said)

    def test_by_hand(self):
        for more in {}, {"TT_TRANSPORT": "tcp"}, {"TT_SECRET": "an old and well kept secret"}:
            said = self.by_hand(3, "bare_group", **more)
            for text in "rank 0 has 2", "rank 1 has 2", "rank 2 has 1":
                self.assertIn(text, said)

    def test_one_after_the_other_at_the_same_place(self):
        for _ in range(2):
            self.assertIn("rank 1 has 2", self.by_hand(2, "bare_point_to_point"))

    def test_by_the_launcher(self):
        done = subprocess.run([TUTTI, "run", "--standalone", "--nproc-per-node=3", BUILD / "examples/bare_group"],
                              capture_output=True, text=True, timeout=PATIENCE, check=False, env=self.environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 2 has 1", done.stdout)

    def test_nobody_there(self):
        environment = dict(self.environment, RANK="0", WORLD_SIZE="2", TT_INIT_METHOD="etcd://127.0.0.1/")
        done = subprocess.run([BUILD / "examples/bare_group"], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env=environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the job's name is missing", done.stderr)


if __name__ == "__main__":
    if not shutil.which("etcd"):
        print("skipped: etcd is not installed (package etcd-server)")
        sys.exit(77)
    unittest.main()
