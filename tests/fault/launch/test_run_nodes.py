#!/usr/bin/env python3
"""tutti run on several nodes, here several launchers on one host: they find each other, fail together, name the same
rank, and lose nobody unnoticed."""
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, STRICT, free_port  # noqa: E402
from torch_client import TorchClient  # noqa: E402

TUTTI = os.environ["TUTTI"]


class Job:
    """Launchers of one job. Every one leads a process group; end of file on its output says that nothing of it is
    left."""

    def __init__(self, script, nodes=2, nproc=2, flags=(), only=None, per_node=None):
        self.port = free_port()
        self.nodes = {}
        for node in (range(nodes) if only is None else only):
            self.start(node, script, nodes, nproc, tuple(flags) + tuple((per_node or {}).get(node, ())))

    def start(self, node, script, nodes, nproc, flags):
        argv = [TUTTI, "run", f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={nproc}",
                "--master-addr=127.0.0.1", f"--master-port={self.port}", *flags, "sh", "-c", script]
        self.nodes[node] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_for_line(self, node, text):
        for line in self.nodes[node].stdout:
            if text in line:
                return
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


def call_as_torch(job):
    """Any process of this user's on its machine may use a job's store, with --store-auth=local."""
    return TorchClient(socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE))


# What a rank gets of the job secret.
SECRET = '"$(cat /proc/self/fd/$TT_SECRET_FD)"'
READY = "echo ready; "
FOREVER = READY + "exec sleep 1000"


class Nodes(unittest.TestCase):
    def test_ranks_count_through_the_nodes(self):
        say = ('echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK '
               '$MASTER_PORT"')
        job = Job(say, nodes=3, nproc=1, only=())
        for node, nproc in enumerate((2, 1, 3)):
            job.start(node, say, 3, nproc, ())
        seen = set()
        for node, (code, out, err) in job.end().items():
            self.assertEqual(code, 0, err)
            seen.update(out.splitlines())
        expected = [(0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 1, 1), (3, 0, 3, 2), (4, 1, 3, 2), (5, 2, 3, 2)]
        self.assertEqual(seen, {f"{r} {l} 6 {n} {g} 3 {r} {job.port}" for r, l, n, g in expected})

    def test_ranks_count_through_the_nodes_of_a_role(self):
        say = 'echo "$RANK $WORLD_SIZE $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE"'
        job = Job(say, nodes=3, nproc=1, only=())
        for node, (nproc, role) in enumerate(((2, "a"), (1, "b"), (3, "a"))):
            job.start(node, say, 3, nproc, (f"--role={role}",))
        seen = set()
        for code, out, err in job.end().values():
            self.assertEqual(code, 0, err)
            seen.update(out.splitlines())
        expected = [(0, "a", 0, 5), (1, "a", 1, 5), (2, "b", 0, 1), (3, "a", 2, 5), (4, "a", 3, 5), (5, "a", 4, 5)]
        self.assertEqual(seen, {f"{r} 6 {role} {n} {of}" for r, role, n, of in expected})

    def test_all_reports_name_the_rank_that_failed(self):
        job = Job('if [ $RANK = 3 ]; then echo "it was me" >&2; exit 7; fi; exec sleep 1000')
        for code, _, err in job.end().values():
            self.assertEqual(code, 7, err)
            self.assertRegex(err, r"rank 3 failed first: exit code 7 \(node 1 \(.*\), local rank 1, pid \d+")
            self.assertIn("    | it was me", err)

    def test_a_signal_is_told_as_such(self):
        for code, _, err in Job('[ $RANK = 0 ] && kill -SEGV $$; exec sleep 1000').end().values():
            self.assertEqual(code, 139)
            self.assertRegex(err, r"rank 0 failed first: killed by SIGSEGV .*node 0")

    def test_all_nodes_wait_for_the_last(self):
        """The first node to be done does not leave before it knows how the others ended."""
        job = Job("[ $GROUP_RANK = 0 ] && exit 0; sleep 1; [ $RANK = 2 ] && exit 5; exit 0")
        for code, _, err in job.end().values():
            self.assertEqual(code, 5)
            self.assertIn("rank 2 failed first: exit code 5", err)

    def test_a_lost_launcher_ends_the_job(self):
        for lost, left in ((0, 1), (1, 0)):
            job = Job(FOREVER, flags=["--rdzv-conf=heartbeat=3"])
            for node in (0, 1):
                job.wait_for_line(node, "ready")
            job.nodes[lost].kill()
            results = job.end()
            code, _, err = results[left]
            self.assertEqual(code, 1, err)
            self.assertRegex(err, rf"node {lost} \(.*\) is lost: ")
            self.assertNotIn("failed first", err)

    def test_a_frozen_launcher_is_lost(self):
        job = Job(FOREVER, flags=["--rdzv-conf=heartbeat=3"])
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        job.nodes[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        _, err = job.nodes[0].communicate(timeout=DEADLINE)
        self.assertLess(time.monotonic() - began, 12 if STRICT else DEADLINE)
        self.assertRegex(err, r"node 1 \(.*\) is lost: its launcher has been silent for \d+\.\d s")
        job.nodes[1].send_signal(signal.SIGCONT)  # it finds that the others have gone on without it
        _, err = job.nodes[1].communicate(timeout=DEADLINE)
        self.assertEqual(job.nodes[1].returncode, 1)
        self.assertIn("is lost", err)

    def test_a_signal_ends_all_nodes(self):
        for node in (0, 1):
            job = Job(FOREVER)
            for n in (0, 1):
                job.wait_for_line(n, "ready")
            job.nodes[node].send_signal(signal.SIGINT)
            results = job.end()
            self.assertEqual(results[node][0], 130)
            self.assertIn(f"node {node} ", results[1 - node][2])
            self.assertIn("got SIGINT: ending the workers here, too", results[1 - node][2])

    def test_a_node_that_never_comes(self):
        job = Job("true", nodes=3, flags=["--rdzv-conf=timeout=3"], only=(0, 2))
        told = "nodes on other hosts can't reach this one at 127.0.0.1: give all the --master-addr"
        for node in (0, 2):
            self.assertTrue(any(told in line for line in job.nodes[node].stderr))
        for code, out, err in job.end().values():
            self.assertEqual(code, 1)
            self.assertRegex(err,
                             "not all of 3 nodes came within 3 s: waiting for node 1|node 0 ended before all nodes")
        for nodes, missing in ((4, "node 1, node 3"), (100, r"node 1(, node \d+){15,20} and 7\d more")):
            job = Job("true", nodes=nodes, flags=["--rdzv-conf=timeout=1"], only=(0, 2))
            self.assertRegex(job.end()[0][2], f"came within 1 s: waiting for {missing}\n")
        job = Job("true", flags=["--rdzv-conf=timeout=1"], only=(1,))
        code, _, err = job.end()[1]
        self.assertEqual(code, 1)
        self.assertIn("node 0 did not come within 1 s", err)
        self.assertIn(f"127.0.0.1:{job.port}", err)

    def test_a_launcher_that_is_started_twice_is_told(self):
        job = Job(FOREVER, nproc=1)
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        for node, told in ((0, "is another launcher node 0, too?"), (1, "another launcher is node 1 already")):
            first = job.nodes[node]
            job.start(node, "true", 2, 1, ())
            _, err = job.nodes[node].communicate(timeout=DEADLINE)
            self.assertEqual(job.nodes[node].returncode, 1, err)
            self.assertIn(told, err)
            job.nodes[node] = first
        job.nodes[0].send_signal(signal.SIGINT)
        job.end()

    def test_a_signal_while_joining(self):
        job = Job("true", only=(0,))
        self.assertIn("has no secret", job.nodes[0].stderr.readline())
        self.assertTrue(any("waiting for node 1" in line for line in job.nodes[0].stderr))
        job.nodes[0].send_signal(signal.SIGTERM)
        self.assertEqual(job.end()[0][0], 128 + signal.SIGTERM)

    def test_nodes_that_disagree(self):
        for flags, text in ((["--rdzv-id=a"], "belongs to job"), (["--nnodes=3"], "was started with --nnodes=")):
            results = Job("true", per_node={1: flags}).end()
            self.assertEqual([results[node][0] for node in (0, 1)], [1, 1])
            self.assertIn(text, results[0][2] + results[1][2])
            for _, _, err in results.values():
                self.assertRegex(err, f"{text}|node 0 ended before all nodes had come")

    def test_an_id_that_is_not_utf8(self):
        results = Job("true", flags=[b"--rdzv-id=a\xff"]).end()
        self.assertEqual([results[node][0] for node in (0, 1)], [0, 0], results)

    def test_a_program_missing_on_one_node_is_known_on_all(self):
        """Nobody waits for the rendezvous timeout, and nothing is started."""
        for missing in (1, 0):
            job = Job("echo started", nodes=3, nproc=1, only=[n for n in range(3) if n != missing],
                      flags=["--rdzv-conf=timeout=15"])
            job.nodes[missing] = subprocess.Popen(
                [TUTTI, "run", "--nnodes=3", f"--node-rank={missing}", f"--master-port={job.port}",
                 "./no-such-program"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
            results = job.end()
            self.assertEqual(results[missing][0], 127)
            self.assertIn("tutti run: ./no-such-program: there is no such file", results[missing][2])
            told = rf"node {missing} \(.*\) can't start its ranks: ./no-such-program: there is no such file"
            for node in {0, 1, 2} - {missing}:
                code, out, err = results[node]
                self.assertEqual((code, out), (1, ""), err)
                late = "|node 0 ended before all nodes|node 0 did not come|closed the connection|Connection reset"
                self.assertRegex(err, told + (late if node and missing else ""))

    def test_two_launchers_with_one_number(self):
        job = Job(FOREVER, nodes=2, only=(0, 1))
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        job.start(2, FOREVER, 2, 1, ["--node-rank=1"])
        _, err = job.nodes[2].communicate(timeout=DEADLINE)
        self.assertEqual(job.nodes.pop(2).returncode, 1)
        self.assertIn("another launcher is node 1 already", err)
        self.assertIsNone(job.nodes[0].poll())
        job.nodes[0].send_signal(signal.SIGINT)
        job.end()


class Secrets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.secret = pathlib.Path(self.folder.name) / "secret"
        self.text = f"a-secret-nobody-may-see-{secrets.token_hex(8)}"
        self.secret.write_text(self.text)
        self.secret.chmod(0o600)

    def tearDown(self):
        self.folder.cleanup()

    def is_in(self, path):
        try:
            return self.text in path.read_text(errors="replace")
        except OSError:
            return False

    def test_it_is_handed_down_and_nowhere_to_be_seen(self):
        job = Job(f'[ {SECRET} = "' + self.text[:2] + '""' + self.text[2:] + '" ] || exit 9; ' + FOREVER,
                  flags=[f"--secret-file={self.secret}"])
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        seen = [path for name in ("cmdline", "environ") for path in pathlib.Path("/proc").glob(f"[0-9]*/{name}")
                if self.is_in(path)]
        job.nodes[0].send_signal(signal.SIGINT)
        self.assertEqual(seen, [])
        for _, out, err in job.end().values():
            self.assertNotIn(self.text, out + err)
            self.assertNotIn("has no secret", err)

    def test_a_launcher_without_it_on_the_same_machine_is_refused(self):
        """The store lets it in, as it would PyTorch's clients; the launchers don't."""
        for without in (0, 1):
            job = Job("echo started", flags=["--rdzv-conf=timeout=2"],
                      per_node={1 - without: [f"--secret-file={self.secret}"]})
            results = job.end()
            self.assertEqual([results[node][:2] for node in (0, 1)], [(1, ""), (1, "")], results)
            self.assertRegex(results[without][2] + results[1 - without][2],
                             f"node {without} has no job secret, but node {1 - without} has one|"
                             "the other side has none")
        job = Job("echo started", flags=["--store-auth=none"], per_node={0: [f"--secret-file={self.secret}"]})
        for code, out, err in job.end().values():
            self.assertEqual((code, out), (0, "started\nstarted\n"), err)

    def test_a_launcher_without_it_is_refused(self):
        job = Job("true", flags=["--rdzv-conf=timeout=3"],
                  per_node={0: [f"--secret-file={self.secret}", "--store-auth=required"]})
        for code, _, err in job.end().values():
            self.assertEqual(code, 1, err)
            self.assertNotIn(self.text, err)

    def test_forged_news_do_nothing(self):
        """Who may write the store, but has no secret, does not end the workers."""
        go = pathlib.Path(self.folder.name) / "go"
        job = Job(READY + f"until [ -e {go} ]; do sleep 0.05; done", nproc=1, flags=[f"--secret-file={self.secret}"])
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        stranger = call_as_torch(job)
        for node in (0, 1):
            forged = '{"what":"signal","signal":2,"node":%d}' % node
            stranger.set(f"tutti/nodes/news/{stranger.add('tutti/nodes/news', 1)}", forged)
            beats = [stranger.get(f"tutti/nodes/beat/{node}")]
            known = int(beats[0].split(b"\0")[0].split()[1])
            stranger.set(f"tutti/nodes/news/{node}/{known + 1}", forged)
            stranger.set(f"tutti/nodes/beat/{node}", "1000000 1")
            while len(beats) < 5:  # it goes on, and the other one reads it
                beats += [beat for beat in [stranger.get(f"tutti/nodes/beat/{node}")] if beat != beats[-1]]
        self.assertEqual([p.poll() for p in job.nodes.values()], [None, None])
        go.touch()
        results = job.end()
        self.assertEqual([results[node][0] for node in (0, 1)], [0, 0], results)

    def wait_for_card_of_node_0(self, job):
        stranger = None
        while not stranger:
            try:
                stranger = call_as_torch(job)
            except ConnectionRefusedError:
                time.sleep(0.01)
        while not stranger.has("tutti/nodes/card/0"):
            time.sleep(0.01)
        return stranger

    def test_a_forged_card_is_refused(self):
        job = Job("echo started", nproc=1, flags=[f"--secret-file={self.secret}"], only=(0,))
        stranger = self.wait_for_card_of_node_0(job)
        card = stranger.get("tutti/nodes/card/0").split(b"\0")[0].decode()
        stranger.set("tutti/nodes/card/1", card.replace('"hostname":"', '"hostname":"forged-'))
        stranger.set("tutti/nodes/list", "0 1 ")
        refused = '"tutti/nodes/card/1" as the words of node 1 is refused'
        self.assertTrue(any(refused in line for line in job.nodes[0].stderr))
        job.start(1, "echo started", 2, 1, [f"--secret-file={self.secret}"])
        for code, out, err in job.end().values():
            self.assertEqual((code, out), (0, "started\n"), err)
            self.assertNotIn("forged", err)

    def recorded_end_of_node_1(self):
        """All that node 1 of a job with this secret writes until it has told that it got SIGTERM."""
        go = pathlib.Path(self.folder.name) / "go"
        stay = f"trap '' TERM; echo ready; until [ -e {go} ]; do sleep 0.05; done"
        job = Job(stay, nproc=1, flags=[f"--secret-file={self.secret}"])
        for node in (0, 1):
            job.wait_for_line(node, "ready")
        stranger, recorded, number = call_as_torch(job), {}, 0
        job.nodes[1].send_signal(signal.SIGTERM)
        while b'"signal"' not in recorded.get(f"tutti/nodes/news/1/{number}", b""):
            number += 1
            while not stranger.has(f"tutti/nodes/news/1/{number}"):
                time.sleep(0.01)
            recorded[f"tutti/nodes/news/1/{number}"] = stranger.get(f"tutti/nodes/news/1/{number}")
        for key in ("card", "alive"):
            recorded[f"tutti/nodes/{key}/1"] = stranger.get(f"tutti/nodes/{key}/1")
        while int(stranger.get("tutti/nodes/beat/1").split(b"\0")[0].split()[1]) < number:
            time.sleep(0.01)
        recorded["tutti/nodes/beat/1"] = stranger.get("tutti/nodes/beat/1")
        go.touch()
        job.end()
        go.unlink()
        return recorded

    def test_what_was_recorded_in_an_earlier_job_is_refused(self):
        recorded = self.recorded_end_of_node_1()
        job = Job("echo started", nproc=1, flags=[f"--secret-file={self.secret}"], only=(0,))
        stranger = self.wait_for_card_of_node_0(job)
        for key, value in recorded.items():
            stranger.set(key, value)
        stranger.set("tutti/nodes/list", "0 1 ")
        refused = '"tutti/nodes/card/1" as the words of node 1 is refused'
        self.assertTrue(any(refused in line for line in job.nodes[0].stderr))
        job.start(1, "echo started", 2, 1, [f"--secret-file={self.secret}"])
        for code, out, err in job.end().values():
            self.assertEqual((code, out), (0, "started\n"), err)

    def given_by_hand(self, **env):
        """What a rank of a job on one node gets."""
        say = f'echo {SECRET} "${{TT_SECRET-none}}" "${{TT_SECRET_FILE-none}}"'
        done = subprocess.run([TUTTI, "run", "--standalone", "--nproc-per-node=2", "sh", "-c", say],
                              capture_output=True, text=True, timeout=DEADLINE,
                              env={k: v for k, v in os.environ.items() if not k.startswith("TT_SECRET")} | env)
        first, second = done.stdout.splitlines()
        self.assertEqual(first, second, done.stderr)
        return first

    def test_one_node_makes_its_own(self):
        seen = {self.given_by_hand(), self.given_by_hand(), self.given_by_hand(TT_SECRET_FD="99")}
        self.assertEqual(len(seen), 3)
        for line in seen:
            self.assertRegex(line, "^[0-9a-f]{64} none none$")

    def test_what_is_given_by_hand_is_handed_down(self):
        self.assertEqual(self.given_by_hand(TT_SECRET=self.text), f"{self.text} none none")
        self.assertEqual(self.given_by_hand(TT_SECRET_FILE=str(self.secret)), f"{self.text} none {self.secret}")
        self.assertEqual(self.given_by_hand(TT_SECRET=self.text, TT_SECRET_FILE="/of/another"),
                         f"{self.text} none none")

    def test_a_file_that_others_can_read_is_refused(self):
        self.secret.chmod(0o644)
        done = subprocess.run([TUTTI, "run", "--standalone", f"--secret-file={self.secret}", "true"],
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("secret", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
