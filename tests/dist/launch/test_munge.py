#!/usr/bin/env python3
"""The job secret of ranks that srun starts on several hosts comes from MUNGE: here under a munged of the test's own,
with ranks that have srun's variables; test_slurm_machines.py has a real srun. What is not this user's and this job's
credential is refused."""
import contextlib
import os
import pathlib
import re
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
import munge  # noqa: E402
from patience import DEADLINE, free_port  # noqa: E402

PROGRAM = os.path.join(os.environ["TT_PROGRAMS"], "backend_sum")
STRANGER = 61235  # a user that no machine has
QUESTION = b"\xf6\x01\0\0"


def start(rank, world, port, **env):
    """A rank: the first alone on a node, the others on another."""
    slurm = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2",
             "SLURM_STEP_NUM_TASKS": str(world), "SLURM_STEP_TASKS_PER_NODE": f"1,{world - 1}",
             "SLURM_PROCID": str(rank), "SLURM_NODEID": "1" if rank else "0",
             "SLURM_LOCALID": str(max(0, rank - 1)), "TT_HOST_ID": "b" if rank else "a",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TT_LOG": "debug", "TT_MUNGE_SOCKET": munged.socket}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TT_SECRET", "TT_TLS"))}
    return subprocess.Popen([PROGRAM, "native"], env={**clean, **slurm, **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end(ranks):
    """Each rank's exit code, output and errors."""
    try:
        return [(*reversed(rank.communicate(timeout=DEADLINE)), rank.returncode) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def ask(port):
    """The credential that rank 0's store hands out, once it is there."""
    answer = b""
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(QUESTION)
            while piece := s.recv(4096):
                answer += piece
            size = int.from_bytes(answer[2:4], "little")
            assert answer[:2] == QUESTION[:2] and len(answer) == 4 + size, answer
            return answer[4:].decode()


class Impostor(socketserver.ThreadingTCPServer):
    """Listens at the place before rank 0 does: answers who asks with this credential, and passes all others on."""
    allow_reuse_address = daemon_threads = True

    def __init__(self, answer, behind=None):
        self.answer, self.behind = answer, behind
        super().__init__(("127.0.0.1", 0), self.serve)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def serve(self, client, _address, _server):
        if client.recv(1, socket.MSG_PEEK) == QUESTION[:1]:
            client.recv(4)
            client.sendall(self.answer)
        elif self.behind:
            with socket.create_connection(("127.0.0.1", self.behind)) as there:
                back = threading.Thread(target=self.carry, args=(there, client))
                back.start()
                self.carry(client, there)
                back.join()

    @staticmethod
    def carry(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(4096):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)


def answered(credential):
    return QUESTION[:2] + len(credential).to_bytes(2, "little") + credential.encode()


SEALED = "tutti job secret 1 slurm-42-7 " + 64 * "a"


class Munge(unittest.TestCase):
    def test_all_ranks_have_one_secret(self):
        """Two of a host open the same credential, which MUNGE calls replayed then."""
        port = free_port()
        said = end([start(rank, 3, port) for rank in range(3)])
        self.assertEqual([code for _, _, code in said], [0, 0, 0], said)
        self.assertIn("the job secret is drawn here, and handed out sealed by MUNGE", said[0][0])
        for errors, out, _ in said[1:]:
            self.assertIn(f"the job secret comes from rank 0 at 127.0.0.1:{port}, sealed by MUNGE", errors)
            self.assertIn("sum 3", out)
        # What one joined with is the secret of the handshake: without it nobody is let in.
        self.assertNotIn("nothing guards", "".join(errors for errors, _, _ in said))

    def test_only_the_jobs_user_can_open_it(self):
        port = free_port()
        rank = start(0, 2, port)
        try:
            credential = ask(port)
            self.assertRegex(munged.open(credential), "Success[^$]*slurm-42-7 [0-9a-f]{64}")
            if os.geteuid() == 0:
                refused = munged.open(credential, user=STRANGER)
                self.assertRegex(refused, "Unauthorized credential")
                self.assertNotIn("slurm", refused)
        finally:
            rank.kill()
            rank.communicate()

    def refused(self, answer, why):
        with Impostor(answer) as server:
            errors, _, code = end([start(1, 2, server.server_address[1])])[0]
            server.shutdown()
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, r"rank 1 can't get the job secret from rank 0 at 127\.0\.0\.1:\d+: " + why)

    def test_what_is_no_credential_of_this_job(self):
        good = munged.seal(SEALED)
        middle = len(good) // 2
        torn = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1:]
        self.refused(answered(torn), "munge can't open the credential of the job secret: .*[Ii]nvalid credential")
        for text in (SEALED.replace("42-7", "41-7"), SEALED.replace("42-7", "42-8"), SEALED + "a", ""):
            self.refused(answered(munged.seal(text)), "the credential is no job secret of slurm-42-7")
        self.refused(answered(munged.seal(300 * "a")), "the credential holds 300 bytes, expected at most 255")
        self.refused(answered(""), "the store there has no job secret by MUNGE")
        self.refused(b"HTTP/1.1 400 Bad Request\r\n\r\n", "who listens there knows nothing of job secrets")
        self.refused(b"", "the connection|the other side|.*closed")
        if os.geteuid() == 0:
            foreign = munged.seal(SEALED, user=STRANGER)
            self.refused(answered(foreign), f"the credential was made by user {STRANGER}, expected 0")

    def test_an_older_credential_of_this_job(self):
        """Whoever hands it out instead of rank 0's own does not know what is in it, nor can he relay the handshake."""
        port = free_port()
        with Impostor(answered(munged.seal(SEALED)), behind=port) as server:
            first = start(0, 2, port)
            second = start(1, 2, server.server_address[1])
            try:
                errors, _ = second.communicate(timeout=DEADLINE)[::-1]
            finally:
                first.kill()
                second.kill()
                first.communicate()
            server.shutdown()
        self.assertEqual(second.returncode, 1, errors)
        self.assertIn("the other side has another job secret", errors)

    def test_no_munge_anywhere(self):
        """Rank 0 says it for all, in one line."""
        port = free_port()
        said = end([start(rank, 3, port, TT_MUNGE_SOCKET="/nowhere/socket", TT_LOG="warning") for rank in range(3)])
        self.assertEqual([code for _, _, code in said], [1, 1, 1])
        self.assertEqual([errors.count("\n") for errors, _, _ in said], [1, 0, 0], said)
        self.assertRegex(said[0][0], r"rank 0: TT_ERR_AUTH: 3 ranks on several hosts, but no job secret \(munge can't "
                                     r"seal the job secret: .*/nowhere/socket.*set TT_SECRET_FILE=FILE")

    def test_no_munge_on_one_host(self):
        """Then that host is not like the others, and says so itself."""
        port = free_port()
        first = start(0, 2, port)
        try:
            ask(port)
            errors, _, code = end([start(1, 2, port, TT_MUNGE_SOCKET="/nowhere/socket")])[0]
        finally:
            first.kill()
            first.communicate()
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"rank 0 has drawn a job secret and hands it out by MUNGE, but here munge can't")

    def test_a_secret_that_is_given_counts(self):
        port = free_port()
        env = {"TT_SECRET": "0123456789abcdef0123456789abcdef", "TT_MUNGE_SOCKET": "/nowhere/socket"}
        said = end([start(rank, 2, port, **env) for rank in range(2)])
        self.assertEqual([code for _, _, code in said], [0, 0], said)
        self.assertFalse(re.search("MUNGE", "".join(errors for errors, _, _ in said)))


if __name__ == "__main__":
    lacking = munge.missing()
    if lacking:
        print("skipped: MUNGE is not here (", ", ".join(lacking), "); ./dev setup --launchers installs it")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="tutti-munge-") as folder:
        munged = munge.Munged(folder)
        try:
            unittest.main(verbosity=2)
        finally:
            munged.end()
