#!/usr/bin/python3
"""Calls of the store in etcd beside python-etcd3 (gRPC) and etcdctl, on a server of its own with its data in memory, so
that no disk is measured. Peers that are not installed are left out (packages etcd-server, python3-etcd3, etcd-client).

usage: bench/etcd_store.py [BUILD_FOLDER] [ROUNDS]     (default: build, 300)
"""
import ctypes
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

try:
    import etcd3
except ImportError:
    etcd3 = None


class Args(ctypes.Structure):
    """tt_etcd_store_args."""
    _fields_ = [("out", ctypes.POINTER(ctypes.c_void_p)), ("endpoints", ctypes.c_char_p), ("options", ctypes.c_void_p),
                ("prefix", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64)] + [
                    (name, ctypes.c_char_p) for name in ("user", "password", "token", "ca", "cert", "key")]


class Value(ctypes.Structure):
    """tt_store_value."""
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Tutti:
    def __init__(self, library, port):
        self.c = ctypes.CDLL(str(library))
        self.c.tt_last_error.restype = ctypes.c_char_p
        self.c.tt_store_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p]
        self.store = ctypes.c_void_p()
        args = Args(out=ctypes.pointer(self.store), endpoints=f"127.0.0.1:{port}".encode(), prefix=b"bench")
        self.check(self.c.tt_etcd_store_with(ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))))

    def check(self, status):
        if status:
            raise RuntimeError(self.c.tt_last_error().decode())

    def set(self, key, value):
        self.check(self.c.tt_store_set(self.store, key.encode(), value, ctypes.c_size_t(len(value))))

    def get(self, key):
        value = Value()
        self.check(self.c.tt_store_get(self.store, key.encode(), ctypes.byref(value)))
        text = ctypes.string_at(value.data, value.size)
        self.c.tt_store_value_free(ctypes.byref(value))
        return text

    def add(self, key):
        self.check(self.c.tt_store_add(self.store, key.encode(), 1, None))

    def free(self):
        self.c.tt_store_free(self.store)


class Python:
    def __init__(self, port):
        self.client = etcd3.client(port=port)

    def set(self, key, value):
        self.client.put("python/" + key, value)

    def get(self, key):
        return self.client.get("python/" + key)[0]

    def add(self, key):
        key = "python/" + key
        while True:
            now, meta = self.client.get(key)
            condition = self.client.transactions.mod(key) == (meta.mod_revision if meta else 0)
            if self.client.transaction([condition], [self.client.transactions.put(key, str(int(now or 0) + 1))],
                                       [])[0]:
                return


class Etcdctl:
    def __init__(self, port):
        self.words = ["etcdctl", "--endpoints", f"127.0.0.1:{port}"]

    def set(self, key, value):
        subprocess.run([*self.words, "put", "ctl/" + key], input=value, stdout=subprocess.DEVNULL, check=True,
                       env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"})

    def get(self, key):
        return subprocess.run([*self.words, "get", "--print-value-only", "ctl/" + key], capture_output=True, check=True,
                              env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"}).stdout[:-1]


def median_us(rounds, call):
    times = []
    for i in range(rounds):
        begun = time.perf_counter()
        call(i)
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times)


def woken_us(waiter, setter, rounds):
    """From the end of a set to the return of a get that waited for it."""
    times = []
    for i in range(rounds):
        returned = []
        thread = threading.Thread(target=lambda i=i: (waiter.get(f"wake{i}"), returned.append(time.perf_counter())))
        thread.start()
        time.sleep(0.05)  # until it watches
        setter.set(f"wake{i}", b"v")
        done = time.perf_counter()
        thread.join()
        times.append((returned[0] - done) * 1e6)
    return statistics.median(times)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    port, peer = free_port(), free_port()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        server = subprocess.Popen(
            ["etcd", "--data-dir", folder, "--listen-client-urls", f"http://127.0.0.1:{port}",
             "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
             "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}", "--initial-cluster",
             f"default=http://127.0.0.1:{peer}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            tutti, waiter = (Tutti(build / "lib/libtutti-comm.so", port) for _ in range(2))
            contenders = {"tutti": (tutti, rounds)}
            if etcd3:
                contenders["python-etcd3"] = (Python(port), rounds)
            if shutil.which("etcdctl"):
                contenders["etcdctl"] = (Etcdctl(port), max(rounds // 10, 10))
            calls = {"set 100 B": lambda c: lambda i: c.set(f"k{i}", b"x" * 100),
                     "get 100 B": lambda c: lambda i: c.get(f"k{i % 10}"),
                     "set 100 KiB": lambda c: lambda i: c.set("large", b"x" * 102400),
                     "get 100 KiB": lambda c: lambda i: c.get("large"),
                     "add": lambda c: lambda i: c.add("n")}
            print("| us, median | " + " | ".join(contenders) + " |")
            print("| --- |" + " ---: |" * len(contenders))
            for name, make in calls.items():
                cells = []
                for contender, n in contenders.values():
                    able = name != "add" or hasattr(contender, "add")
                    cells.append(f"{median_us(n, make(contender)):,.0f}" if able else "")
                print(f"| {name} | " + " | ".join(cells) + " |")
            print(f"a get that waits returns {woken_us(waiter, tutti, 30):,.0f} us after the set that it waits for")
            tutti.free()
            waiter.free()
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
