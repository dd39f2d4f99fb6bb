#!/usr/bin/env python3
"""A neighbour on the network, who carries all that two nodes of a job say to each other, and calls the store, too: what
docs/security.md promises against it."""
import os
import re
import socket
import ssl
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import NEIGHBOUR, NODES, PORT, SECRET, Job, Lab, TorchClient, torch_ping, why_not  # noqa: E402

HANDSHAKE, HELLO, CHALLENGE, PROOF, REFUSAL = 0xF5, 1, 2, 3, 5
REFUSED_PROOF = 5


def read_to_end(s):
    """What comes before the end."""
    said = b""
    while more := s.recv(4096):
        said += more
    return said


class Neighbour(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab()
        cls.addClassCleanup(cls.lab.end)

    def start(self, *flags, **options):
        job = Job(self.lab, *flags, **options)
        self.addCleanup(job.end)
        return job

    def call(self):
        s = self.lab.neighbour.connect(NODES[0])
        self.addCleanup(s.close)
        return s

    def refused(self, job, why):
        job.says(rf"store: refused {re.escape(NEIGHBOUR)}:\d+: .*{why}")

    # ---- the store

    def test_pytorchs_client_is_refused(self):
        job = self.start()
        job.goes_on()
        self.assertEqual(self.lab.neighbour.as_user(0, torch_ping, NODES[0]), "refused")
        self.refused(job, "PyTorch's dialect.* from another machine")
        job.goes_on()

    def test_nonsense_and_half_a_handshake(self):
        job = self.start()
        job.goes_on()
        held = [self.call() for _ in range(50)]  # silent, or with half a hello that never goes on
        for i, s in enumerate(held):
            s.sendall(b"\xf5\x01\x01\0" + b"x" * 20 if i % 2 else b"")
        for words, why in ((b"GET / HTTP/1.1\r\n\r\n", "PyTorch's dialect"), (b"\xf5\x63\x01\0" + b"y" * 60, "version"),
                           (b"\xf5\x01\x03\0" + b"z" * 32, "handshake is broken")):
            s = self.call()
            s.sendall(words)
            read_to_end(s)
            self.refused(job, why)
        with self.assertRaises(OSError):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.wrap_socket(self.call())
        self.refused(job, "wants to encrypt")
        job.goes_on()

    def test_a_recorded_handshake_proves_nothing(self):
        job = self.start()
        job.goes_on()
        recorded = [bytes(said) for (spoke, heard), said in self.lab.wire.said.items()
                    if heard == (NODES[0], PORT) and said[:3] == bytes((HANDSHAKE, 1, HELLO))]
        hello, proof = recorded[-1][:64], recorded[-1][64:100]
        self.assertEqual(proof[:3], bytes((HANDSHAKE, 1, PROOF)))
        s = self.call()
        s.sendall(hello)
        self.assertEqual(s.recv(64, socket.MSG_WAITALL)[2], CHALLENGE)
        s.sendall(proof)
        self.assertEqual(read_to_end(s), bytes((HANDSHAKE, 1, REFUSAL, REFUSED_PROOF)))
        self.refused(job, "another job secret")
        job.goes_on()

    def test_another_node_without_the_secret(self):
        job = self.start()
        job.goes_on()
        argv = [*job.argv(1), "echo", "started"]
        for secret, why in (("", "without the job secret .*the same TT_SECRET_FILE"),
                            (SECRET[::-1], "another job secret")):
            done = self.lab.neighbour.run(argv, env=dict(os.environ, TT_SECRET=secret))
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertRegex(done.stderr, why)
        self.refused(job, "PyTorch's dialect.* from another machine")
        self.refused(job, "another job secret")
        job.goes_on()

    def test_forged_news(self):
        """Where anybody may write the store, news still are the launchers' alone."""
        job = self.start("--store-auth=none")
        job.goes_on()
        stranger = TorchClient(self.call())
        for node in (0, 1):
            for number in range(1, 4):
                stranger.set(f"tutti/nodes/news/{node}/{number}", '{"what":"signal","signal":2,"node":%d}' % node)

            def forged_is_refused(node=node):  # the true one comes several times a second
                stranger.set(f"tutti/nodes/beat/{node}", "1000000 3")
                return f'"tutti/nodes/beat/{node}" as the words of node {node} is refused' in job.text(1 - node)

            job.until(forged_is_refused, "forged news are not refused")
        job.goes_on()

    # ---- frames between ranks

    def change_frames(self, job):
        self.addCleanup(setattr, self.lab.wire, "one_is_1000", False)
        job.goes_on()
        self.lab.wire.changed, self.lab.wire.one_is_1000 = 0, True
        codes = job.codes()
        self.assertGreater(self.lab.wire.changed, 0)
        return codes, job.text(0) + job.text(1)

    def test_changed_frames_end_the_job(self):
        codes, text = self.change_frames(self.start())
        self.assertNotIn("wrong sum", text)
        self.assertEqual(codes, [1, 1], text)
        self.assertRegex(text, r"rank [01].*\n?.*somebody changes what is on its way")

    def test_changed_frames_are_noticed_by_nobody_on_a_plain_wire(self):
        """So the attack is one, and docs/security.md is right to warn."""
        job = self.start("--wire=plain")
        codes, text = self.change_frames(job)
        self.assertIn("wrong sum: 1001", text)
        self.assertIn(3, codes)


if __name__ == "__main__":
    if why := why_not():
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
