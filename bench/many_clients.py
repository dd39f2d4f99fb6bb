"""Servers of a store that thousands of clients connect to: each is started here, and peers/store_clients.py is all its
clients.

usage: many_clients.py CLIENTS DIALECT COMMAND...    what one server does, which COMMAND starts"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
import store_clients  # noqa: E402
from contenders import PEERS, Failed, run  # noqa: E402

CLIENTS, FEW = 10000, 1000


@contextlib.contextmanager
def serving(command):
    """A server's process and its port, which stands at the end of its first line."""
    with subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = re.search(r"(\d+)\s*$", server.stdout.readline())
            if not port:
                raise Failed(f"{' '.join(map(str, command))}: it names no port")
            yield server.pid, int(port[1])
        finally:
            server.stdin.close()
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def without_names():
    """What to put before a command so that nobody can be asked for the name of an address there: PyTorch's server asks
    for that of each client, one after the other, and would be measured as slow as the name server is."""
    prefix = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c",
              'ip link set lo up && exec "$@"', "sh"]
    return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else []


def measure(command, clients, dialect=2, env=None):
    return run([*without_names(), sys.executable, __file__, clients, dialect, *command], env)[0]


def torch_server(python):
    return [python, pathlib.Path(PEERS, "torch_store_server.py")]


def rows(found):
    """What is told of a measurement: (label, number)."""
    for label, key, scale in (("connecting all, ms", "connect_s", 1e3),
                              ("a set and a get on each, ms", "set_get_s", 1e3),
                              ("all count and wait, ms", "count_wait_s", 1e3), ("BARRIER of all, ms", "barrier_s", 1e3),
                              ("memory for each, bytes", "bytes_per_client", 1)):
        if found[key] is not None:
            yield label, found[key] * scale


def main():
    clients, dialect, *command = sys.argv[1:]
    with serving(command) as (pid, port):
        print(json.dumps(store_clients.measure("127.0.0.1", port, pid, int(clients), int(dialect))))


if __name__ == "__main__":
    main()
