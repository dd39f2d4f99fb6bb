#!/usr/bin/env python3
"""Endpoints where no job is: nobody listens, another server does, nothing answers, or the secret is another. One clear
error in the time that was given. And a program that ends before it joins, on one of two nodes."""
import contextlib
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
RANK = os.path.join(os.environ["TT_BUILD"], "examples", "bare_reducer")
PLACES = {"static": lambda host, port: ["--nnodes=2", "--node-rank=1", f"--master-addr={host}",
                                         f"--master-port={port}"],
          "c10d": lambda host, port: ["--nnodes=1:2", f"--rdzv-endpoint={host}:{port}"]}


def start(*words, **env):
    return subprocess.Popen([TUTTI, "run", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1", **env))


@contextlib.contextmanager
def web_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class Endpoints(unittest.TestCase):
    def refused(self, host, port, conf, text):
        for name, place in PLACES.items():
            with self.subTest(place=name), tempfile.TemporaryDirectory() as folder:
                job = start(*place(host, port), f"--rdzv-conf=timeout=2{conf if name == 'c10d' else ''}", "touch",
                            f"{folder}/started")
                out, err = job.communicate(timeout=DEADLINE)
                self.assertEqual((job.returncode, out), (1, ""), err)
                self.assertIn("node 0 did not come within 2 s: ", err)
                self.assertIn(text, err)
                self.assertEqual(os.listdir(folder), [])

    def test_nobody(self):
        self.refused("127.0.0.1", free_port(), ",is_host=false", "Connection refused")

    def test_web_server(self):
        with web_server() as port:
            self.refused("127.0.0.1", port, "", "no answer to the handshake. Is a TCPStore serving there?")

    def test_no_byte_ends_a_line(self):
        """A server of text waits for the end of a line, whatever the pid of who shakes hands."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            job = start(*PLACES["static"]("127.0.0.1", server.getsockname()[1]), "--rdzv-conf=timeout=2", "true")
            server.settimeout(DEADLINE)
            client, _ = server.accept()
            with client:
                said = client.recv(64)
                self.assertEqual(len(said), 10)
                self.assertTrue(all(byte >= 0x80 for byte in said[6:]), said)
            job.communicate(timeout=DEADLINE)

    def test_nothing_answers(self):
        """An address for documentation, which is routed nowhere, or refused at once."""
        self.refused("192.0.2.1", 29400, "", "could not connect to 192.0.2.1:29400")

    def test_another_secret(self):
        for name, place in PLACES.items():
            with self.subTest(place=name):
                words = place("127.0.0.1", free_port())
                first = start(*[word.replace("--node-rank=1", "--node-rank=0") for word in words],
                              "--rdzv-conf=timeout=60,last_call_timeout=0.1", "sleep", "1000",
                              TT_SECRET="0123456789abcdef")
                try:
                    self.assertTrue(any("waiting for node 1" in line or "begins" in line for line in first.stderr))
                    other = start(*words, "--rdzv-conf=timeout=20", "true", TT_SECRET="fedcba9876543210")
                    _, err = other.communicate(timeout=DEADLINE)
                    self.assertEqual(other.returncode, 1, err)
                    self.assertIn("secret", err)
                    self.assertIsNone(first.poll(), "who was there is not disturbed")
                finally:
                    first.terminate()
                    first.communicate(timeout=DEADLINE)

    def test_a_rank_that_ends_before_it_joins(self):
        port = free_port()
        where = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        jobs = [start(*where, f"--node-rank={node}", "sh", "-c", f"test $RANK = 1 || exec {RANK}")
                for node in range(2)]
        for job in jobs:
            _, err = job.communicate(timeout=DEADLINE)
            self.assertEqual(job.returncode, 1, err)
            self.assertIn("rank 1 ended with exit code 0 before it joined", err)


if __name__ == "__main__":
    unittest.main(verbosity=1)
