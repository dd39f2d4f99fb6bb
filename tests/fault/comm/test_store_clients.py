#!/usr/bin/env python3
"""Thousands of clients of `tutti store`: all are served, cost little memory, and come through a barrier. Those of
PyTorch's dialect need not prove anything on their own machine; Tutti's own do. TT_STORE_CLIENTS: how many."""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["TT_SOURCE"])
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "bench"), str(ROOT / "bench" / "peers")]
import many_clients  # noqa: E402
import store_clients  # noqa: E402
from patience import DEADLINE  # noqa: E402

STORE = [os.environ["TUTTI"], "store", "--port", "0"]
WANTED = int(os.environ.get("TT_STORE_CLIENTS", "500" if "TT_SANITIZED" in os.environ else "2000"))
MOST_BYTES = 4096  # for a client that is idle
SPARE = 128


class Store(unittest.TestCase):
    def setUp(self):
        self.count = min(WANTED, store_clients.raise_limit(WANTED + SPARE) - SPARE)
        store_clients.PATIENCE = DEADLINE

    def test_pytorch_clients(self):
        for dialect in 2, 1:
            with self.subTest(dialect=dialect), many_clients.serving(STORE) as (pid, port):
                found = store_clients.measure("127.0.0.1", port, pid, self.count, dialect)
                print(found, file=sys.stderr)
                self.assertEqual(found["barrier_s"] is None, dialect == 1)  # which lacks the operation
                if self.count >= 10000 and dialect == 2:
                    self.assertLess(found["barrier_s"], 2)
                if "TT_SANITIZED" not in os.environ:
                    self.assertLess(found["bytes_per_client"], MOST_BYTES)

    def test_they_leave(self):
        """What they took is there for those that come after them."""
        with many_clients.serving(STORE) as (pid, port):
            store_clients.measure("127.0.0.1", port, pid, self.count)
            first = store_clients.memory_of(pid)
            for _ in range(2):
                store_clients.measure("127.0.0.1", port, pid, self.count)
            more = store_clients.memory_of(pid) - first
            if "TT_SANITIZED" not in os.environ:
                self.assertLess(more, first / 2, "three times as many clients, one after the other, cost more")

    @unittest.skipIf("TT_SANITIZED" in os.environ, "the library can't be loaded into Python there")
    def test_clients_that_prove_themselves(self):
        with tempfile.NamedTemporaryFile() as secret:
            secret.write(b"0123456789abcdef" * 2)
            secret.flush()
            server = [*STORE, "--store-auth=required", f"--secret-file={secret.name}"]
            client = [sys.executable, __file__, "client", str(self.count // 2)]
            with many_clients.serving(server) as (_, port):
                done = subprocess.run([*client, str(port)], env=dict(os.environ, TT_SECRET_FILE=secret.name),
                                      capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.count // 2} served\n"), done.stderr)


class Value(ctypes.Structure):
    """tt_store_value."""
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Args(ctypes.Structure):
    """The first fields of tt_tcp_store_args, which say what the last call set of it."""
    _fields_ = [("out", ctypes.POINTER(ctypes.c_void_p)), ("host", ctypes.c_char_p), ("port", ctypes.c_int),
                ("options", ctypes.c_void_p)]


def be_clients(count, port):
    """Stores of this process, each of which sets a key that the next one reads."""
    comm = ctypes.CDLL(os.path.join(os.environ["TT_BUILD"], "lib", "libtutti-comm.so"))
    comm.tt_last_error.restype = ctypes.c_char_p

    def check(status):
        if status:
            sys.exit(comm.tt_last_error().decode())

    store_clients.raise_limit(count + SPARE)
    stores = [ctypes.c_void_p() for _ in range(count)]
    for store in stores:
        args = Args(ctypes.pointer(store), b"127.0.0.1", port)
        check(comm.tt_tcp_store_with(ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))))
    for i, store in enumerate(stores):
        check(comm.tt_store_set(store, b"key%d" % i, b"value %d" % i, ctypes.c_size_t(len(b"value %d" % i))))
    served = 0
    for i, store in enumerate(stores):
        value, other = Value(), (i + 1) % count
        check(comm.tt_store_get(store, b"key%d" % other, ctypes.byref(value)))
        served += ctypes.string_at(value.data, value.size) == b"value %d" % other
        comm.tt_store_value_free(ctypes.byref(value))
    print(f"{served} served")


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        be_clients(int(sys.argv[2]), int(sys.argv[3]))
    else:
        unittest.main(verbosity=1)
