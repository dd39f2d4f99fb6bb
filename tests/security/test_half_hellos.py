#!/usr/bin/env python3
"""Many connections (10,000 in the long form) to the store of an encrypted job, each with half a TLS hello that never
goes on: the store's memory stays within its budget, all of them are closed in time, and the job goes on, also for ranks
that come later."""
import concurrent.futures
import contextlib
import os
import resource
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lab import DEADLINE, NODES, PORT, STRICT, Job, Lab, why_not  # noqa: E402
from long_form import LONG  # noqa: E402

HELLOS = 10000 if LONG else 1000 if os.environ.get("TT_SANITIZED") else 2500
HALF = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 32  # of 512 bytes
PROOF_SECONDS = 10
STORE_MIB = 256
NEWCOMERS = 1 / 8  # of it, at most; src/store/server/server.c


def memory_mib(pid, what):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(what))


def say_half(count, ready):
    """Open so many connections, say so to `ready`, and wait for their ends. Returns the seconds of the one that lasted
    longest."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened, longest = [], 0
    for _ in range(count):
        s = socket.create_connection((NODES[0], PORT), timeout=DEADLINE)
        opened.append((s, time.monotonic()))
        with contextlib.suppress(ConnectionError):  # closed already
            s.send(HALF)
    os.write(ready, b".")
    for s, began in opened:
        with s, contextlib.suppress(ConnectionError):
            s.recv(1)
        longest = max(longest, time.monotonic() - began)
    return longest


class HalfHellos(unittest.TestCase):
    def test_they_cost_little(self):
        lab = Lab()
        self.addCleanup(lab.end)
        job = Job(lab, f"--store-memory={STORE_MIB}", apart=False, TT_TLS="1")
        self.addCleanup(job.end)
        job.goes_on()
        before = memory_mib(job.nodes[0].pid, "VmRSS")
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        sources = max(4, -(-HELLOS // max(1, descriptors - 50)))
        print(f"{HELLOS} half hellos from {sources} processes of at most {descriptors} descriptors")
        reading, writing = os.pipe()
        with concurrent.futures.ThreadPoolExecutor(sources) as threads:
            runs = [threads.submit(lab.nodes[0].as_user, 0, say_half, HELLOS // sources, writing)
                    for _ in range(sources)]
            for _ in range(sources):
                self.assertEqual(os.read(reading, 1), b".")
            job.goes_on()
            late = lab.nodes[0].run([*job.argv(1), "true"], env=job.env)
            self.assertIn("another launcher is node 1 already", late.stderr)  # the store has let it in
            longest = max(run.result() for run in runs)
        os.close(reading)
        os.close(writing)
        self.assertLess(longest, PROOF_SECONDS + (1 if STRICT else DEADLINE))
        if not os.environ.get("TT_SANITIZED"):  # which keep what is freed
            self.assertLess(memory_mib(job.nodes[0].pid, "VmHWM") - before, STORE_MIB * NEWCOMERS)
        job.says("did not prove in time")
        job.goes_on()


if __name__ == "__main__":
    if why := why_not():
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
