#!/usr/bin/env python3
"""tutti run --rdzv-backend=etcd, here several launchers on one host: etcd names the one that serves the store. It is
lost, frozen, replaced; etcd is killed, restarted, missing."""
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

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "fault"))
from patience import DEADLINE, free_port  # noqa: E402
import test_elastic_nodes  # noqa: E402

TUTTI = os.environ["TUTTI"]
FOREVER = "exec sleep 1000"
SAY = (test_elastic_nodes.SAY + 'echo "master $MASTER_ADDR:$MASTER_PORT attempt"; ')
CONF = "last_call_timeout=0.3,heartbeat=2,timeout=60"


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

    def get(self, key):
        return subprocess.run(["etcdctl", f"--endpoints=127.0.0.1:{self.client}", "get", "--print-value-only", key],
                              env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, text=True, check=True,
                              timeout=DEADLINE).stdout.strip()


class Launcher(test_elastic_nodes.Launcher):
    """As there, but they meet in etcd."""

    def __init__(self, port, script, *flags, conf=CONF, **how):
        super().__init__(port, script, "--rdzv-backend=etcd", *flags, conf=conf, **how)


class MeetInEtcd(test_elastic_nodes.Elastic):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("etcd") or not shutil.which("etcdctl"):
            raise unittest.SkipTest("there is no etcd here (apt install etcd-server etcd-client)")
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-etcd-")
        cls.etcd = Etcd(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.kill()
        cls.folder.cleanup()

    def setUp(self):
        self.port, self.launchers = self.etcd.client, []
        self.id = self.id_of_test()

    def id_of_test(self):
        return self._testMethodName

    def start(self, *flags, script=SAY + FOREVER, **how):
        self.launchers.append(Launcher(self.port, script, f"--rdzv-id={self.id}", *flags, **how))
        return self.launchers[-1]

    def coordinator(self):
        """ADDRESS PORT, as etcd has it."""
        return self.etcd.get(f"tutti/{self.id}/coordinator")
