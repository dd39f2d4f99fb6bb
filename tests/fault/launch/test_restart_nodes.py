#!/usr/bin/env python3
"""tutti run --max-restarts on several nodes, here several launchers on one host: a failure on any restarts the ranks of
all, with an empty store at the same port; a signal or a lost launcher ends the job."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402
from torch_client import TorchClient  # noqa: E402

TUTTI, PROGRAMS = os.environ["TUTTI"], pathlib.Path(os.environ["TT_PROGRAMS"])
ATTEMPT = "$TORCHELASTIC_RESTART_COUNT"
FOREVER = "exec sleep 1000"


class Job:
    """Launchers of one job, each the leader of a process group; end of file on its output: nothing of it is left."""

    started = []  # launchers of this test

    def __init__(self, *program, nodes=2, nproc=2, flags=("--max-restarts=3",), per_node=None):
        self.port = free_port()
        self.nodes = {}
        for node in range(nodes):
            argv = [TUTTI, "run", f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={nproc}",
                    "--master-addr=127.0.0.1", f"--master-port={self.port}", "--settle-period=1000", *flags,
                    *(per_node or {}).get(node, ()), *program]
            self.nodes[node] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, text=True, start_new_session=True)
            Job.started.append(self.nodes[node])

    def wait_for_line(self, node, text):
        for line in self.nodes[node].stdout:
            if text in line:
                return line
        raise AssertionError(f"node {node} ended before it said {text}: {self.nodes[node].stderr.read()}")

    def end(self):
        """{node: (exit code, stdout, stderr)}"""
        results = {}
        for node, process in self.nodes.items():
            try:
                out, err = process.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                for p in self.nodes.values():
                    os.killpg(p.pid, signal.SIGKILL)
                raise
            results[node] = (process.returncode, out, err)
        return results


class Restarts(unittest.TestCase):
    def tearDown(self):
        """End what a test that failed has left."""
        for launcher in Job.started:
            if launcher.poll() is None:
                launcher.kill()
                launcher.communicate(timeout=DEADLINE)
        Job.started.clear()

    def test_all_nodes_start_again(self):
        with tempfile.TemporaryDirectory() as folder:
            all_said = f"test $(ls {folder} | grep -c ^{ATTEMPT}[.]) = 6"
            job = Job("sh", "-c", f"echo $RANK in {ATTEMPT}; : > {folder}/{ATTEMPT}.$RANK; "
                      f"test {ATTEMPT} = 2 && exit 0; test $RANK = $((2 + {ATTEMPT})) || {FOREVER}; "
                      f"until {all_said}; do sleep 0.01; done; echo it was me >&2; exit 7", nodes=3)
            ended = job.end()
        said = set()
        for code, out, err in ended.values():
            self.assertEqual(code, 0, err)
            said.update(out.splitlines())
            self.assertRegex(err, r"attempt 1 of 4: rank 2 \(node 1 \(.*\), pid \d+\) ended with exit code 7; starting")
            self.assertRegex(err, r"attempt 2 of 4: rank 3 \(node 1 \(.*\), pid \d+\) ended with exit code 7; starting")
            self.assertEqual(err.count("    | it was me"), 2)
            self.assertNotIn("failed first", err)
        self.assertEqual(said, {f"{rank} in {attempt}" for rank in range(6) for attempt in range(3)})

    def test_a_node_that_succeeded_starts_again_too(self):
        job = Job("sh", "-c", f"echo came; test $GROUP_RANK = 0 && exit 0; sleep 0.5; test {ATTEMPT} = 1 || exit 3",
                  flags=["--max-restarts=1"])
        for code, out, err in job.end().values():
            self.assertEqual(code, 0, err)
            self.assertEqual(out.count("came"), 4)

    def test_the_last_failure_is_everybodys(self):
        job = Job("sh", "-c", f"test $RANK = {ATTEMPT} && exit $((10 + $RANK)); {FOREVER}",
                  flags=["--max-restarts=2", "--settle-period=1"])
        for code, _, err in job.end().values():
            self.assertEqual(code, 12, err)
            self.assertRegex(err, r"rank 2 failed first: exit code 12 \(node 1 ")
            self.assertIn("that was attempt 3 of 3; before it:", err)
            self.assertRegex(err, r"  attempt 1: rank 0 \(node 0 .*exit code 10")
            self.assertRegex(err, r"  attempt 2: rank 1 \(node 0 .*exit code 11")

    def test_the_store_is_empty_again(self):
        """What an old rank has set, also as PyTorch's client, is gone; its port is the same."""
        script = (f'test {ATTEMPT} = 1 || {{ test $RANK = 3 && echo ready; {FOREVER}; }}; '
                  'test $RANK = 3 && { echo again; sleep 1000; }; sleep 1000')
        job = Job("sh", "-c", "echo $$; " + script)
        job.wait_for_line(0, "")
        victim = int(job.wait_for_line(1, ""))
        job.wait_for_line(1, "ready")
        client = TorchClient(socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE))
        client.set("left", "over")
        self.assertTrue(client.has("left"))
        os.kill(victim, signal.SIGKILL)
        job.wait_for_line(1, "again")
        with self.assertRaises(OSError):
            client.has("left")
        client.socket.close()
        client = TorchClient(socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE))
        self.assertFalse(client.has("left"))
        client.socket.close()
        job.nodes[0].send_signal(signal.SIGTERM)
        self.assertEqual(job.end()[0][0], 143)

    def test_old_news_do_not_pile_up(self):
        """What launchers have told each other of an attempt is deleted after the next."""
        job = Job("sh", "-c", f"test {ATTEMPT} = 6 || exit 3; echo last; {FOREVER}", flags=["--max-restarts=6"])
        for node in (0, 1):
            job.wait_for_line(node, "last")
        client = TorchClient(socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE))
        # Each announces two failures and that its ranks are gone; node 0 repeats those of others, and says what
        # follows.
        left = {node: [i for i in range(1, 100) if client.has(f"tutti/nodes/news/{node}/{i}")] for node in (0, 1)}
        client.socket.close()
        job.nodes[0].send_signal(signal.SIGTERM)
        results = job.end()
        self.assertTrue(left[0], results)
        self.assertLessEqual(max(len(left[0]), len(left[1])), 14, left)

    def test_ranks_of_different_attempts_never_meet(self):
        for _ in range(3):
            job = Job(str(PROGRAMS / "restarting"), "3")
            for attempt in range(3):
                pids = {}
                for node in (0, 1):
                    for _ in range(2):
                        pids.update([map(int, re.search(rf"born {attempt} (\d) (\d+) ", job.wait_for_line(
                            node, f"born {attempt} ")).groups())])
                time.sleep(random.uniform(0, 0.1))
                os.kill(pids[random.randrange(4)], signal.SIGKILL)
            for code, _, err in job.end().values():
                self.assertEqual(code, 0, err)
                self.assertNotIn("stale", err)
                self.assertEqual(len(re.findall(r"attempt \d of 4: rank \d .* was killed by SIGKILL", err)), 3, err)

    def test_readers_see_the_current_attempt(self):
        """tutti top, and the trace at the end."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.json")
            job = Job(str(PROGRAMS / "restarting"), "2", nproc=1, per_node={0: [f"--trace={trace}"]})
            for attempt in range(2):
                pids = {node: int(job.wait_for_line(node, f"up {attempt} {node} ").split()[3].rstrip("."))
                        for node in (0, 1)}
                if attempt:
                    deadline, seen = time.monotonic() + DEADLINE, None
                    while seen != pids and time.monotonic() < deadline:
                        look = subprocess.run([TUTTI, "top", "--json", "--once", str(job.nodes[0].pid)],
                                              capture_output=True, text=True, timeout=DEADLINE)
                        ranks = json.loads(look.stdout)["ranks"] if look.returncode == 0 else []
                        seen = {rank["rank"]: rank["pid"] for rank in ranks if rank["state"] == "runs"}
                    self.assertEqual(seen, pids)
                os.kill(pids[1], signal.SIGKILL)
            for code, _, err in job.end().values():
                self.assertEqual(code, 0, err)
            with open(trace, encoding="utf-8") as f:
                events = json.load(f)["traceEvents"]
        calls = [e for e in events if e["ph"] == "X"]
        self.assertEqual({e["pid"] for e in calls}, {1, 2})  # processes count from 1
        self.assertFalse([e["name"] for e in events if "SIGKILL" in e.get("name", "")])

    def test_a_signal_ends_all_nodes(self):
        for node in (0, 1):
            job = Job("sh", "-c", f"test {ATTEMPT} = 0 || echo again; test {ATTEMPT} = 1 || test $RANK = 0 || exit 3; "
                      f"{FOREVER}", flags=["--max-restarts=1000"])
            for n in (0, 1):
                job.wait_for_line(n, "again")
            job.nodes[node].send_signal(signal.SIGINT)
            results = job.end()
            self.assertEqual(results[node][0], 130)
            self.assertIn("got SIGINT: ending the workers here, too", results[1 - node][2])

    def test_a_signal_between_attempts_ends_all_nodes(self):
        for i in range(6):
            job = Job("sh", "-c", "echo came; exit 3", flags=["--max-restarts=1000000"])
            job.wait_for_line(i % 2, "came")
            time.sleep(random.uniform(0, 0.3))
            job.nodes[i % 2].send_signal(signal.SIGTERM)
            results = job.end()
            self.assertEqual(results[i % 2][0], 143, results)
            self.assertNotEqual(results[1 - i % 2][0], 0, results)

    def test_a_launcher_that_is_killed_between_attempts_ends_all_nodes(self):
        for i in range(6):
            job = Job("sh", "-c", "echo came; exit 3", flags=["--max-restarts=1000000", "--rdzv-conf=heartbeat=3",
                                                              "--settle-period=1"])
            job.wait_for_line(i % 2, "came")
            time.sleep(random.uniform(0, 0.3))
            job.nodes[i % 2].kill()
            results = job.end()
            code, _, err = results[1 - i % 2]
            self.assertNotEqual(code, 0, err)
            self.assertRegex(err, "is lost: |node 0 ended before all nodes had come")

    def test_a_lost_launcher_is_final(self):
        for lost, left in ((0, 1), (1, 0)):
            job = Job("sh", "-c", f"echo ready; {FOREVER}", flags=["--max-restarts=3", "--rdzv-conf=heartbeat=3",
                                                                  "--settle-period=1"])
            for node in (0, 1):
                job.wait_for_line(node, "ready")
            job.nodes[lost].kill()
            code, _, err = job.end()[left]
            self.assertEqual(code, 1, err)
            self.assertRegex(err, rf"node {lost} \(.*\) is lost: ")
            self.assertNotIn("starting again", err)

    def test_a_lost_keeper_is_final(self):
        job = Job("sh", "-c", f"echo ready $PPID; {FOREVER}", flags=["--max-restarts=3", "--settle-period=1"])
        job.wait_for_line(0, "ready")
        keeper = int(job.wait_for_line(1, "ready").split()[1])
        job.wait_for_line(1, "ready")  # nothing is being started any more
        os.kill(keeper, signal.SIGKILL)
        results = job.end()
        self.assertIn("was killed: ending the job", results[1][2])
        self.assertEqual(results[1][0], 1)
        self.assertRegex(results[0][2], r"node 1 \(.*\) is lost: its launcher has ended")
        self.assertNotEqual(results[0][0], 0)
        for _, _, err in results.values():
            self.assertNotIn("starting again", err)

    def test_a_lost_keeper_is_the_cause_on_all_nodes(self):
        job = Job("sh", "-c", f"echo ready $PPID; {FOREVER}", flags=["--settle-period=1"])
        job.wait_for_line(0, "ready")
        keeper = int(job.wait_for_line(1, "ready").split()[1])
        job.wait_for_line(1, "ready")
        os.kill(keeper, signal.SIGKILL)
        for node, (code, _, err) in job.end().items():
            self.assertNotEqual(code, 0, err)
            self.assertRegex(err, "the keeper process .* was killed", node)

    def test_what_cannot_be_executed_on_one_node_ends_all(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text("#!/nothing/here\n", encoding="ascii")
            program.chmod(0o755)
            job = Job(str(program), per_node={0: ["sh"]})
            for node, (code, _, err) in job.end().items():
                self.assertNotEqual(code, 0, err)
                self.assertNotIn("starting again", err)
                self.assertIn("not started again: what can't be executed", err, node)

    def test_nodes_must_agree(self):
        job = Job("true", flags=(), per_node={0: ["--max-restarts=1"], 1: ["--max-restarts=2"]})
        errors = [err for code, _, err in job.end().values() if code]
        self.assertEqual(len(errors), 2)
        self.assertTrue(any("was started with --max-restarts=2, this one with --max-restarts=1" in e for e in errors))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    unittest.main()
