#!/usr/bin/env python3
"""test_times.py BUILD [--costs]: what ./dev test --times prints, and, with --costs, writes to tests/costs.tsv.

BUILD/test_times.tsv has a line for each test (tools/timed.py), BUILD/.ninja_log one for each part of the build.
"""
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
COSTS = ROOT / "tests" / "costs.tsv"
HEAD = ("# What tests take on two quiet CPUs: name, seconds, places (eight to a CPU). "
        "Written by tools/test_times.py --costs.\n")


def tests(build):
    """name -> (seconds, seconds of CPU), of the last run of each that was not skipped."""
    found = {}
    for line in (build / "test_times.tsv").read_text().splitlines():
        name, wall, cpu, code = line.split("\t")
        if code != "77":
            found[name] = float(wall), float(cpu)
    return found


def parts(build):
    """Part of the build -> [seconds, steps], of the last build of each file."""
    steps = {}
    for line in (build / ".ninja_log").read_text().splitlines():
        fields = line.split("\t")
        if len(fields) == 5:
            steps[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    found = collections.defaultdict(lambda: [0.0, 0])
    for path, seconds in steps.items():
        if ".dir/" in path:
            part = "compile " + path.split(".dir/")[0].replace("CMakeFiles/", "")
        else:
            part = "link " + (path.rsplit("/", 1)[0] if "/" in path else ".")
        found[part][0] += seconds
        found[part][1] += 1
    return found


def places(wall, cpu):
    """How much of a CPU a test takes, in eighths."""
    return max(1, min(16, round(8 * cpu / wall))) if wall else 1


def print_tests(found):
    print(f"{'test':44} {'seconds':>8} {'CPU':>8} {'waits':>8}")
    for name, (wall, cpu) in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{name:44} {wall:8.2f} {cpu:8.2f} {max(0.0, wall - cpu):8.2f}")
    folders = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for name, (wall, cpu) in found.items():
        for key in (name.split("/")[0], "all"):
            folders[key][0] += 1
            folders[key][1] += wall
            folders[key][2] += cpu
    print(f"\n{'folder':36} {'tests':>7} {'seconds':>8} {'CPU':>8}")
    for folder, (count, wall, cpu) in sorted(folders.items(), key=lambda item: item[1][2]):
        print(f"{folder:36} {count:7} {wall:8.0f} {cpu:8.0f}")


def print_parts(found):
    print(f"\n{'part of the build':56} {'steps':>6} {'seconds':>8}")
    for part, (seconds, steps) in sorted(found.items(), key=lambda item: -item[1][0]):
        if seconds >= 1:
            print(f"{part:56} {steps:6} {seconds:8.1f}")
    print(f"{'all, one after the other':56} {sum(n for _, n in found.values()):6} "
          f"{sum(s for s, _ in found.values()):8.1f}")


def write_costs(found):
    known = {}
    if COSTS.exists():
        for line in COSTS.read_text().splitlines():
            if not line.startswith("#"):
                known[line.split("\t")[0]] = line
    for name, (wall, cpu) in found.items():
        known[name] = f"{name}\t{wall:.1f}\t{places(wall, cpu)}"
    COSTS.write_text(HEAD + "".join(f"{known[name]}\n" for name in sorted(known)))


def main(build, *options):
    found = tests(pathlib.Path(build))
    print_tests(found)
    print_parts(parts(pathlib.Path(build)))
    if "--costs" in options:
        write_costs(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
