"""Some 250 hostile .pt, .safetensors, .npz and .npy files: code in pickles, names that leave the folder, overlaps, huge
counts, deep nesting, flipped bytes. Each is read or is one error that names it; nothing is run or written."""
import io
import json
import os
import random
import struct
import subprocess
import tempfile
import unittest
import warnings
import zipfile

PROGRAM = os.path.join(os.environ["TT_PROGRAMS"], "read_files")
LARGEST = 2**63 - 1
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }\n"


def archive(*records, method=zipfile.ZIP_STORED):
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that come twice
        with zipfile.ZipFile(data, "w", method) as file:
            for name, content in records:
                file.writestr(name, content)
    return data.getvalue()


def flipped(data, count):
    choice = random.Random(9)
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(choice.randint(1, 4)):
            copy[choice.randrange(len(copy))] = choice.randrange(256)
        yield bytes(copy)


def safetensors():
    def entry(dtype="F32", shape=(4,), offsets=(0, 16)):
        return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}

    def file(header, size=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if size is None else size) + text + bytes(64)
    for offsets in (-16, 0), (16, 0), (0, 2**40), (LARGEST, LARGEST + 16), (0, 15), (0,), (0, 16, 32):
        yield file({"a": entry(offsets=offsets)})
    for shape in (-4,), (-2, -2), (2**62, 4), (2**33, 2**33), (2**32, 2**32), [1] * 9, [1] * 10000, [1.5], ["4"], (5,):
        yield file({"a": entry(shape=shape)})
    for header in {"a": entry(), "b": entry(offsets=(8, 24))}, {"a": entry(), "b": entry()}, [1], None, 7, {"a": 7}, \
            {"a": entry(dtype="F" * 10000)}, {"__metadata__": {"a": {}}}, b"[" * 100000, b'{"a":' * 50000, \
            b'{"\xff":1}':
        yield file(header)
    for size in 0, 1, 2**31, 2**32, LARGEST, 2**63, 2**64 - 1, 2**64 - 8:
        yield file(b"{}", size)


def pickles():
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    def number(value):
        return b"\x8a\x09" + int(value).to_bytes(9, "little", signed=True)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    def tensor(kind=b"FloatStorage", key=b"0", count=8, offset=0, sizes=(2, 4), strides=(4, 1)):
        storage = (b"(" + text(b"storage") + b"ctorch\n" + kind + b"\n" + text(key) + text(b"cpu") + number(count) +
                   b"tQ")
        return (b"\x80\x02}" + text(b"w") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) +
                numbers(sizes) + numbers(strides) + b"\x89ccollections\nOrderedDict\n)RtRs.")
    for module, name in [("os", "system"), ("subprocess", "Popen"), ("builtins", "eval"), ("builtins", "getattr"),
                         ("torch", "load"), ("pickle", "loads"), ("runpy", "_run_code"), ("", ""), ("x" * 9999, "y")]:
        word, target = text(b"touch ran"), f"{module}\n{name}\n".encode()
        yield b"\x80\x02c" + target + word + b"\x85R."
        yield b"\x80\x02(" + word + b"i" + target + b"."
        yield b"\x80\x04" + text(module.encode()) + text(name.encode()) + b"\x93" + word + b"\x85R."
    for options in [{"count": -1}, {"count": LARGEST}, {"offset": -1}, {"offset": LARGEST}, {"offset": 1},
                    {"sizes": (LARGEST, LARGEST)}, {"sizes": (2**62, 4), "strides": (0, 0)}, {"sizes": (-1, 2)},
                    {"strides": (-1, 1)}, {"strides": (LARGEST, LARGEST)}, {"strides": (2**62, 1)}, {"sizes": (2,)},
                    {"sizes": (1,) * 9, "strides": (1,) * 9}, {"key": b"../0"}, {"key": b"/etc/passwd"}, {"key": b""},
                    {"kind": b"EvilStorage"}, {"kind": b"DoubleStorage"}, {"sizes": (3, 4)}]:
        yield tensor(**options)
    deep = b"\x80\x02" + b"]" * 50000 + b"a" * 49999 + b"."
    bomb = b"".join(b"](" + (b"h" + bytes([i])) * 10 + b"eq" + bytes([i + 1]) for i in range(30))
    yield from [b"", b"N", b"\x80\xff.", deep, b"\x80\x02]q\x00" + bomb + b".", b"\x80\x02Nr\xff\xff\xff\xff.",
                b"\x80\x02j\xff\xff\xff\xff.", b"\x80\x020000.", b"\x80\x02t.", b"\x80\x02" + b"(" * 50000 + b".",
                b"\x80\x02N" + b"\x85" * 50000 + b".", b"\x80\x02X\xff\xff\xff\xffab.", b"\x80\x02]q\x00h\x00a.",
                b"\x80\x04\x8d" + b"\xff" * 8 + b"ab.", b"\x80\x02\x8b\xff\xff\xff\x7f.", b"\x80\x02}]K\x01s.",
                b"\x80\x02\x82\x01.", b"\x80\x02Pabc\n.", b"\x80\x02K\x01K\x02R.", b"\x80\x02I" + b"9" * 9999 + b"\n."]


def arrays():
    def file(header, size=None):
        text = header.encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if size is None else size) + text + bytes(15)
    for shape in ("(4,)", "(-4,)", "(4,-1)", "(1<<62,)", f"({LARGEST},)", "(" + "9" * 30 + ",)",
                  "(4294967296,4294967296)",
                  "(" + "1," * 9 + ")", "4", "(4", "[4]", "(4.0,)", "('4',)", "__import__('os').system('touch ran')"):
        yield file(HEADER % shape)
    for kind in "|O", "<U4", "<M8[ns]", "<c8", "<f16", "<f4444444444444444", "<i3", "", "<x4", "<f4', 'x': '":
        yield file((HEADER % "(2,)").replace("<f4", kind))
    yield from [file(""), file("{", 65535), file("{" * 60000), b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", b""]


def write_all(folder):
    """Write all; return (those that must be refused, the others) by name."""
    bad, open_ = [], []

    def write(name, data, where=bad):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        where.append(name)

    def checkpoint(pickle):
        return archive(("archive/data.pkl", pickle), ("archive/data/0", bytes(32)), ("archive/version", b"3\n"))
    for i, data in enumerate(safetensors()):
        write(f"{i}.safetensors", data)
    for i, pickle in enumerate(pickles()):
        write(f"{i}.pt", checkpoint(pickle))
    for i, data in enumerate(arrays()):
        write(f"{i}.npy", data)
        write(f"{i}.npz", archive(("a.npy", data), method=zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED))
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(HEADER % "(4,)")) + (HEADER % "(4,)").encode() + bytes(16)
    write("twice.npz", archive(("a.npy", array), ("a.npy", array)))
    write("leaves.npz", archive(("../ran.npy", array)), open_)
    for i, data in enumerate(flipped(archive(("a.npy", array), ("b.npy", array), method=zipfile.ZIP_DEFLATED), 40)):
        write(f"flipped-{i}.npz", data, open_)
    for i, data in enumerate(flipped(checkpoint(b"\x80\x02}."), 40)):
        write(f"flipped-{i}.pt", data, open_)
    return bad, open_


class HostileFiles(unittest.TestCase):
    def test_each_is_read_or_an_error(self):
        with tempfile.TemporaryDirectory(prefix="tutti-hostile-") as folder:
            inside = os.path.join(folder, "files")
            os.mkdir(inside)
            bad, others = write_all(inside)
            self.assertGreater(len(bad) + len(others), 200)
            done = subprocess.run([PROGRAM] + [os.path.join(inside, name) for name in bad + others], cwd=inside,
                                  capture_output=True, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            lines = done.stdout.decode().split("\n")[:-1]  # UTF-8, whatever stands in the files
            self.assertEqual([line for line in lines if not line.isprintable()], [])
            told = dict(line.split(" ", 1) for line in lines)
            self.assertEqual(sorted(told), sorted(bad + others))
            for name in bad:
                self.assertNotIn("TT_OK", told[name], name)
            for name, text in told.items():
                self.assertTrue(text.startswith("TT_OK") or name in text, (name, text))
            self.assertNotIn("ran", os.listdir(inside))
            self.assertEqual(sorted(os.listdir(inside)), sorted(bad + others))
            self.assertEqual(os.listdir(folder), ["files"])


if __name__ == "__main__":
    unittest.main()
