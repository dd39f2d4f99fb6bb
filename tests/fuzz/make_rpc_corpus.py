#!/usr/bin/env python3
"""Write the corpora of fuzz_rpc_packet and fuzz_rpc_dispatch: packets of every kind, values of every kind.
Usage: make_rpc_corpus.py FOLDER (tests/fuzz/corpus)"""
import os
import struct
import sys

(CALL, KEEP, FETCH, REPLY, ERROR, FORGET, CREDIT, HOLD, RELEASE, PROBE, PROBED, LEAVING, WAVE, IDLE, END, SETTLE,
 SETTLED) = range(1, 18)
NONE, FALSE, TRUE, INT, FLOAT, TEXT, BYTES, BYTES_APART, TENSOR, TENSOR_APART, RREF, LIST, MAP = range(13)
U32 = struct.Struct("<I").pack


def packet(kind, name=b"", value=b"", parts=(), refs=(), flags=0, id=0, credit=0, context=0, message=0, serial=0):
    return struct.pack("<BBHHHIIIIQQQ", kind, flags, len(name), len(parts), len(refs), id, len(value), credit, 0,
                       context, message, serial) + name + value + b"".join(
                           struct.pack("<Q", p) for p in parts) + b"".join(struct.pack("<IIQ", *r) for r in refs)


def items(tag, *values):
    return bytes([tag]) + U32(len(values)) + b"".join(values)


def text(t):
    return bytes([TEXT]) + U32(len(t)) + t + b"\0"


def integer(n):
    return bytes([INT]) + struct.pack("<q", n)


FLAT = items(LIST, bytes([NONE]), bytes([TRUE]), integer(-7), bytes([FLOAT]) + struct.pack("<d", .5), text(b"abc"),
             bytes([BYTES]) + U32(3) + b"xyz")
DEEP = items(LIST, items(MAP, text(b"key"), items(LIST, integer(1)), integer(2), FLAT))
SHARED = items(LIST, bytes([RREF]) + U32(0), bytes([RREF]) + U32(1), bytes([RREF]) + U32(0))
APART = items(LIST, bytes([BYTES_APART]) + U32(1), bytes([BYTES_APART]) + U32(0))
F32 = bytes([0, 1, 0, 0, 0, 0, 0, 0]) + struct.pack("<q", 2)
PACKETS = {
    "flat": packet(CALL, b"echo", FLAT, id=1),
    "deep": packet(CALL, b"echo", DEEP, id=2),
    "echo": packet(CALL, b"echo", items(LIST, DEEP), id=3),
    "sum": packet(CALL, b"sum", items(LIST, integer(1), integer(2)), id=4),
    "pass": packet(CALL, b"pass", items(LIST, text(b"on")), id=5),
    "tensor": packet(CALL, b"echo", items(LIST, bytes([TENSOR]) + F32 + U32(8) + bytes(8)), id=6),
    "tensor-apart": packet(CALL, b"echo", items(LIST, bytes([TENSOR_APART]) + F32 + U32(0)), parts=[8], id=7),
    "keep": packet(KEEP, b"sum", items(LIST, integer(1), integer(2)), id=8, serial=1),
    "fetch": packet(FETCH, b"", bytes([RREF]) + U32(0), refs=[(0, 1, 1)], id=9),
    "fetch-early": packet(FETCH, b"", bytes([RREF]) + U32(0), refs=[(0, 2, 9)], id=10),
    "refs": packet(CALL, b"echo", items(LIST, SHARED), refs=[(0, 1, 1), (2, 3, 5)], id=11),
    "apart": packet(CALL, b"echo", items(LIST, APART), parts=[9000, 20000], id=12),
    "reply": packet(REPLY, b"", FLAT, id=1 << 20),
    "reply-apart": packet(REPLY, b"", b"", parts=[100], flags=128, id=(1 << 20) + 3),
    "error": packet(ERROR, b"", text(b"the disk is on fire"), flags=7, id=(1 << 20) + 1),
    "forget": packet(FORGET, id=12),
    "credit": packet(CREDIT, credit=10),
    "hold": packet(HOLD, refs=[(0, 1, 1)], id=2),
    "release": packet(RELEASE, refs=[(0, 1, 1)], id=1, serial=1),
    "probe": packet(PROBE, id=1, context=7, serial=5),
    "probed": packet(PROBED, b"", text(b"worker b"), flags=1, id=1),
    "probed-cut": packet(PROBED, b"", bytes([LIST]) + U32(1) + bytes([LIST]), flags=1, id=1),
    "leaving": packet(LEAVING),
    "wave": packet(WAVE, id=1),
    "idle": packet(IDLE, id=1, context=1, message=1),
    "end": packet(END),
    "settle": packet(SETTLE, id=2),
    "settled": packet(SETTLED, id=2),
}


def fed(how, data):
    return bytes([how]) + struct.pack("<H", len(data)) + data


if __name__ == "__main__":
    for name, data in PACKETS.items():
        with open(os.path.join(sys.argv[1], "rpc_packet", name), "wb") as f:
            f.write(data)
        with open(os.path.join(sys.argv[1], "rpc_dispatch", name), "wb") as f:
            f.write(fed(1, data) + fed(2, data))
    with open(os.path.join(sys.argv[1], "rpc_dispatch", "all"), "wb") as f:
        f.write(b"".join(fed(1 + i % 3, p) for i, p in enumerate(PACKETS.values())))
