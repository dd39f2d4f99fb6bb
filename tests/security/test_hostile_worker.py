#!/usr/bin/env python3
"""A worker that tells its own launcher nonsense. What it hands in is memory that can be read at once, or it is hung up
on: the launcher would wait for any other file, and with it the job."""
import array
import os
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

MAGIC, SIZE = 0x32626F4A74747554, 688  # of src/net/job/job_socket.h
RECORDER, TIMERS = 1, 8


def hand_in(kind, file):
    """Is the launcher still there for this process?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(DEADLINE)
        s.connect("\0" + os.environ["TT_JOB_SOCKET"])
        recorder = struct.pack("<iIQ", 0, 4096, 0)
        s.sendmsg([(struct.pack("<Qi4x", MAGIC, kind) + recorder).ljust(SIZE, b"\0")],
                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        try:
            return s.recv(SIZE) != b""
        except ConnectionResetError:
            return False


class HostileWorker(unittest.TestCase):
    def test_what_is_no_sealed_memory(self):
        job = subprocess.run([os.environ["TUTTI"], "run", sys.executable, __file__, "worker"], capture_output=True,
                             text=True, timeout=2 * DEADLINE, check=False)
        self.assertEqual((job.returncode, job.stdout), (0, "False False False False\n"), job.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        unsealed = os.memfd_create("worker")
        os.truncate(unsealed, 1 << 16)
        # /dev/kmsg, where this user may read it: its next line may never come
        log = os.open("/dev/kmsg" if os.access("/dev/kmsg", os.R_OK) else "/dev/zero", os.O_RDONLY)
        os.lseek(log, 0, os.SEEK_END)
        print(*(hand_in(kind, file) for file in (unsealed, log) for kind in (RECORDER, TIMERS)))
        sys.exit()
    unittest.main()
