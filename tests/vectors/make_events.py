"""Makes events.tfevents: an event file by hand, without a protobuf library. Its checksums and field numbers are held
against two records that TensorBoard's own tests publish.

usage: make_events.py [OUTFILE]"""
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", masked(size)) + data + struct.pack("<I", masked(data))


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field_bytes(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def field_f64(field, x):
    return varint(field << 3 | 1) + struct.pack("<d", x)


def field_varint(field, n):
    return varint(field << 3) + varint(n)


def event(wall_time, step=0, version=b"", summary=b""):
    return (field_f64(1, wall_time) + (field_varint(2, step) if step else b"")
            + (field_bytes(3, version) if version else b"") + (field_bytes(5, summary) if summary else b""))


def value(tag, rest):
    return field_bytes(1, field_bytes(1, tag) + rest)


def simple(tag, x):
    return value(tag, varint(2 << 3 | 5) + struct.pack("<f", x))


def histogram(tag):
    limits, counts = struct.pack("<3d", -0.5, 1, 2), struct.pack("<3d", 1, 1, 1)
    numbers = b"".join(field_f64(i + 1, x) for i, x in enumerate([-1, 2, 3, 1.5, 5.25]))
    return value(tag, field_bytes(5, numbers + field_bytes(6, limits) + field_bytes(7, counts)))


# TensorBoard's: tf.summary.scalar("accuracy", 0.99, step=77).
first = b"\x09\x00\x00\x80\x38\x99\xd6\xd7\x41\x1a\x0dbrain.Event:2"
second = (b"\x09\xc4\x05\xb7\x3d\x99\xd6\xd7\x41\x10\x4d\x2a\x25\x0a\x23\x0a\x08accuracy"
          b"\x42\x0a\x08\x01\x12\x00\x22\x04\xa4\x70\x7d\x3f\x4a\x0b\x0a\x09\x0a\x07scalars")
assert record(first)[:12].hex() == "1800000000000000a37f4b22" and record(first)[-4:].hex() == "124b36ab"
assert record(second)[:12].hex() == "3200000000000000241956ec" and record(second)[-4:].hex() == "a55b6433"
assert event(struct.unpack("<d", first[1:9])[0], version=b"brain.Event:2") == first

EVENTS = [event(1600000000.0, version=b"brain.Event:2"),
          event(1600000001.0, 1, summary=simple(b"loss", 0.5)),
          event(1600000003.0, 2, summary=histogram(b"h")),
          event(1600000002.0, 300, summary=simple(b"acc", 0.25))]
if __name__ == "__main__":
    with open(sys.argv[1] if len(sys.argv) > 1 else "events.tfevents", "wb") as out:
        out.write(b"".join(map(record, EVENTS)))
