"""Many clients of one store's server, all connections in this process and one event loop. They speak PyTorch's wire
(docs/security.md says who may), so that the same program measures any server of it.

usage: store_clients.py HOST PORT SERVER_PID CLIENTS [DIALECT]      DIALECT: 2 (default) or 1 (that of PyTorch 1.13)

Prints one JSON object: seconds to connect all, to set a key and get it back on each, and for a barrier of all, by
counting and waiting (ADD, WAIT), which every server can, and by the operation BARRIER, which only some can; and the
server's memory for each client, when all have been served and are idle."""
import itertools
import json
import resource
import select
import socket
import struct
import sys
import time

PATIENCE = 120  # seconds for a phase
AT_ONCE = 200  # connections on their way
CLIENTS_OF_AN_ADDRESS = 20000  # a source address has some 28,000 ports
MAGIC = 0x3C85F7CE
OPCODES = {"set": 0, "get": 2, "add": 3, "wait": 5, "barrier": 17}  # of 1.13's; the later ones are one higher


names = (b"%d" % i for i in itertools.count())  # each barrier has its own


class Late(Exception):
    """A phase took longer than PATIENCE."""


def raise_limit(descriptors):
    """Allow so many descriptors; returns how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        descriptors = min(descriptors, hard)
    if soft < descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    return descriptors


def memory_of(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) * 1024


def text(value):
    return struct.pack("<Q", len(value)) + value


class Clients:
    def __init__(self, address, count, dialect=2):
        self.address, self.count, self.dialect = address, count, dialect
        self.sockets = {}  # by descriptor
        self.poll = select.epoll()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in self.sockets.values():
            sock.close()
        self.poll.close()

    def request(self, name, *fields):
        return bytes([OPCODES[name] + (self.dialect == 2)]) + b"".join(fields)

    def connect(self):
        """Connect all, some at a time: more than the listening socket's queue would be dropped, and wait a second.
        Returns the seconds it took."""
        begun, done = time.perf_counter(), 0
        while done < self.count:
            while len(self.sockets) < min(self.count, done + AT_ONCE):
                sock = socket.socket()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                other = len(self.sockets) // CLIENTS_OF_AN_ADDRESS
                if other:
                    sock.bind((f"127.0.0.{1 + other}", 0))
                sock.connect_ex(self.address)
                self.sockets[sock.fileno()] = sock
                self.poll.register(sock.fileno(), select.EPOLLOUT)
            for fd, _ in self.events(begun, f"{done} of {self.count} connected"):
                error = self.sockets[fd].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, f"connection {done} of {self.count} failed")
                self.poll.modify(fd, 0)
                if self.dialect == 2:
                    self.sockets[fd].sendall(b"\0" + struct.pack("<I", MAGIC))
                done += 1
        return time.perf_counter() - begun

    def events(self, begun, progress):
        found = self.poll.poll(1, 1024)
        if not found and time.perf_counter() - begun > PATIENCE:
            raise Late(f"{progress} in {PATIENCE} s")
        return found

    def exchange(self, request_of, reply_of, on_reply=None):
        """Send a request on each connection, and read the replies: `request_of` and `reply_of` make of a client's
        number what it sends and what must come (a set of bytes, or one), `on_reply` may look at it. Returns the
        seconds until the last reply."""
        begun = time.perf_counter()
        expected, got = {}, {}
        for i, (fd, sock) in enumerate(self.sockets.items()):
            expected[fd], got[fd] = reply_of(i), b""
            self.poll.modify(fd, select.EPOLLIN)
            sock.sendall(request_of(i))
        while expected:
            progress = f"{self.count - len(expected)} of {self.count} have their reply"
            for fd, _ in self.events(begun, progress):
                data = self.sockets[fd].recv(4096)
                if not data:
                    raise ConnectionError(f"the server closed a connection: {progress}")
                got[fd] += data
                wanted = expected[fd]
                if len(got[fd]) < (wanted if isinstance(wanted, int) else len(wanted)):
                    continue
                if not isinstance(wanted, int) and got[fd] != wanted:
                    raise ValueError(f"expected the reply {wanted!r}, got {got[fd]!r}")
                if on_reply:
                    on_reply(fd, got[fd])
                del expected[fd]
                self.poll.modify(fd, 0)
        return time.perf_counter() - begun

    def set_and_get(self):
        def request(i):
            key = text(b"/key%d" % i)
            return self.request("set", key, text(b"value %d" % i)) + self.request("get", key)
        return self.exchange(request, lambda i: text(b"value %d" % i))

    def count_and_wait(self, name):
        """Each counts itself; the one that completes the count sets a key, for which all wait."""
        gate, last = text(b"/gate " + name), []

        def counted(fd, reply):
            if struct.unpack("<q", reply)[0] == self.count:
                last.append(fd)

        counter = self.request("add", text(b"/counter " + name), struct.pack("<q", 1))
        took = self.exchange(lambda _: counter, lambda _: 8, counted)
        if len(last) != 1:
            raise ValueError(f"{len(last)} clients came last")
        wait = self.request("wait", struct.pack("<Q", 1), gate)
        opener = list(self.sockets).index(last[0])
        opening = self.request("set", gate, text(b"open")) + wait
        # The opener is asked last, so that the others wait indeed.
        order = list(self.sockets.items())
        order.append(order.pop(opener))
        self.sockets = dict(order)
        return took + self.exchange(lambda i: opening if i == self.count - 1 else wait, lambda _: b"\0")

    def barrier(self, name):
        request = self.request("barrier", text(b"/barrier " + name), struct.pack("<q", self.count))
        return self.exchange(lambda _: request, lambda _: b"\0")


def measure(host, port, pid, count, dialect=2):
    """All phases; returns what is printed."""
    limit = raise_limit(count + 64)
    if limit < count + 64:
        raise OSError(f"{count} clients need {count + 64} descriptors; {limit} are allowed (ulimit -Hn)")
    with Clients((host, port), count, dialect) as clients:
        before = memory_of(pid)
        result = {"clients": count, "connect_s": clients.connect(), "set_get_s": clients.set_and_get()}
        result["bytes_per_client"] = (memory_of(pid) - before) / count
        result["count_wait_s"] = clients.count_and_wait(next(names))
        try:
            result["barrier_s"] = min(clients.barrier(next(names)) for _ in range(3))
        except (ConnectionError, ValueError):  # the operation is not known there
            result["barrier_s"] = None
    return result


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
