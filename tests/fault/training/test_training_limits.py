#!/usr/bin/env python3
"""A program that trains where memory or threads are short: an error, or fewer threads, and never a crash. What other
libraries do then (oneDNN crashes, OpenMP's runtime ends the process) must not be reached."""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TT_BUILD"])
PROGRAM = BUILD / "examples" / "lstm_text"
TIMEOUT = 0.9 * float(os.environ["TT_TIMEOUT"])
NOBODY = 65534
with open(BUILD / "bin" / "tutti", "rb") as file:
    SANITIZED = b"__asan_init" in (text := file.read()) or b"__tsan_init" in text  # whose own memory is terabytes


def train(before, threads=1):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        return subprocess.run([PROGRAM, "--epochs=1", "--write=3", "--nhid=16", "--emsize=16", "--checkpoint=c.st"],
                              cwd=folder, preexec_fn=before, capture_output=True, text=True, timeout=TIMEOUT,
                              env=os.environ | {"OMP_NUM_THREADS": str(threads), "TT_LOG": "warning"})


class Limits(unittest.TestCase):
    @unittest.skipIf(SANITIZED, "a sanitizer needs more memory than any limit here leaves")
    def test_short_memory(self):
        ended = set()
        for megabytes in (*range(104, 152, 4), 400):
            limit = megabytes << 20
            done = train(lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            ended.add(done.returncode)
            self.assertIn(done.returncode, (0, 1), f"{megabytes} MiB: {done.stderr}")
            if done.returncode:
                self.assertRegex(done.stderr, "TT_ERR_(MEMORY|UNSUPPORTED|SYSTEM)", f"{megabytes} MiB")
        self.assertEqual(ended, {0, 1}, "no limit was too small, or all were")

    @unittest.skipIf(SANITIZED, "a sanitizer has threads of its own")
    def test_short_of_threads(self):
        if os.geteuid() == 0 and subprocess.run(["test", "-x", PROGRAM], user=NOBODY, check=False).returncode:
            self.skipTest("root is not limited, and another user can't run the program from here")

        def limited():
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        done = train(limited, threads=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("computing on 1 thread, not on 2", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
