"""What a summary writer writes is what TensorBoard reads: with its own library where it is installed, else with a
decoder of this test's own; and Python's csv reads the CSV."""
import csv
import glob
import os
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "vectors"))
from make_events import masked  # noqa: E402

SECOND = 'rate, "new" é'


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def take_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return n, at


def fields(data):
    """A message as {number: [value, ...]}."""
    found, at = {}, 0
    while at < len(data):
        key, at = take_varint(data, at)
        if key & 7 == 0:
            value, at = take_varint(data, at)
        else:
            size, at = take_varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            assert at + size <= len(data)
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    while data:
        size, crc = struct.unpack("<QI", data[:12])
        assert crc == masked(data[:8]), "checksum of a length"
        event = data[12:12 + size]
        assert struct.unpack("<I", data[12 + size:16 + size])[0] == masked(event), "checksum of a record"
        yield fields(event)
        data = data[16 + size:]


def by_hand(path):
    """(scalars {tag: [(step, wall time, value)]}, texts {tag: (step, text, plug-in)}, histograms {tag: (step,
    fields)})"""
    scalars, texts, histograms = {}, {}, {}
    first, *events = records(path)
    assert first[3] == [b"brain.Event:2"], first
    for event in events:
        wall_time, = struct.unpack("<d", event[1][0])
        step = event.get(2, [0])[0]
        for value in fields(event[5][0])[1]:
            value = fields(value)
            tag = value[1][0].decode()
            if 2 in value:
                scalars.setdefault(tag, []).append((step, wall_time, struct.unpack("<f", value[2][0])[0]))
            elif 5 in value:
                histograms[tag] = step, {n: np.frombuffer(b"".join(v)) for n, v in fields(value[5][0]).items()}
            else:
                tensor, plugin = fields(value[8][0]), fields(fields(value[9][0])[1][0])
                assert tensor[1] == [7] and fields(fields(tensor[2][0])[2][0])[1] == [1], tensor
                texts[tag] = (step, tensor[8][0].decode(), plugin[1][0])
    return scalars, texts, histograms


def by_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(folder, {"scalars": 0, "tensors": 0})
    events.Reload()
    return {tag: [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def check_scalars(scalars, rounded):
    expected = {"loss/train": [(i, 1 / (1 + i)) for i in range(300)],
                SECOND: [(i << 33, 0.1 * i) for i in range(300)]}
    assert sorted(scalars) == sorted(expected), sorted(scalars)
    for tag, points in scalars.items():
        assert [(s, v) for s, _, v in points] == [(s, rounded(v)) for s, v in expected[tag]], tag
        assert all(abs(t - time.time()) < 3600 for _, t, _ in points), points[0]


def pytorchs_histogram(values):
    """Limits and counts as torch.utils.tensorboard makes them with numpy."""
    edges, v = [], 1e-12
    while v < 1e20:
        edges.append(v)
        v *= 1.1
    counts, limits = np.histogram(values, bins=[-e for e in edges[::-1]] + [0] + edges)
    some = np.flatnonzero(counts)
    if not some.size:
        return None
    first, last = some[0], some[-1]
    return limits[first:last + 2], np.concatenate([[0], counts[first:last + 1]])


def check_histograms(histograms):
    wide = [(i % 3 - 1) * 1.07 ** (i % 200) * 1e-3 + (1e25 if i == 7 else 0) for i in range(400)]
    expected = {"wide": (3, np.array(wide)), "narrow": (4, np.array([0.25])), "zero": (5, np.array([0.0]))}
    assert sorted(histograms) == sorted(expected), sorted(histograms)
    for tag, (step, values) in expected.items():
        limits, counts = pytorchs_histogram(values)
        at, found = histograms[tag]
        assert at == step and np.array_equal(found[6], limits) and np.array_equal(found[7], counts), (tag, found)
        numbers = values.min(), values.max(), len(values), values.sum(), values.dot(values)
        np.testing.assert_allclose([found[n][0] for n in range(1, 6)], numbers, rtol=1e-12, atol=1e-12)


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-metrics-") as folder:
        subprocess.run([os.path.join(os.environ["TT_PROGRAMS"], "metrics_write"), folder], check=True)
        path, = glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*"))
        scalars, texts, histograms = by_hand(path)
        check_histograms(histograms)
        check_scalars(scalars, f32)
        assert texts == {"notes/text_summary": (7, "**bold**, on\ntwo lines", b"text")}, texts
        with open(os.path.join(folder, "scalars.csv"), newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        table = {}
        for row in rows:
            table.setdefault(row["tag"], []).append((int(row["step"]), float(row["wall_time"]), float(row["value"])))
        check_scalars(table, float)
        try:
            check_scalars(by_tensorboard(folder), f32)
            print("TensorBoard reads it as well")
        except ImportError as error:
            print(f"TensorBoard is not installed ({error}): read by this test's own decoder alone")


if __name__ == "__main__":
    main()
