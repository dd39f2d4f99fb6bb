"""PyTorch's dialect of the store's protocol, as far as tests need it."""
import socket
import struct
import time

from patience import DEADLINE


class TorchClient:
    """Speaks it over a connected socket."""

    def __init__(self, connected):
        self.socket = connected
        self.socket.sendall(struct.pack("<BI", 0, 0x3C85F7CE))

    @classmethod
    def of_port(cls, port):
        """A client of the store that listens at this port of 127.0.0.1, or is about to."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                return cls(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE))
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    @staticmethod
    def string(value):
        return struct.pack("<Q", len(value)) + value

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the store hung up")
            data += more
        return data

    def number(self, size, form):
        return struct.unpack(form, self.read(size))[0]

    def ping(self):
        self.socket.sendall(b"\x0dping")
        return self.read(4) == b"ping"

    def set(self, key, value):
        value = value if isinstance(value, bytes) else value.encode()
        self.socket.sendall(b"\x01" + self.string(b"/" + key.encode()) + self.string(value))

    def append(self, key, value):
        self.socket.sendall(b"\x09" + self.string(b"/" + key.encode()) + self.string(value.encode()))

    def has(self, key):
        self.socket.sendall(b"\x05" + struct.pack("<Q", 1) + self.string(b"/" + key.encode()))
        return self.number(1, "<B") == 0

    def add(self, key, delta):
        self.socket.sendall(b"\x04" + self.string(b"/" + key.encode()) + struct.pack("<q", delta))
        return self.number(8, "<q")

    def get(self, key):
        self.socket.sendall(b"\x03" + self.string(b"/" + key.encode()))
        return self.read(self.number(8, "<Q"))
