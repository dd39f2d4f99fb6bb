#!/usr/bin/env python3
"""Fits a cost model to times of collectives on messages, says how wrong it is, and predicts worlds nobody has here.

usage: tutti tune --world 4 > times.jsonl;  bench/model.py times.jsonl [MORE.jsonl ...] [--fit-on 2] [--table] [--chart
FILE.svg]

Reads the JSON lines of `tutti tune` ("tune", "algorithm", "world", "hosts", "bytes", "usec_min"). The model of one
call:

    T = call + f (alpha steps + overhead messages + beta bytes + gamma reduced)

    call      what a call costs before anything is sent
    alpha     latency of a step
    overhead  of sending and receiving one message, in a rank that sends and receives the most
    beta      of a byte that this rank sends or receives
    gamma     of a byte that is reduced or copied
    f         ranks on this machine over its CPUs, at least 1: ranks that share a CPU wait for each other. 1 where every
              rank has its own

First least squares of relative errors (a parameter that would be negative is left out), then a search nearby for the
least sum of |log(predicted / measured)|, which a few disturbed times do not move. Needs nothing but Python.
"""
import argparse
import json
import math
import os
import statistics
import sys


def log2(n):
    return max(0, math.ceil(math.log2(n)))


def halving(n):
    """(p, fold): the largest power of two, and whether n is another number."""
    p = 1 << (n.bit_length() - 1)
    return p, int(p != n)


def all_reduce_halving_doubling(n, b):
    p, fold = halving(n)
    steps, share = 2 * math.log2(p) + 2 * fold, (p - 1) / p * b
    return steps, steps, 2 * share + fold * b, share + fold * b


def reduce_scatter_halving(n, b):
    p, fold = halving(n)
    return math.log2(p) + 2 * fold, math.log2(p) + 2 * fold, (p - 1) / p * n * b + fold * b, 2 * n * b


# (steps, messages, bytes, reduced) of the rank that has most to do; N ranks, b bytes of the buffer or of a block. As
# the heads of src/comm/collective/*/*.c say; tests/unit/comm/test_algorithms.c counts steps and bytes.
COSTS = {
    ("barrier", "dissemination"): lambda n, b: (log2(n), log2(n), 0, 0),
    ("all_reduce", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, n * b),
    ("all_reduce", "slices"): lambda n, b: (2, 2 * (n - 1), 2 * (n - 1) / n * b, b),
    ("all_reduce", "halving_doubling"): all_reduce_halving_doubling,
    ("all_reduce", "ring"): lambda n, b: (2 * (n - 1), 2 * (n - 1), 2 * (n - 1) / n * b, (n - 1) / n * b),
    ("reduce", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, n * b),
    ("reduce", "slices"): lambda n, b: (2, 2 * (n - 1), 2 * (n - 1) / n * b, b),
    ("reduce", "binomial"): lambda n, b: (log2(n), log2(n), log2(n) * b, log2(n) * b),
    ("reduce_scatter", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, n * b),
    ("reduce_scatter", "halving"): reduce_scatter_halving,
    ("broadcast", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, 0),
    ("broadcast", "binomial"): lambda n, b: (log2(n) + segments(b) - 1, log2(n) * segments(b), log2(n) * b, 0),
    ("broadcast", "chain"): lambda n, b: (n + segments(b) - 2, 2 * segments(b), (1 + (n - 2) / segments(b)) * b, 0),
    ("broadcast", "scatter_all_gather"): lambda n, b: (2, 2 * (n - 1), 2 * b, 0),
    ("all_gather", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, b),
    ("all_gather", "ring"): lambda n, b: (n - 1, n - 1, (n - 1) * b, b),
    ("all_gather", "bruck"): lambda n, b: (log2(n), log2(n), (n - 1) * b, n * b),
    ("all_gather", "recursive_doubling"): lambda n, b: (log2(n), log2(n), (n - 1) * b, b),
    ("all_gather", "neighbor_exchange"): lambda n, b: (n // 2, n // 2, (n - 1) * b, b),
    ("all_gather_v", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, b),
    ("all_gather_v", "ring"): lambda n, b: (n - 1, n - 1, (n - 1) * b, b),
    ("gather", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, b),
    ("gather", "binomial"): lambda n, b: (log2(n), log2(n), (n - 1) * b, n * b),
    ("scatter", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, b),
    ("scatter", "binomial"): lambda n, b: (log2(n), log2(n), (n - 1) * b, n * b),
    ("all_to_all", "direct"): lambda n, b: (1, n - 1, (n - 1) * b, b),
    ("all_to_all", "pairwise"): lambda n, b: (n - 1, n - 1, (n - 1) * b, b),
    ("all_to_all", "bruck"): lambda n, b: (log2(n), log2(n), log2(n) * n / 2 * b, (log2(n) + 2) * n * b),
}
SEGMENT = 256 << 10
# Calls in which all ranks wait for all: what one rank measures is what the call takes.
FITTED = ("barrier", "all_reduce", "reduce_scatter", "all_gather", "all_gather_v", "all_to_all")
NAMES = ("call", "alpha", "overhead", "beta", "gamma")


def segments(b):
    return max(1, math.ceil(b / SEGMENT))


def terms(op, algorithm, world, b, share):
    """What the five parameters are multiplied with."""
    steps, messages, moved, reduced = COSTS[op, algorithm](world, b)
    return [1, share * steps, share * messages, share * moved, share * reduced]


def solve(matrix, right):
    """Gauss, with pivots; None if singular."""
    n = len(right)
    rows = [row[:] + [value] for row, value in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        if abs(rows[pivot][i]) < 1e-30:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def known(points):
    """Which parameters the points can tell. Among two ranks a step is a message: all of it is counted as overhead, the
    cautious choice for algorithms that send many messages in a step."""
    same = all(row[1] == row[2] for row, _ in points)
    return [j for j, name in enumerate(NAMES) if not (same and name == "alpha")]


def fit(points):
    """points: (terms, usec). The parameters, none negative, that make the sum of squared relative errors least."""
    used = known(points)
    while used:
        scaled = [([row[j] / usec for j in used]) for row, usec in points]
        matrix = [[sum(row[i] * row[j] for row in scaled) for j in range(len(used))] for i in range(len(used))]
        found = solve(matrix, [sum(row[i] for row in scaled) for i in range(len(used))])
        if found and min(found) >= 0:
            return [found[used.index(j)] if j in used else 0.0 for j in range(len(NAMES))]
        used.remove(used[found.index(min(found))] if found else used[-1])
    raise SystemExit("model: the times fit no model")


def deviation(parameters, points):
    return sum(abs(math.log(max(predict(parameters, row), 1e-9) / usec)) for row, usec in points)


def refine(parameters, points):
    """Coordinate by coordinate, in ever smaller steps."""
    guesses, free = (1, 1, 1, 1e-4, 1e-4), known(points)
    found = [(value or guess / 100) if j in free else 0.0 for j, (value, guess) in enumerate(zip(parameters, guesses))]
    least, step = deviation(found, points), 4.0
    while step > 1.01:
        before = least
        for j in free:
            for factor in (step, 1 / step):
                tried = found[:j] + [found[j] * factor] + found[j + 1:]
                value = deviation(tried, points)
                if value < least:
                    found, least = tried, value
        if least == before:
            step = math.sqrt(step)
    return found


def predict(parameters, row):
    return sum(p * x for p, x in zip(parameters, row))


def errors(parameters, points):
    return sorted(abs(predict(parameters, row) / usec - 1) for row, usec in points)


def read(paths, cpus):
    points = {}
    for path in paths:
        for text in open(path, encoding="utf-8"):
            if not text.startswith('{"tune"'):
                continue
            time = json.loads(text)
            key = time["tune"], time["algorithm"]
            share = max(1, time["world"] / cpus)
            if key in COSTS and key[0] in FITTED:
                row = terms(*key, time["world"], time["bytes"], share)
                points.setdefault(time["world"], []).append((row, time["usec_min"], key, time["bytes"]))
    return points


def size(b):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if b >= unit:
            return f"{b // unit} {name}"
    return f"{b} B"


def duration(usec):
    return f"{usec:.0f} us" if usec < 10000 else f"{usec / 1e3:.0f} ms" if usec < 1e6 else f"{usec / 1e6:.1f} s"


def best(parameters, op, world, b):
    """(usec, algorithm); direct ones serve up to 64 ranks."""
    direct = ("direct", "slices", "scatter_all_gather")
    found = [(predict(parameters, terms(op, name, world, b, 1)), name) for of, name in COSTS
             if of == op and not (world > 64 and name in direct and op not in ("gather", "scatter"))
             and (of, name) != ("all_reduce", "ring")
             and not (name == "recursive_doubling" and world & (world - 1))
             and not (name == "neighbor_exchange" and world % 2)]
    return min(found)


def report(parameters, points):
    print("| parameter | value |\n| --- | ---: |")
    for name, value in zip(NAMES, parameters):
        per_byte = name in ("beta", "gamma")
        print(f"| {name} | {value * 1e3:.3f} ns a byte |" if per_byte else f"| {name} | {value:.2f} us |")
    least = points[min(points)]
    held_out = errors(refine(fit([p[:2] for p in least[::2]]), [p[:2] for p in least[::2]]),
                      [p[:2] for p in least[1::2]])
    print(f"\nFitted to every second time of {min(points)} ranks, the median error on the others is "
          f"{statistics.median(held_out):.0%}.")
    print("\n| ranks | times | median error | 9 of 10 within | from 64 KiB on: median | 9 of 10 within |\n| ---: |" +
          " ---: |" * 5)
    for world in sorted(points):
        found = errors(parameters, [point[:2] for point in points[world]])
        long = errors(parameters, [point[:2] for point in points[world] if point[3] >= 64 << 10])
        cells = [f"{statistics.median(of):.0%} | {of[int(len(of) * 0.9)]:.0%}" if of else " | " for of in (found, long)]
        print(f"| {world} | {len(found)} | " + " | ".join(cells) + " |")


def report_worlds(parameters, worlds):
    print("\n| call | bytes | " + " | ".join(f"{world:,} hosts" for world in worlds) + " |\n| --- | ---: |" +
          " --- |" * len(worlds))
    for op, b in (("barrier", 0), ("all_reduce", 8), ("all_reduce", 64 << 10), ("all_reduce", 25 << 20),
                  ("broadcast", 1 << 20),
                  ("all_gather", 1 << 10), ("reduce_scatter", 1 << 10), ("all_to_all", 1 << 10)):
        cells = [best(parameters, op, world, b) for world in worlds]
        print(f"| {op} | {size(b) if b else ''} | " + " | ".join(f"{duration(usec)}, {name}" for usec, name in cells) +
              " |")


def report_times(points, world):
    """What was measured: a row an algorithm, a column a size."""
    times = {(key, b): usec for _, usec, key, b in points[world]}
    sizes = sorted({b for _, b in times if b})
    print(f"\n| {world} ranks, us | algorithm | " + " | ".join(size(b) for b in sizes) + " |\n| --- | --- |" +
          " ---: |" * len(sizes))
    for op, name in dict.fromkeys(key for key, _ in times):
        found = [times.get(((op, name), b), times.get(((op, name), 0))) for b in sizes]
        print(f"| {op} | {name} | " +
              " | ".join("" if usec is None else f"{usec:.3g}" if usec < 1000 else f"{usec:.0f}" for usec in found) +
              " |")


def chart_of(points, parameters, path):
    """Measured and predicted all_reduce of the largest world: an SVG."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import chart
    world = max(points)

    class Section:
        key, name, unit, better = "all_reduce", f"all_reduce by messages, {world} ranks", "us", "less"
        values, contenders = {}, {}

        @classmethod
        def median(cls, row, name):
            return cls.values[row].get(name)

    for row, usec, (op, algorithm), b in points[world]:
        if op == "all_reduce":
            Section.values.setdefault(size(b),
                                      {}).update({algorithm: usec, f"{algorithm}, model": predict(parameters, row)})
            Section.contenders.update({algorithm: None, f"{algorithm}, model": None})
    hues = ["#d1495b", "#edae49", "#30638e", "#7768ae", "#4c956c"]
    for i, name in enumerate(Section.contenders):
        chart.COLOURS.setdefault(name, hues[i // 2 % len(hues)] + ("" if i % 2 == 0 else "80"))
    with open(path, "w", encoding="utf-8") as out:
        out.write(chart.lines(Section))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", nargs="+")
    parser.add_argument("--cpus", type=int, default=os.cpu_count(),
                        help="of the machine that was measured; many, if a link between the ranks was the limit and "
                             "not they")
    parser.add_argument("--fit-on", type=int, metavar="WORLD",
                        help="fit to worlds of so many ranks alone: do the others follow?")
    parser.add_argument("--chart", help="where to draw the measured and the predicted times of all_reduce")
    parser.add_argument("--table", action="store_true", help="print what was measured, too")
    parser.add_argument("--worlds", default="16,256,4096")
    options = parser.parse_args()
    points = read(options.times, options.cpus)
    everything = [point[:2] for world in points for point in points[world] if options.fit_on in (None, world)]
    if len(everything) < len(NAMES):
        raise SystemExit("model: expected JSON lines of tutti tune, got too few")
    parameters = refine(fit(everything), everything)
    for world in sorted(points) if options.table else []:
        report_times(points, world)
    report(parameters, points)
    report_worlds(parameters, [int(world) for world in options.worlds.split(",")])
    if options.chart:
        chart_of(points, parameters, options.chart)


if __name__ == "__main__":
    main()
