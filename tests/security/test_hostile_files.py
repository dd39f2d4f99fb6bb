#!/usr/bin/env python3
"""Files that anybody may have made, of a megabyte or a few, cost the commands that read them neither time that grows
with the square of their size nor memory that is a thousand times as large."""
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import tempfile
import unittest
import zipfile

TUTTI = os.environ["TUTTI"]
CHECKED = b"__asan_" in pathlib.Path(TUTTI).read_bytes() or b"__tsan_" in pathlib.Path(TUTTI).read_bytes()
SECONDS = 60 if CHECKED else 2  # of the processor: five times what the slowest of these takes on a quiet machine
MEMORY = resource.RLIM_INFINITY if CHECKED else 4 << 30  # a sanitizer reserves more


def limit(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def checksum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)


def record(event):
    length = struct.pack("<Q", len(event))
    return length + checksum(length) + event + checksum(event)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def colliding(count):
    """Names that FNV-1a puts into an eighth of a table of 2 to 4 times as many."""
    room, found, i = 32, [], 0
    while room // 2 < count:
        room *= 2
    while len(found) < count:
        name, h = f"{i:x}", 0xCBF29CE484222325
        for c in name.encode():
            h = (h ^ c) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        if (h ^ h >> 32) & room - 1 < room // 8:
            found.append(name)
        i += 1
    return found


class HostileFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def tutti(self, *arguments, code=0, text="", seconds=SECONDS):
        done = subprocess.run([TUTTI, *arguments], cwd=self.folder, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: limit(seconds))
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        self.assertIn(text, done.stdout + done.stderr)

    def safetensors(self, name, first, count):
        header = ",".join(f'"t{i:06}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
                          for i in range(first, first + count)).encode()
        (self.folder / name).write_bytes(struct.pack("<Q", len(header) + 2) + b"{" + header + b"}")

    def test_a_long_name_of_many_values(self):
        longest = b"X" + struct.pack("<I", 1 << 20) + b"k" * (1 << 20)
        for depth, text in ((1, "expected names below"), (4, "expected names below")):
            pickled = b"\x80\x02" + b"".join([b"}" + longest] * depth) + b"](" + b"K\0" * 100000 + b"e" + b"s" * depth
            with zipfile.ZipFile(self.folder / "names.pt", "w") as file:
                file.writestr("a/data.pkl", pickled + b".")
                file.writestr("a/version", "3\n")
            for command in ("show", "verify"):
                self.tutti("ckpt", command, "names.pt", code=1, text=text)
        some = b"X" + struct.pack("<I", 60000) + b"k" * 60000
        with zipfile.ZipFile(self.folder / "names.pt", "w") as file:
            file.writestr("a/data.pkl", b"\x80\x02}" + some + b"](" + b"K\0" * 100000 + b"es.")
            file.writestr("a/version", "3\n")
        self.tutti("ckpt", "show", "names.pt", code=1, text="names of at most 256 MiB together")

    def test_many_tensors(self):
        count = 30000
        self.safetensors("a.safetensors", 0, count)
        self.safetensors("b.safetensors", count, count)
        self.tutti("ckpt", "diff", "a.safetensors", "b.safetensors", code=1, text="only in B")
        self.tutti("ckpt", "diff", "a.safetensors", "a.safetensors", text=f"equal: {count} entries")
        self.tutti("ckpt", "convert", "a.safetensors", "c.safetensors.index.json")

    def test_many_tensors_to_pytorch(self):
        count = 60000
        self.safetensors("a.safetensors", 0, count)
        self.tutti("ckpt", "convert", "a.safetensors", "a.pt")
        # 1.1 s, most of it libzip's and malloc's; when each name was searched for, 40,000 had taken 15
        self.tutti("ckpt", "diff", "a.pt", "a.safetensors", text=f"equal: {count} entries", seconds=3 * SECONDS)

    def test_many_runs_of_many_series(self):
        """Each beginning of a run leaves out what earlier ones had logged of later steps."""
        value = varint(2 << 3 | 5) + struct.pack("<f", 1)
        series = (record(b"\x10\x01" + field(5, field(1, field(1, f"{i:06x}".encode()) + value))) for i in range(50000))
        begins = field(7, b"\x08\x01") * 200000
        (self.folder / "events.out.tfevents.1").write_bytes(b"".join(series) + record(b"\x10\x02" + begins))
        self.tutti("plot", "--tags", "000001", "events.out.tfevents.1", text="000001")

    def test_names_that_fall_into_one_place(self):
        names = colliding(130000)
        (self.folder / "scalars.csv").write_text("step," + ",".join(names) + "\n" + "1," * len(names) + "1\n")
        self.tutti("plot", "--tags", names[0], "scalars.csv", text=names[0])


if __name__ == "__main__":
    unittest.main()
