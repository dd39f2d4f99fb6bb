#!/usr/bin/env python3
"""From the SIGKILL of a worker, or of a node (a launcher and its workers at once), to the end of the next step that is
trained after it, Tutti beside torchrun: each round runs all contenders, one after the other, with so many faults each.

usage: bench/recovery.py [--rounds N] [--faults N] [--node-rounds N] [--python PYTHON]    (default: 5, 2, 3, PyTorch's
current version in build/peers/torch, which ./dev setup --torch installs; without it Tutti alone)

All train 784-512-10 on 2 ranks. "in place": the others go on, and the lost rank takes the state from one of them.
"restart": all ranks start again, from a checkpoint that is saved every 50 steps. A node that is lost leaves one rank of
two; it is started again before the next fault, which is not counted. "inf": no step came within two minutes.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "tests" / "support"))
from processes import processes_below  # noqa: E402

BUILD = BENCH.parent / "build"
TUTTI = [BUILD / "bin" / "tutti", "run"]
SAVE, PATIENCE_S, RESTARTS = 50, 120, 1000


def serves(port):
    """Does a process here listen at the port, on either version of IP?"""
    return any(f":{port:04X} " in line and " 0A " in line for name in ("tcp", "tcp6")
               for line in pathlib.Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines())


class Steps:
    """What ranks have said: ROUND PID STEP."""

    def __init__(self, path):
        self.path, self.at, self.round, self.step = path, 0, -1, 0
        self.pids = set()

    def look(self):
        """The ids of who has said something since the last look, and whether a round is new."""
        said, last = set(), self.round
        with contextlib.suppress(OSError), open(self.path, "rb") as f:
            f.seek(self.at)
            data = f.read()
            data = data[:data.rfind(b"\n") + 1]
            self.at += len(data)
            for line in data.splitlines():
                number, pid, step = map(int, line.split())
                said.add(pid)
                self.round, self.step = max(self.round, number), max(self.step, step)
        new = said - self.pids
        self.pids |= said
        return new, self.round > last


class Stuck(Exception):
    """Nothing comes any more."""


class Job:
    def __init__(self, argv, launchers, folder, port):
        self.argv, self.folder, self.steps = argv, folder, Steps(folder / "steps")
        self.launchers = []
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "PET_"))}
        self.env["OMP_NUM_THREADS"] = "1"
        self.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else ranks find those of the attempt before
        for node in range(launchers):
            self.begin(node)
            if port and node == 0:
                self.wait_until(lambda: serves(port), "a launcher was started")

    def begin(self, node):
        with open(self.folder / f"log.{node}", "ab") as log:
            process = subprocess.Popen([str(word) for word in self.argv(node)], cwd=self.folder, env=self.env,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.launchers[node:node + 1] = [process]

    def wait_until(self, holds, what):
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline or self.launchers[0].poll() is not None:
                logs = "".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("log.*"))
                raise Stuck(f"{what}, and no step came within {PATIENCE_S} s\n{logs}")
            time.sleep(0.002)

    def wait_for_someone_new(self, what):
        self.wait_until(lambda: self.steps.look()[0], what)

    def train_on(self):
        """Until there is another checkpoint, and a moment more."""
        self.steps.look()
        until, moment = self.steps.step + SAVE + 5, time.monotonic() + random.uniform(0, 0.5)

        def is_due():
            self.steps.look()
            return self.steps.step >= until and time.monotonic() > moment
        self.wait_until(is_due, "training goes on")

    def kill_worker(self):
        workers = sorted(self.steps.pids & set(processes_below(self.launchers[0].pid)))
        begun = time.monotonic()
        os.kill(random.choice(workers), signal.SIGKILL)
        self.wait_for_someone_new("a worker was killed")
        return time.monotonic() - begun

    def kill_node(self):
        """The last one, which does not serve the store."""
        node = len(self.launchers) - 1
        all_there = [self.launchers[node].pid, *processes_below(self.launchers[node].pid)]
        self.steps.look()
        begun = time.monotonic()
        for pid in all_there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launchers[node].wait()
        time.sleep(0.01)  # what was trained before is written
        self.steps.look()
        self.wait_until(lambda: any(self.steps.look()), "a node was killed")
        seconds = time.monotonic() - begun
        self.begin(node)
        known = set(self.steps.pids)
        self.wait_until(lambda: (self.steps.look(), set(processes_below(self.launchers[node].pid)) &
                                 (self.steps.pids - known))[1], "the node was started again")
        return seconds

    def end(self):
        everything = [pid for launcher in self.launchers for pid in processes_below(launcher.pid)]
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def compile_program(folder):
    program, library = folder / "recovery_train", BUILD / "lib"
    subprocess.run(["gcc", "-O2", "-I", BENCH.parent / "include", BENCH / "recovery_train.c", "-o", program, "-L",
                    library, "-ltutti", "-ltutti-comm", f"-Wl,-rpath,{library}"], check=True)
    return program


def contenders(program, python, port):
    """By what is lost: name: the command line of a node's launcher."""
    torchrun = [python, "-m", "torch.distributed.run"]
    script = [BENCH / "peers" / "torch_recovery.py", SAVE]
    restarts = f"--max-restarts={RESTARTS}"
    here = ["--nproc-per-node=2", restarts]
    nodes = ["--nnodes=1:2", restarts, "--rdzv-backend=c10d", "--rdzv-id=recovery",
             f"--rdzv-endpoint=127.0.0.1:{port}"]
    found = {
        "a worker": {
            "tutti, in place": lambda node: [*TUTTI, *here, program, "elastic"],
            "tutti, restart": lambda node: [*TUTTI, *here, program, SAVE],
            "torchrun, restart": lambda node: [*torchrun, "--standalone", *here, *script],
        },
        "a node": {
            "tutti, in place": lambda node: [*TUTTI, *nodes, program, "elastic"],
            "tutti, restart": lambda node: [*TUTTI, *nodes, program, SAVE],
            "torchrun, restart": lambda node: [*torchrun, *nodes, *script],
        },
    }
    if not python.exists():
        print(f"{python} is not there (./dev setup --torch installs it): Tutti alone", file=sys.stderr)
        for kind in found.values():
            del kind["torchrun, restart"]
    return found


def play(argv, launchers, faults, port):
    times = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(argv, launchers, pathlib.Path(folder), port if launchers > 1 else None)
        try:
            job.wait_for_someone_new("the job was started")
            if launchers > 1:
                job.wait_until(lambda: (job.steps.look(), len(job.steps.pids) >= launchers)[1],
                               "all nodes were started")
            for _ in range(faults):
                job.train_on()
                times.append(job.kill_worker() if launchers == 1 else job.kill_node())
        except Stuck as reason:
            print(reason, file=sys.stderr)
            times.append(float("inf"))
        finally:
            job.end()
    return times


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--faults", type=int, default=2)
    parser.add_argument("--node-rounds", type=int, default=3)
    parser.add_argument("--python", type=pathlib.Path, default=BUILD / "peers" / "torch" / "bin" / "python3")
    parser.add_argument("--port", type=int, default=29477, help="of the store, where there are nodes")
    args = parser.parse_args()
    times = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        found = contenders(compile_program(pathlib.Path(folder)), args.python, args.port)
        for lost, rounds in (("a worker", args.rounds), ("a node", args.node_rounds)):
            for _ in range(rounds):
                for name, argv in found[lost].items():
                    times[lost, name] += play(argv, 1 if lost == "a worker" else 2, args.faults, args.port)
                    print(f"{lost} is lost: {name}: {', '.join(f'{t:.3f}' for t in times[lost, name])}",
                          file=sys.stderr)
    print("| lost | with | faults | median, s | longest, s |\n| --- | --- | ---: | ---: | ---: |")
    for (lost, name), seconds in times.items():
        print(f"| {lost} | {name} | {len(seconds)} | {statistics.median(seconds):.3f} | {max(seconds):.3f} |")


if __name__ == "__main__":
    main()
