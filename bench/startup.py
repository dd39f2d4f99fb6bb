#!/usr/bin/env python3
"""From `tutti run` to the end of the first all_reduce on the last rank, of one or two builds alternately: medians,
their ratio, and the processor's time that whole jobs take. Other work on the machine disturbs both builds alike.

usage: bench/startup.py [BUILD_FOLDER [OLD_BUILD_FOLDER]] [--ranks N] [--rounds N]    (default: build, 2, 20)
"""
import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().with_name("first_reduce.c")


class Build:
    def __init__(self, folder, programs):
        self.folder = pathlib.Path(folder).resolve()
        self.program = pathlib.Path(programs) / f"first_reduce{len(list(pathlib.Path(programs).iterdir()))}"
        library = self.folder / "lib"
        subprocess.run(["gcc", "-O2", "-I", self.folder.parent / "include", SOURCE, "-o", self.program, "-L", library,
                        "-ltutti-comm", f"-Wl,-rpath,{library}"], check=True)
        self.times, self.cpu = [], []

    def run(self, ranks):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([self.folder / "bin" / "tutti", "run", "--standalone", f"--nproc-per-node={ranks}",
                               self.program], env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE,
                              text=True, check=True)
        after, ends = resource.getrusage(resource.RUSAGE_CHILDREN), [float(line) for line in done.stdout.split()]
        if len(ends) != ranks:
            sys.exit(f"{ranks} ranks, but {len(ends)} said something")
        self.times.append(1e3 * (max(ends) - begun))
        self.cpu.append(1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folders", nargs="*", default=["build"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as programs:
        builds = [Build(folder, programs) for folder in args.folders]
        for build in builds:
            build.run(args.ranks)  # what is read for the first time comes from the disk
            build.times, build.cpu = [], []
        for _ in range(args.rounds):
            for build in builds:
                build.run(args.ranks)
    for build in builds:
        print(f"{build.folder}: {args.ranks} ranks: median {statistics.median(build.times):.1f} ms, least "
              f"{min(build.times):.1f} ms; processor's time {statistics.median(build.cpu):.1f} ms")
    if len(builds) == 2:
        times = [a / b for a, b in zip(builds[0].times, builds[1].times)]
        print(f"the first takes {statistics.median(times):.3f} times as long as the second (median of "
              f"{args.rounds} pairs)")


if __name__ == "__main__":
    main()
