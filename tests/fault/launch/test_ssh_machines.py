#!/usr/bin/env python3
"""tutti run --ssh between machines of their own (network name spaces), each with an sshd: a desk from which the job is
started, and two hosts that it routes between."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / folder) for folder in ("support", "security")]
import lab  # noqa: E402
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]
TRAINER = str(pathlib.Path(os.environ["TT_BUILD"]) / "examples" / "mnist_trainer")
HOSTS = ("10.79.1.1", "10.79.2.1")


def why_not():
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin") or not shutil.which("ssh"):
        return "openssh-server and openssh-client are not installed"
    return lab.why_not()


def connect(desk, host, name, address):
    """A cable from the desk to a host, whose other neighbours are behind the desk."""
    desk.ip(f"link add {name} type veth peer name eth0 netns {host.holder.pid}",
            f"addr add {address[:-1]}254/24 dev {name}", f"link set {name} up")
    host.ip(f"addr add {address}/24 dev eth0", "link set eth0 up", f"route add default via {address[:-1]}254")


class Machines(unittest.TestCase):
    def setUp(self):
        reason = why_not()
        if reason:
            self.skipTest(reason)
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.desk, *hosts = (self.machine(stack, name) for name in ("desk", "first", "second"))
        for i, host in enumerate(hosts):
            connect(self.desk, host, f"to{i}", HOSTS[i])
        done = self.desk.run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        self.servers = [self.serve(stack, host) for host in hosts]
        client = self.folder / "client"
        client.write_text(f"IdentityFile {self.folder}/key\nIdentitiesOnly yes\nBatchMode yes\nLogLevel ERROR\n"
                          "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n", encoding="utf-8")
        self.env = dict(os.environ, TUTTI_SSH=f"ssh -T -F {client}")

    @staticmethod
    def machine(stack, name):
        machine = lab.Machine(name)
        stack.callback(machine.holder.communicate)
        return machine

    def serve(self, stack, host):
        os.makedirs("/run/sshd", exist_ok=True)
        config = self.folder / "server"
        config.write_text(f"HostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/key.pub\nUsePAM no\n"
                          "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n",
                          encoding="utf-8")
        server = host.start(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE, text=True)
        stack.callback(server.communicate)
        stack.callback(server.terminate)
        for line in server.stderr:
            if "Server listening on 0.0.0.0" in line:
                return server
        raise AssertionError("sshd does not listen")

    def start(self, *argv):
        return self.desk.start([TUTTI, "run", f"--ssh={','.join(HOSTS)}", "--nproc-per-node=2", *argv], env=self.env,
                               cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)

    def test_a_trainer_on_two_hosts(self):
        job = self.start(TRAINER, "--epochs", "1", "--save-every", "0")
        out, errors = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 0, errors)
        self.assertEqual(len(re.findall("^Epoch 1, .*samples/s$", out, re.M)), 1, out)
        self.assertIn("4 ranks", out)
        self.assertNotIn("no secret", errors)

    def test_ends(self):
        """However the desk's command ends, no rank is left: the hosts' stdout is closed."""
        for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            job = self.start("--grace-period=0.2", "sh", "-c", "echo ready; exec sleep 1000")
            self.assertEqual([job.stdout.readline() for _ in range(4)], ["ready\n"] * 4)
            job.send_signal(sig)
            _, errors = job.communicate(timeout=DEADLINE)
            self.assertEqual(job.returncode, code, errors)

    def test_a_connection_that_is_lost(self):
        """The ranks of a host whose connection is cut end, and so do the others."""
        job = self.start("--grace-period=0.2", "sh", "-c", "echo $$; exec sleep 1000")
        pids = [int(job.stdout.readline()) for _ in range(4)]
        subprocess.run(["pkill", "-KILL", "-P", str(self.servers[1].pid)], check=True)  # the session's sshd
        _, errors = job.communicate(timeout=DEADLINE)
        self.assertEqual(job.returncode, 1, errors)
        self.assertIn(f"host {HOSTS[1]}: no launcher there, or its connection is lost", errors)
        deadline = time.monotonic() + DEADLINE
        while any(os.path.exists(f"/proc/{pid}") for pid in pids):
            self.assertLess(time.monotonic(), deadline, "a rank is left")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main(verbosity=2)
