"""A job and those who attack it, each on a machine of its own: network name spaces, made by the test and gone with it.

     node 0 --------- the neighbour's two ports --------- node 1
   10.78.0.1            10.78.0.3                         10.78.0.2

The neighbour carries every frame between the nodes, in a thread of the test, so it can record and change what they say
to each other; and it has an address by which it calls them. Needs root, util-linux and iproute2."""
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, STRICT  # noqa: E402,F401
from torch_client import TorchClient  # noqa: E402

NODES = ("10.78.0.1", "10.78.0.2")
NEIGHBOUR = "10.78.0.3"
PORT = 29500  # the machines are the lab's own, so nobody else has it
SECRET = "a-secret-nobody-may-see-0123456789"
OWNER, STRANGER = 61234, 61235  # users that no machine has

libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """Why there can be no lab here, or None."""
    if os.geteuid() != 0:
        return "only root can make machines and processes of other users"
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    probe = subprocess.run(["unshare", "--net", "--uts", "ip", "link", "add", "type", "veth"], capture_output=True)
    return None if probe.returncode == 0 else f"no veth pair can be made here: {probe.stderr.decode().strip()}"


class Machine:
    """A network and host name of its own, for as long as somebody uses them."""

    def __init__(self, name):
        setup = (f"echo {name} >/proc/sys/kernel/hostname && ip link set lo up && "
                 "{ echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; } 2>/dev/null; echo ready; exec cat")
        self.holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", setup], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"ready\n":
            raise OSError(f"machine {name} can't be made")

    def argv(self, argv, user=0):
        space = f"/proc/{self.holder.pid}/ns"
        ids = ["--setgid", str(user), "--setuid", str(user)]
        return ["nsenter", f"--net={space}/net", f"--uts={space}/uts", *(ids if user else []), "--", *argv]

    def start(self, argv, user=0, **popen):
        return subprocess.Popen(self.argv(argv, user), stdin=subprocess.DEVNULL, **popen)

    def run(self, argv, user=0, **run):
        return subprocess.run(self.argv(argv, user), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DEADLINE, check=False, **run)

    def ip(self, *lines):
        text = "\n".join(lines)
        done = subprocess.run(self.argv(["ip", "-batch", "-"]), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{text}: {done.stderr}")

    @contextlib.contextmanager
    def inside(self):
        """Sockets that this thread makes here are the machine's."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/proc/{self.holder.pid}/ns/net", "rb") as here:
            self._enter(here)
            try:
                yield
            finally:
                self._enter(home)

    @staticmethod
    def _enter(space):
        if libc.setns(space.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")

    def connect(self, address, source=None):
        with self.inside():
            return socket.create_connection((address, PORT), timeout=DEADLINE, source_address=source and (source, 0))

    def as_user(self, user, act, *args):
        """What act(*args) returns in a process of that user here; it must be a value of JSON's."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with open(f"/proc/{self.holder.pid}/ns/net", "rb") as here:
                    self._enter(here)
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                answer = act(*args)
            except BaseException as error:  # noqa: B902 whatever it is, the child must not return
                answer = f"{type(error).__name__}: {error}"
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        return json.loads(answer)

    def end(self):
        self.holder.stdin.close()
        self.holder.wait(DEADLINE)
        self.holder.stdout.close()


def join_machines(left, left_port, right, right_port):
    left.ip(f"link add {left_port} type veth peer name {right_port} netns {right.holder.pid}",
            f"link set {left_port} up")
    right.ip(f"link set {right_port} up")


def send_whole_frames(machine, port):
    """The kernel leaves checksums and the cutting of segments to the card; a veth pair has none, and who reads frames
    on the way sees them undone. So turn both off."""
    value = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM
    with machine.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8946, struct.pack("16sP16x", port.encode(), ctypes.addressof(value)))  # SIOCETHTOOL


def checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Segment:
    """A TCP segment of a frame."""

    def __init__(self, frame):
        header = 14 + (frame[14] & 15) * 4
        self.frame, self.header = frame, header
        self.addresses = frame[26:34]
        self.ports = struct.unpack("!HH", frame[header:header + 4])
        self.data_at = header + (frame[header + 12] >> 4) * 4
        self.end = 14 + struct.unpack("!H", frame[16:18])[0]

    @property
    def data(self):
        return self.frame[self.data_at:self.end]

    def with_data(self, data):
        """The frame with other data of the same size."""
        tcp = bytearray(self.frame[self.header:self.data_at] + data)
        tcp[16:18] = b"\0\0"
        tcp[16:18] = struct.pack("!H", checksum(self.addresses + struct.pack("!HH", 6, len(tcp)) + tcp))
        return self.frame[:self.header] + bytes(tcp) + self.frame[self.end:]


class Wire:
    """Carries frames between the neighbour's two ports. `said`: how each TCP connection began, by (address, port) of
    who spoke and who was spoken to. With `one_is_1000` set each float of 1 becomes 1000; `changed` counts the
    frames."""
    REMEMBERED = 512

    def __init__(self, neighbour):
        self.said, self.one_is_1000, self.changed = {}, False, 0
        self.ports = []
        with neighbour.inside():
            for name in ("port0", "port1"):
                port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                port.bind((name, 3))  # ETH_P_ALL
                self.ports.append(port)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    def carry(self):
        while not self.over.is_set():
            for port in select.select(self.ports, [], [], 0.1)[0]:
                frame, (_, _, kind, *_) = port.recvfrom(65536)
                if kind == socket.PACKET_OUTGOING:
                    continue
                if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP:
                    frame = self.look(Segment(frame))
                with contextlib.suppress(OSError):
                    self.ports[port is self.ports[0]].send(frame)

    def look(self, segment):
        data = segment.data
        ends = [socket.inet_ntoa(segment.addresses[i:i + 4]) for i in (0, 4)]
        if not data or set(ends) != set(NODES):
            return segment.frame
        said = self.said.setdefault(tuple(zip(ends, segment.ports)), bytearray())
        if len(said) < self.REMEMBERED:
            said += data
        if not self.one_is_1000:
            return segment.frame
        other = data.replace(struct.pack("<f", 1), struct.pack("<f", 1000))
        self.changed += other != data
        return segment.with_data(other)

    def end(self):
        self.over.set()
        self.thread.join()
        for port in self.ports:
            port.close()


class Lab:
    """The machines, and the programs where every user may run them."""

    def __init__(self):
        self.nodes = [Machine("node0"), Machine("node1")]
        self.neighbour = Machine("neighbour")
        for i, node in enumerate(self.nodes):
            join_machines(node, "eth0", self.neighbour, f"port{i}")
            node.ip(f"addr add {NODES[i]}/24 dev eth0")
            send_whole_frames(node, "eth0")
            self.neighbour.ip(f"addr add {NEIGHBOUR}/32 dev port{i}",
                              f"route add {NODES[i]} dev port{i} src {NEIGHBOUR}")
        self.wire = Wire(self.neighbour)
        self.folder = tempfile.mkdtemp()
        os.chmod(self.folder, 0o755)
        build = pathlib.Path(os.environ["TT_BUILD"])
        for program in ("bin/tutti", "tests/fault/reduce_forever"):
            shutil.copy(build / program, self.folder)
        self.tutti = f"{self.folder}/tutti"

    def end(self):
        self.wire.end()
        for machine in (*self.nodes, self.neighbour):
            machine.end()
        shutil.rmtree(self.folder)


class Job:
    """Two launchers with a rank each, which sum forever: on both nodes, or (`apart` False) both on the first. What
    they say is in logs."""
    count = 0

    def __init__(self, lab, *flags, user=0, apart=True, **env):
        Job.count += 1
        self.lab, self.user, self.apart, self.seen = lab, user, apart, [0, 0]
        self.logs = [pathlib.Path(lab.folder) / f"job{Job.count}.{node}" for node in (0, 1)]
        self.env = dict(os.environ, TT_SECRET=SECRET, **env)
        self.counter = pathlib.Path(lab.folder) / f"job{Job.count}.calls"
        self.counter.write_bytes(bytes(8))
        self.counter.chmod(0o666)
        self.program = [f"{lab.folder}/reduce_forever", "40000", self.counter]
        self.nodes = [self.launch(node, *flags) for node in (0, 1)]

    def argv(self, node, *flags):
        return [self.lab.tutti, "run", "--nnodes=2", f"--node-rank={node}", f"--master-addr={NODES[0]}",
                "--rdzv-conf=heartbeat=20,timeout=60", *flags]

    def launch(self, node, *flags):
        with open(self.logs[node], "w", encoding="utf-8") as log:
            return self.lab.nodes[node if self.apart else 0].start([*self.argv(node, *flags), *self.program], self.user,
                                                                   stdout=log, stderr=log, env=self.env)

    def text(self, node=0):
        return self.logs[node].read_text(errors="replace")

    def fail(self, what):
        raise AssertionError(f"{what}:\n--- node 0:\n{self.text(0)}--- node 1:\n{self.text(1)}")

    def until(self, holds, what):
        """Until holds() of a job that goes on."""
        deadline = time.monotonic() + DEADLINE
        while not (result := holds()):
            if time.monotonic() > deadline or any(node.poll() is not None for node in self.nodes):
                self.fail(what)
            time.sleep(0.005)
        return result

    def calls(self):
        """How many calls rank 0 has made."""
        return struct.unpack("<q", self.counter.read_bytes())[0]

    def goes_on(self, more=20):
        first = self.calls()
        self.until(lambda: self.calls() >= first + more, "the job does not go on")
        self.seen = [len(self.text(node)) for node in (0, 1)]

    def says(self, pattern, node=0):
        """A launcher says so, or has since the job was last seen to go on."""
        self.until(lambda: re.search(pattern, self.text(node)[self.seen[node]:]), f'nobody says "{pattern}"')

    def codes(self):
        """What the launchers end with."""
        try:
            return [node.wait(DEADLINE) for node in self.nodes]
        except subprocess.TimeoutExpired:
            self.end()
            self.fail("the job did not end")

    def end(self):
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGINT)
        for node in self.nodes:
            try:
                node.wait(DEADLINE)
            finally:
                node.kill()


def torch_ping(address, source=None):
    """"served"; "refused": the end, and no byte before it; else what was said, or went wrong."""
    with socket.create_connection((address, PORT), timeout=DEADLINE, source_address=source and (source, 0)) as s:
        try:
            return "served" if TorchClient(s).ping() else "something else was answered"
        except ConnectionError as error:
            return "refused" if "hung up" in str(error) else str(error)
