#!/usr/bin/env python3
"""tutti run --health-check-port: the answers tell the truth, and no client keeps the launcher from anything."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
WAIT = "exec sleep 1000"


class Job:
    """A launcher with a port for health checks, ended with the block."""

    def __init__(self, *program, nproc=2, flags=(), port="--health-check-port=0", **variables):
        self.argv = [TUTTI, "run", f"--nproc-per-node={nproc}", "--settle-period=1000", "--grace-period=0.2", port,
                     *flags, *program]
        self.variables = variables

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **self.variables},
                                        start_new_session=True)
        self.said = ""
        self.port = int(self.stderr_line(r"health checks are answered at port (\d+)$").group(1))
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=DEADLINE)
        finally:
            self.process.kill()

    def stderr_line(self, pattern):
        for line in self.process.stderr:
            self.said += line
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"no line {pattern}: {self.said}")

    def stdout_line(self):
        return self.process.stdout.readline().strip()

    def get(self, path="/", method="GET", host="127.0.0.1"):
        """Status, JSON."""
        request = urllib.request.Request(f"http://{host}:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or "null")
        except urllib.error.URLError as error:
            if self.process.poll() is not None:
                error.reason = f"{error.reason}, as the launcher has ended: {self.said}{self.process.stderr.read()}"
            raise

    def wait_until(self, true):
        deadline = time.monotonic() + DEADLINE
        while not true(got := self.get()):
            if time.monotonic() > deadline:
                raise AssertionError(f"still {got}")
            time.sleep(0.01)
        return got[1]

    def raw(self, *parts, whole=True):
        """What comes back for these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as client:
            for part in parts:
                client.sendall(part)
            answer = b""
            while whole and (piece := client.recv(65536)):
                answer += piece
            return answer


class Health(unittest.TestCase):
    def test_all_is_well(self):
        with Job("sh", "-c", WAIT) as job:
            code, told = job.get("/any/path?x=1")
            self.assertEqual(code, 200)
            keys = "healthy", "reason", "node", "attempt", "first_rank", "workers"
            self.assertEqual({key: told[key] for key in keys},
                             {"healthy": True, "reason": None, "node": 0, "attempt": 0, "first_rank": 0, "workers": 2})
            self.assertIn(told["state"], ("joining", "running"))
            self.assertEqual(job.get(method="HEAD"), (200, None))
            self.assertEqual(job.get(method="POST")[0], 405)

    def test_an_id_that_is_not_utf8(self):
        with Job("sh", "-c", WAIT, flags=[b"--rdzv-id=a\xff"]) as job:
            self.assertEqual(job.get()[1]["run_id"], "a?")

    def test_those_that_ended_well_are_well(self):
        with Job("sh", "-c", f"test $RANK = 0 && exit 0; {WAIT}") as job:
            told = job.wait_until(lambda got: got[1]["ended"] == 1 and got[1]["running"] == 1)
            self.assertEqual((told["healthy"], told["state"]), (True, "running"))

    def test_a_failure(self):
        with Job("sh", "-c", f"test $RANK = 1 && exit 7; {WAIT}") as job:
            told = job.wait_until(lambda got: got[0] == 503)
            self.assertRegex(told["reason"], r"^rank 1 \(pid \d+\) ended with exit code 7$")
            self.assertEqual((told["healthy"], told["state"], told["ended"]), (False, "ending", 1))

    def test_a_stopped_worker(self):
        with Job("sh", "-c", f"echo $RANK $$; {WAIT}", nproc=1) as job:
            pid = int(job.stdout_line().split()[1])
            self.assertEqual(job.get()[0], 200)
            os.kill(pid, signal.SIGSTOP)
            told = job.wait_until(lambda got: got[0] == 503)
            self.assertEqual(told["reason"], f"rank 0 (pid {pid}) is stopped by a signal")
            os.kill(pid, signal.SIGCONT)
            job.wait_until(lambda got: got[0] == 200)

    def test_a_worker_that_is_stopped_now_and_then(self):
        """As by a profiler that takes samples: each look sees it stopped, and it has run since the one before."""
        with Job("python3", "-c", "import os, signal\nprint('here', os.getpid(), flush=True)\n"
                                  "while True: os.kill(os.getpid(), signal.SIGSTOP)", nproc=1) as job:
            pid = int(job.stdout_line().split()[1])
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                while ") T " not in (stat := pathlib.Path(f"/proc/{pid}/stat").read_text()):
                    time.sleep(0.001)
                self.assertEqual(job.get()[0], 200, stat)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)

    def test_a_restart(self):
        """The second attempt begins when the rank that is left of the first one may end."""
        with tempfile.TemporaryDirectory() as folder:
            gate = f"{folder}/gate"
            os.mkfifo(gate)
            script = (f"test $TORCHELASTIC_RESTART_COUNT = 1 && {WAIT}; test $RANK = 1 && exit 3; "
                      f"trap '' TERM; read line < {gate}; exit 0")
            with Job("sh", "-c", script, flags=["--max-restarts=1", "--grace-period=1000"]) as job:
                told = job.wait_until(lambda got: got[0] == 503)
                self.assertEqual(told["state"], "restarting")
                self.assertRegex(told["reason"], r"^rank 1 \(pid \d+\) ended with exit code 3$")
                with open(gate, "w", encoding="ascii") as opened:
                    opened.write("\n")
                told = job.wait_until(lambda got: got[0] == 200)
                self.assertEqual((told["attempt"], told["state"]), (1, "running"))

    def test_nodes(self):
        """While others are waited for all is well; when one is lost it is not."""
        where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        with Job("sh", "-c", WAIT, nproc=1, flags=[*where, "--node-rank=0"]) as job:
            code, told = job.get()
            self.assertEqual((code, told["state"]), (200, "joining"))
            self.assertEqual((told["attempt"], told["running"], told["ended"]), (None, 0, 0))
            with Job("sh", "-c", WAIT, nproc=1, flags=[*where, "--node-rank=1"]) as other:
                told = job.wait_until(lambda got: got[1]["state"] == "running")
                self.assertTrue(told["healthy"])
                other.wait_until(lambda got: got[0] == 200 and got[1]["first_rank"] == 1)
                other.process.kill()
                told = job.wait_until(lambda got: got[0] == 503)
                self.assertRegex(told["reason"], r"^node 1 \(.*\) is lost: its launcher has ended$")
                self.assertEqual(told["state"], "ending")

    def elastic(self, script, nnodes, port, flags=()):
        return Job("sh", "-c", script, nproc=1, flags=[f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=health",
                                                       f"--rdzv-endpoint=127.0.0.1:{port}", *flags])

    def test_a_node_that_is_replaced(self):
        """When one is lost that others may replace the job starts again; while it waits for one all is well."""
        with tempfile.TemporaryDirectory() as folder:
            gate, port = f"{folder}/gate", free_port()
            os.mkfifo(gate)
            flags = ["--max-restarts=1", "--grace-period=1000"]
            deaf = f"trap '' TERM; read line < {gate}; exit 0"
            with self.elastic(deaf, 2, port, flags) as job:
                job.wait_until(lambda got: got[1]["state"] == "joining")
                with self.elastic(WAIT, 2, port, flags) as other:
                    job.wait_until(lambda got: got[1]["running"] == 1)
                    other.wait_until(lambda got: got[1]["running"] == 1)
                    other.process.kill()
                    told = job.wait_until(lambda got: got[0] == 503)
                    self.assertEqual((told["state"], told["attempt"]), ("restarting", 0))
                    self.assertRegex(told["reason"], "^node 1 .* is lost: ")
                with open(gate, "w", encoding="ascii") as opened:
                    opened.write("\n")
                told = job.wait_until(lambda got: got[0] == 200)
                self.assertEqual((told["state"], told["running"], told["reason"]), ("joining", 0, None))

    def test_a_node_that_comes(self):
        """Until the workers of the round before have ended, the job is starting again; then it does not count as a
        restart, of which all are left."""
        with tempfile.TemporaryDirectory() as folder:
            gate, fail, last, port = f"{folder}/gate", f"{folder}/fail", f"{folder}/last", free_port()
            for path in (gate, fail, last):
                os.mkfifo(path)
            last_round = f"test $TORCHELASTIC_RESTART_COUNT = 1 && {WAIT}; "

            def until_told(line):  # a worker that ends well before it gets SIGTERM is done with the job
                return (f"trap 'touch {line}.told' TERM; (trap '' TERM; exec head -n 1 {line} >/dev/null) & "
                        "until wait $!; do :; done; exit 0")

            def await_told(line):
                end = time.monotonic() + DEADLINE
                while not os.path.exists(f"{line}.told") and time.monotonic() < end:
                    time.sleep(0.01)

            script = f"{last_round}test $WORLD_SIZE = 2 && {{ read line < {fail}; exit 6; }}; {until_told(gate)}"
            flags = ["--max-restarts=1", "--grace-period=1000", "--rdzv-conf=last_call_timeout=0"]
            with self.elastic(script, "1:2", port, flags) as job:
                # A worker opens its FIFO when SIGTERM, which must not come before, no longer ends it.
                with open(gate, "w", encoding="ascii") as to_first, \
                        self.elastic(last_round + until_told(last), "1:2", port, flags):
                    told = job.wait_until(lambda got: got[0] == 503)
                    self.assertEqual(told["state"], "restarting")
                    self.assertRegex(told["reason"], "^another round is about to begin: ")
                    await_told(gate)
                    to_first.write("\n")
                    to_first.flush()
                    with open(last, "w", encoding="ascii") as to_second:
                        job.wait_until(lambda got: got[1]["attempt"] == 1 and got[1]["running"] == 1)
                        with open(fail, "w", encoding="ascii") as opened:
                            opened.write("\n")
                        told = job.wait_until(lambda got: got[0] == 503)
                        self.assertEqual(told["state"], "restarting")
                        await_told(last)
                        to_second.write("\n")
                    job.wait_until(lambda got: got[0] == 200)

    def test_clients_that_misbehave(self):
        with Job("sh", "-c", WAIT, nproc=1) as job:
            self.assertTrue(job.raw(b"GET / HTTP/1.0\n\n").startswith(b"HTTP/1.0 200 OK\r\n"))
            pieces = (bytes([b]) for b in b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertTrue(job.raw(*pieces).startswith(b"HTTP/1.0 200"))
            self.assertTrue(job.raw(b"hello\r\n").startswith(b"HTTP/1.0 400"))
            self.assertTrue(job.raw(b"GET /\0 HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 400"))
            self.assertTrue(job.raw(b"\x16\x03\x01\x02\x00\x01\x00\n").startswith(b"HTTP/1.0 400"))
            self.assertTrue(job.raw(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000).startswith(b"HTTP/1.0 431"))
            for part in (b"", b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"):  # those that leave early
                job.raw(part, whole=False)
            silent = [socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE) for _ in range(40)]
            self.assertEqual(job.get()[0], 200)
            self.assertEqual(silent[0].recv(1), b"")  # the oldest made room
            for client in silent:
                client.close()
            self.assertEqual(job.get()[0], 200)

    def test_a_client_that_ends_its_side(self):
        """What it has sent is answered, also where its end comes in the same moment."""
        with Job("sh", "-c", WAIT, nproc=1) as job:
            job.get()
            with socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE) as client:
                job.process.send_signal(signal.SIGSTOP)
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                client.shutdown(socket.SHUT_WR)
                job.process.send_signal(signal.SIGCONT)
                answer = b""
                while piece := client.recv(65536):
                    answer += piece
            self.assertTrue(answer.startswith(b"HTTP/1.0 200 OK\r\n"), answer)

    def test_a_flood(self):
        """It does not push out a client from elsewhere that has begun its request; a slow machine may, as all have
        their five seconds."""
        with Job("sh", "-c", WAIT, nproc=1) as job:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", job.port), DEADLINE, ("127.0.0.2", 0)) as client:
                    client.sendall(b"GET / HTTP/1.0\r\n")
                    flood = [socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE) for _ in range(40)]
                    self.assertEqual(job.get()[0], 200)
                    try:
                        client.sendall(b"\r\n")
                        answer = client.recv(12)
                    except OSError:
                        answer = b""
                    for one in flood:
                        one.close()
                if answer:
                    break
            self.assertEqual(answer, b"HTTP/1.0 200")

    def test_slow_clients_are_let_go(self):
        with Job("sh", "-c", WAIT, nproc=1) as job:
            with socket.create_connection(("127.0.0.1", job.port), timeout=DEADLINE) as client:
                client.sendall(b"GET / HTTP/1.1\r\n")
                self.assertEqual(client.recv(1), b"")

    def test_a_taken_port(self):
        with Job("sh", "-c", WAIT, nproc=1) as job:
            for name, flags, variables in (
                    ("--health-check-port", ["--health-check-port", str(job.port)], {}),
                    ("TORCHELASTIC_HEALTH_CHECK_PORT", [], {"TORCHELASTIC_HEALTH_CHECK_PORT": str(job.port)})):
                done = subprocess.run([TUTTI, "run", *flags, "true"], capture_output=True, text=True, timeout=DEADLINE,
                                      env={**os.environ, "OMP_NUM_THREADS": "1", **variables})
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, rf"\Atutti run: {name}: port {job.port} is taken by another "
                                              r"program.*\n\Z")

    def test_descriptors(self):
        """Those of 16 clients, of what they are watched with and of the port are asked for before anything begins."""
        need = []
        for flags in "", "--health-check-port=0":
            done = subprocess.run(["sh", "-c", f"ulimit -n 20; exec {TUTTI} run --nproc-per-node=1 {flags} true"],
                                  capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual(done.returncode, 1, done.stderr)
            need.append(int(re.search(r"takes (\d+) descriptors at least", done.stderr).group(1)))
        self.assertEqual(need[1] - need[0], 18)

    def test_torchruns_variable(self):
        with Job("sh", "-c", WAIT, nproc=1, port="--no-python", TORCHELASTIC_HEALTH_CHECK_PORT="0") as job:
            self.assertEqual(job.get()[0], 200)

    def test_the_launcher_goes_on_meanwhile(self):
        """Somebody asks without end; the job ends as ever."""
        with tempfile.TemporaryDirectory() as folder:
            gate = f"{folder}/gate"
            os.mkfifo(gate)
            with Job("sh", "-c", f"read line < {gate}; exit 5", nproc=1) as job:
                for _ in range(50):
                    self.assertEqual(job.get()[0], 200)
                with open(gate, "w", encoding="ascii") as opened:
                    opened.write("\n")
                while job.process.poll() is None:
                    try:
                        job.get()
                    except OSError:
                        pass
                self.assertEqual(job.process.returncode, 5)


if __name__ == "__main__":
    unittest.main()
