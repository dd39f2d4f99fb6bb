#!/usr/bin/env python3
"""Overlap of communication and computing: an asynchronous all-reduce of 16 MiB between two "hosts" (network name
spaces) with a link of 1 Gbit/s, while both ranks compute. Prints one JSON object a line; over_longer is the time of
both at once over the longer of the two alone, over_bound over what the CPUs allow: see tests/fault/overlap.c.

usage: bench/overlap.py [BUILD_FOLDER] [--rate 1gbit] [--bytes N] [--repetitions N]     needs root (or unprivileged user
name spaces)
"""
import argparse
import pathlib
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bytes", default="16777216")
    parser.add_argument("--repetitions", default="7")
    args = parser.parse_args()
    command = [args.build / "tests/support/netlab", "--hosts", "2", "--rate", args.rate, "--",
               args.build / "tests/fault/overlap", args.bytes, args.repetitions]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
