#!/usr/bin/env python3
"""tutti run --ssh and --hostfile, with an ssh that is played here: every host is this one.
fault/launch/test_ssh_machines.py has real ones."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]

# Its last two words are the host and the command, for a shell of that host. There is none called "nowhere".
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
[ "$1" != nowhere ] || { echo "ssh: nowhere is not known" >&2; exit 255; }
echo "$1" >>"$SSH_LOG"
exec sh -c "$2"
"""
WHO = 'echo "$RANK of $WORLD_SIZE, node $GROUP_RANK, local $LOCAL_RANK of $LOCAL_WORLD_SIZE: $*"'


class Ssh(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        ssh = self.folder / "my ssh"
        ssh.write_text(SSH, encoding="utf-8")
        ssh.chmod(0o755)
        (self.folder / "ssh").symlink_to("my ssh")
        self.log = self.folder / "log"
        # SSH_LOG is no variable that a host gets: it says something of this login.
        self.env = dict(os.environ, SSH_LOG=str(self.log), TUTTI_SSH=f"{self.folder}/ssh  -p 2222", TELL="a b\nc")

    def start(self, *argv, **popen):
        return subprocess.Popen([TUTTI, "run", "--master-addr=127.0.0.1", *argv], env=self.env, cwd=self.folder,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, **popen)

    def run_hosts(self, *argv):
        process = self.start(*argv)
        out, errors = process.communicate(timeout=DEADLINE)
        return process.returncode, sorted(out.splitlines()), errors

    def test_hosts_and_slots(self):
        code, lines, errors = self.run_hosts("--ssh", "a,me@b:3", "--nproc_per_node=2", "sh", "-c", WHO, "sh", "it's",
                                             "$HOME", "")
        self.assertEqual(code, 0, errors)
        where = [(0, 0, 2), (0, 1, 2), (1, 0, 3), (1, 1, 3), (1, 2, 3)]
        self.assertEqual(lines, [f"{rank} of 5, node {node}, local {local} of {n}: it's $HOME "
                                 for rank, (node, local, n) in enumerate(where)])
        self.assertEqual(sorted(self.log.read_text(encoding="utf-8").split()), ["a", "me@b"])

    def test_hostfiles(self):
        hosts = self.folder / "hosts"
        for text in ("a slots=2 max_slots=8 # the first\n\n#none\nb\n", "a:2\r\nb:1"):
            hosts.write_text(text, encoding="utf-8")
            code, lines, errors = self.run_hosts("--hostfile=hosts", "sh", "-c", "echo $RANK $GROUP_RANK")
            self.assertEqual((code, lines), (0, ["0 0", "1 0", "2 1"]), errors)

    def test_this_host_needs_no_ssh(self):
        code, lines, errors = self.run_hosts("--ssh=localhost,b", "sh", "-c", "echo $RANK")
        self.assertEqual((code, lines), (0, ["0", "1"]), errors)
        self.assertEqual(self.log.read_text(encoding="utf-8").split(), ["b"])

    def test_environment_and_directory(self):
        code, lines, errors = self.run_hosts("--ssh=a,b", "sh", "-c", "pwd; printf '%s\\n' \"$TELL\"; env")
        self.assertEqual(code, 0, errors)
        text = "\n".join(lines)
        self.assertEqual(lines.count(os.path.realpath(self.folder)), 2)
        self.assertEqual(lines.count("a b"), 2)
        for private in ("SSH_LOG=", "TUTTI_SSH=", "TT_SECRET=", "TUTTI_REMOTE_NODE="):
            self.assertNotIn(private, text)

    def test_a_failure_is_told_once(self):
        code, _, errors = self.run_hosts("--ssh=a,b,c", "sh", "-c", "[ $RANK != 1 ] || exit 7; exec sleep 1000")
        self.assertEqual(code, 7, errors)
        self.assertEqual(len(re.findall("rank 1 failed first: exit code 7", errors)), 1, errors)

    def test_a_host_that_cant_be_reached(self):
        code, _, errors = self.run_hosts("--ssh=a,nowhere", "--grace-period=0.1", "sleep", "1000")
        self.assertEqual(code, 1, errors)
        self.assertIn("host nowhere: no launcher there", errors)

    def test_an_ssh_that_is_missing(self):
        self.env["TUTTI_SSH"] = "/no/such/ssh"
        code, _, errors = self.run_hosts("--ssh=a,b", "true")
        self.assertEqual(code, 1)
        self.assertIn("host a: can't run /no/such/ssh: No such file", errors)

    def test_an_ssh_of_many_words(self):
        fake = f"{self.folder}/ssh -p 2222"
        self.env["TUTTI_SSH"] = "env " + " ".join(f"A{i}=1" for i in range(60)) + " " + fake
        code, lines, errors = self.run_hosts("--ssh=a,b", "sh", "-c", "echo $RANK")
        self.assertEqual((code, lines), (0, ["0", "1"]), errors)
        for words in (f"env {'A=1 ' * 200}{fake}", f"env A={'1' * 5000} {fake}"):
            self.env["TUTTI_SSH"] = words
            code, _, errors = self.run_hosts("--ssh=a,b", "true")
            self.assertEqual(code, 1, errors)
            self.assertIn("TUTTI_SSH: expected at most 127 words in 4095 bytes", errors)

    def end_by(self, sig):
        """End a job by a signal to the command; end of file on stdout: no rank is left. The exit code."""
        process = self.start("--ssh=a,b", "--grace-period=0.2", "sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual([process.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
        process.send_signal(sig)
        process.communicate(timeout=DEADLINE)
        return process.returncode

    def test_signals(self):
        self.assertEqual(self.end_by(signal.SIGTERM), 128 + signal.SIGTERM)
        self.assertEqual(self.end_by(signal.SIGKILL), -signal.SIGKILL)

    def test_an_ssh_that_hangs(self):
        """It takes nothing of its input: with a large environment the order waits, with a small one the signals do."""
        hang = self.folder / "hang"
        hang.write_text("#!/bin/sh\necho ready\nexec sleep 1000\n", encoding="utf-8")
        hang.chmod(0o755)
        self.env["TUTTI_SSH"] = str(hang)
        for signals, size in ((2, 1), (1, 100000)):
            self.env["LARGE"] = "x" * size
            process = self.start("--ssh=a,b", "true")
            self.assertEqual([process.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                self.assertIn("got SIGTERM", process.stderr.readline())
            process.communicate(timeout=DEADLINE)
            self.assertEqual(process.returncode, 143)

    def test_a_host_that_hangs(self):
        """Its ssh takes all, answers nothing and never ends. One signal is enough to end the job, after a while."""
        hang = self.folder / "hang"
        hang.write_text("#!/bin/sh\necho ready\nsleep 1000 & exec cat >/dev/null\n", encoding="utf-8")
        hang.chmod(0o755)
        self.env["TUTTI_SSH"] = str(hang)
        process = self.start("--ssh=a", "--grace-period=0", "true")
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 143, errors)
        self.assertIn("host a has not ended in time: not waiting for it\n", errors)
        self.assertNotIn("no launcher there", errors)

    def test_an_ssh_that_runs_nothing(self):
        for ssh in ("/bin/true", "/bin/false"):
            self.env["TUTTI_SSH"] = ssh
            code, _, errors = self.run_hosts("--ssh=a,b", "sleep", "1000")
            self.assertEqual(code, 1)
            self.assertRegex(errors, "host [ab]: no launcher there")

    def test_another_command(self):
        """A forced command takes the place of ours there, reads all that comes, and ends well."""
        forced = self.folder / "forced"
        forced.write_text(SSH.replace('[ "$1" != nowhere ]', '[ "$1" != forced ] || { cat >/dev/null & exit 0; }\n'
                                      '[ "$1" != nowhere ]'), encoding="utf-8")
        forced.chmod(0o755)
        self.env["TUTTI_SSH"] = str(forced)
        for hosts in ("forced", "a,forced"):
            code, _, errors = self.run_hosts(f"--ssh={hosts}", "--grace-period=0.1", "sleep", "1000")
            self.assertEqual(code, 1, errors)
            self.assertRegex(errors, "host forced: (another command than tutti ran there|no launcher there)")

    def test_ranks_that_end_with_what_means_something_here(self):
        for rank, job in ((253, 254), (254, 254), (252, 252), (0, 0)):
            code, _, errors = self.run_hosts("--ssh=a", "sh", "-c", f"exit {rank}")
            self.assertEqual(code, job, errors)

    def test_a_rank_that_ends_with_255(self):
        code, _, errors = self.run_hosts("--ssh=a", "sh", "-c", "exit 255")
        self.assertEqual(code, 254)
        self.assertNotIn("no launcher", errors)

    def test_a_far_end_that_is_killed(self):
        """Its launcher and ranks end, and so does the job."""
        process = self.start("--ssh=a,b", "--grace-period=0.2", "sh", "-c", "echo ready; exec sleep 1000")
        self.assertEqual([process.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
        os.kill(int(children.stdout.split()[1]), signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("no launcher there, or its connection is lost", errors)

    def test_beginnings_of_flags(self):
        code, lines, errors = self.run_hosts("--ss", "a,b", "--np=2", "--nno=2", "sh", "-c", "echo $RANK")
        self.assertEqual((code, lines), (0, ["0", "1", "2", "3"]), errors)

    def test_wrong_usage(self):
        (self.folder / "empty").write_text("# nothing\n", encoding="utf-8")
        (self.folder / "bad").write_text("a\nb 4\n", encoding="utf-8")
        os.mkfifo(self.folder / "pipe")
        for argv, text in ((("--ssh=a,,b",), 'expected HOST or HOST:SLOTS, got ""'),
                           (("--ssh=-oProxyCommand=x",), 'got "-oProxyCommand=x"'),
                           (("--ssh=a;b",), 'got "a;b"'),
                           (("--ssh=a:0",), "slots of a host: expected a number from 1"),
                           (("--ssh=a,b,a:2",), "host a is listed twice"),
                           (("--ssh=a", "--hostfile=x"), "expected one of them"),
                           (("--ssh=a,b", "--nnodes=3"), "--nnodes is 3, but --ssh lists 2 hosts"),
                           (("--ssh=a", "--nnodes=2"), "--nnodes is 2, but --ssh lists 1 host\n"),
                           (("--ssh=a", "--node-rank=0"), "--node-rank and --ssh were given"),
                           (("--ssh=a", "--dry-run"), "--dry-run and --ssh were given: expected one of them"),
                           (("--hostfile=missing",), "missing: can't be read: No such file"),
                           (("--hostfile=pipe",), "pipe: can't be read: expected a file, got a folder, a pipe"),
                           (("--hostfile=/",), "/: can't be read: expected a file, got a folder"),
                           (("--hostfile=empty",), "expected a host a line, found none"),
                           (("--hostfile=bad",), "bad, line 2: expected HOST slots=N, got \"4\"")):
            code, _, errors = self.run_hosts(*argv, "true")
            self.assertEqual(code, 2, (argv, errors))
            self.assertIn(text, errors)
        code, _, errors = self.run_hosts("--ssh=a")
        self.assertEqual(code, 2)
        self.assertIn("expected a program", errors)

    def test_the_far_end_alone(self):
        for text in ("", "hello\n", "tutti 0.0 100\n" + "x" * 100, "tutti"):
            done = subprocess.run([TUTTI, "remote-node"], input=text, capture_output=True, text=True, timeout=DEADLINE,
                                  check=False)
            self.assertEqual(done.returncode, 255)
            self.assertRegex(done.stderr, "^tutti run: host ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
