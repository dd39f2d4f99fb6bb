#!/usr/bin/env python3
"""DiLoCo between two hosts that are far from each other, beside DDP: what is sent, and the held-out loss after the same
number of examples.

usage: bench/wan.py --data TEXT [--steps N] [--period N] [--mbit X] [--delay MS] [-- FLAGS OF gpt_char]
       (default: 6000 steps, an outer step after each 100, 10 Mbit/s, 50 ms each way; a GPT of 2 x 64 on 64 characters)

Both train examples/gpt_char on 2 ranks, from one seed, each batch 8 texts a rank. DiLoCo's ranks live in network name
spaces, and all that they say to each other goes through a relay that lets through so many megabits a second and holds
it for so long (tests/support/wan.c), which counts each frame. DDP's ranks share memory, as it would take hours there;
its bytes are those of the buffers that a rank gives to collectives, from the trace of `tutti run`: what a rank of two
sends at least, without the network's own headers.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
GPT = BUILD / "examples" / "gpt_char"
MODEL = ["--layers", "2", "--width", "64", "--block", "64"]
COUNTED = 50, 100  # steps of runs all of whose calls are in their traces


def run(*words):
    done = subprocess.run([str(word) for word in words], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                          stdout=subprocess.PIPE, check=False)
    if done.returncode == 77:
        sys.exit("there can be no such hosts here: the line above says why")
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, words))}")
    loss, seconds = re.findall(r"val loss ([0-9.]+), ([0-9.]+) s", done.stdout)[-1]
    return float(loss), float(seconds)


def ddp(flags, steps, trace):
    return run(BUILD / "bin" / "tutti", "run", "--standalone", "--nproc-per-node=2", "--trace", trace, GPT, *flags,
               "--steps", steps, "--eval-every", steps)


def traced_bytes(trace):
    """What one rank gave to collectives, in all."""
    events = json.loads(trace.read_text(encoding="utf-8"))
    events = [e for e in (events["traceEvents"] if isinstance(events, dict) else events) if e.get("ph") == "X"]
    first = min(e["pid"] for e in events)
    return sum(e["args"].get("bytes", 0) for e in events if e["pid"] == first)


def ddp_bytes(flags, steps, folder):
    """From two short runs, all of whose calls are in the trace: what comes before the first step, and a step's."""
    some, more = (traced_bytes_of(flags, n, folder) for n in COUNTED)
    step = (more - some) / (COUNTED[1] - COUNTED[0])
    return some + step * (steps - COUNTED[0])


def traced_bytes_of(flags, steps, folder):
    trace = folder / f"{steps}.json"
    ddp(flags, steps, trace)
    return traced_bytes(trace)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--period", type=int, default=100)
    parser.add_argument("--mbit", type=float, default=10)
    parser.add_argument("--delay", type=float, default=50)
    parser.add_argument("flags", nargs="*")
    return parser.parse_args()


def main():
    args = parse()
    flags = ["--data", args.data.resolve(), "--save-every", "0", "--sample", "0", *(args.flags or MODEL)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log = folder / "wan.json"
        loss, seconds = run(BUILD / "tests" / "support" / "wan", "--mbit", args.mbit, "--delay", args.delay, "--log",
                            log, "--", GPT, *flags, "--steps", args.steps, "--eval-every", args.steps, "--diloco",
                            args.period, "--send-as", "f16")
        link = json.loads(log.read_text(encoding="utf-8"))
        sent = max(host["bytes"] for host in link["hosts"])
        ddp_loss, ddp_seconds = ddp(flags, args.steps, folder / "trace.json")
        counted = ddp_bytes(flags, args.steps, folder)
    print(f"{args.steps} steps on 2 ranks, {args.mbit:g} Mbit/s, {args.delay:g} ms each way\n")
    print("| | outer steps | sent by a rank | val loss | seconds |\n| --- | ---: | ---: | ---: | ---: |")
    print(f"| DDP, shared memory | | {counted / 1e6:.1f} MB | {ddp_loss:.4f} | {ddp_seconds:.0f} |")
    print(f"| DiLoCo, between the far hosts | {args.steps // args.period} | {sent / 1e6:.1f} MB | {loss:.4f} | "
          f"{seconds:.0f} |\n")
    print(f"times fewer bytes: {counted / sent:.0f}; loss apart: {100 * (loss / ddp_loss - 1):+.2f} %; on this link "
          f"DDP's bytes alone would take {counted * 8e-6 / args.mbit / 60:.0f} minutes")


if __name__ == "__main__":
    main()
