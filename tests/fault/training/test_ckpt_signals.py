"""`tutti ckpt convert` that a signal ends leaves no half-written file, and what a killed one left goes with the
next."""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]


class Signals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-ckpt-signals-")
        self.addCleanup(self.folder.cleanup)

    def write_source(self, size):
        """A checkpoint of one tensor, of zeros that take no room."""
        header = json.dumps({"a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
        with open(os.path.join(self.folder.name, "from.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size)

    def temporaries(self):
        return [name for name in os.listdir(self.folder.name) if ".tmp-" in name]

    def end(self, number):
        """Start a conversion and end it while it writes; its return code. A machine may be faster: then more."""
        for size in (1 << 26, 1 << 28, 1 << 29):
            self.write_source(size)
            convert = subprocess.Popen([TUTTI, "ckpt", "convert", "from.safetensors", "to.pt"], cwd=self.folder.name,
                                       stderr=subprocess.DEVNULL)
            end = time.monotonic() + DEADLINE
            while not self.temporaries() and convert.poll() is None:
                self.assertLess(time.monotonic(), end)
            convert.send_signal(number)
            if convert.wait(DEADLINE) != 0:
                return convert.returncode
            os.unlink(os.path.join(self.folder.name, "to.pt"))
        self.skipTest("this machine writes faster than it is signalled")

    def test_signals_leave_nothing(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            self.assertEqual(self.end(number), -number)
            self.assertEqual(os.listdir(self.folder.name), ["from.safetensors"])

    def test_what_a_killed_one_left_goes_with_the_next(self):
        self.assertEqual(self.end(signal.SIGKILL), -signal.SIGKILL)
        self.assertEqual(len(self.temporaries()), 1)
        self.write_source(64)
        subprocess.run([TUTTI, "ckpt", "convert", "from.safetensors", "to.pt"], cwd=self.folder.name, check=True)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["from.safetensors", "to.pt"])


if __name__ == "__main__":
    unittest.main()
