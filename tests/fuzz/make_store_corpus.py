"""Writes the seeds of fuzz_store into corpus/store: make_store_corpus.py (see fuzz_store.c for the form of an
input)."""
import os
import struct

HELLO = bytes.fromhex("00CEF7853C") + b"\x0d" + struct.pack("<I", 0x3E90)


def text(value):
    return struct.pack("<Q", len(value)) + value


def keys(*values):
    return struct.pack("<Q", len(values)) + b"".join(text(v) for v in values)


def number(value):
    return struct.pack("<q", value)


def op(code, *fields):
    return bytes([code]) + b"".join(fields)


torch_2 = {
    "set_get": op(1, text(b"/k"), text(b"vv")) + op(6, keys(b"/k")) + op(3, text(b"/k")),
    "add": op(4, text(b"/n"), number(5)) + op(4, text(b"/n"), number(-7)) + op(3, text(b"/n")),
    "compare_set": op(2, text(b"c"), text(b""), text(b"n")) + op(2, text(b"c"), text(b"n"), text(b"mm")),
    "check_delete": op(1, text(b"k"), text(b"")) + op(5, keys(b"k", b"x")) + op(8, text(b"k")) + op(7),
    "wait_cancel": op(6, keys(b"x", b"y", b"x")) + op(12),
    "append_multi": op(9, text(b"a"), text(b"x")) +
            op(11, struct.pack("<Q", 2), text(b"b"), text(b"1"), text(b"c"), text(b""))
    + op(10, keys(b"a", b"b", b"c")) + op(17),
    "barrier": op(18, text(b"b"), number(2)) + op(18, text(b"b"), number(2)),
}
torch_1_13 = {
    "old_set_get": op(0, text(b"/k"), text(b"vv")) + op(5, keys(b"/k")) + op(2, text(b"/k")),
    "old_watch": op(7, text(b"w")) + op(0, text(b"w"), text(b"1")) + op(3, text(b"w"), number(2)) + op(8, text(b"w")),
    "old_rest": op(1, text(b"c"), text(b""), text(b"n")) + op(4, keys(b"c")) + op(6),
}
bad = {
    "giant_key": HELLO + op(3, b"\x01\x20" + b"\0" * 6),
    "giant_count": HELLO + op(6, struct.pack("<Q", 131073)),
    "wrong_magic": bytes.fromhex("00112233440d903e0000"),
    "queue": HELLO + op(14, text(b"q"), text(b"x")),
}


def record(client, data, flags=4):
    return bytes([client | flags, len(data)]) + data


several = {
    "released": record(0, HELLO + op(6, keys(b"k"))) + record(1, HELLO) + record(1, op(1, text(b"k"), text(b"v"))),
    "dies_waiting": record(0, HELLO + op(6, keys(b"k", b"l")), 8) + record(1, HELLO + op(1, text(b"k"), text(b"v"))),
    "barrier_of_two": record(0, HELLO + op(18, text(b"b"), number(2))) +
            record(1, HELLO + op(18, text(b"b"), number(2))),
    "watched_by_old": record(0, op(7, text(b"w")), 0) + record(1, HELLO + op(9, text(b"w"), text(b"x"))) +
            record(0, op(6), 12),
}

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "store")
os.makedirs(folder, exist_ok=True)
inputs = {name: b"\0\x00\x04\x01\x0a" + HELLO + data for name, data in torch_2.items()}
inputs.update({name: b"\0\x02\x00\x08\x01" + data for name, data in torch_1_13.items()})
inputs.update({name: b"\0\x03\x03\x03\x03" + data for name, data in bad.items()})
inputs.update({name: b"\1" + data for name, data in several.items()})
for name, data in inputs.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
