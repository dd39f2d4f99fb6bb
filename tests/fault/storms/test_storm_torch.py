#!/usr/bin/env python3
"""A storm over ranks of PyTorch with the back end tutti: one is killed, exits, raises, is frozen, or makes another call
than the others, at a random moment of collectives, works, futures, messages, DDP's steps and groups. Each survivor's
exception names that rank in time, and its interpreter ends by itself. Nothing is left. TT_STORM_CASES, TT_STORM_SEED
and TT_STORM_ONLY as in tests/support/storm.h. torch is imported once, and ranks are forked."""
import contextlib
import ctypes
import datetime
import faulthandler
import importlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # no threads: it will fork
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_package  # noqa: E402
from patience import DEADLINE, STRICT  # noqa: E402

if "TT_SANITIZED" in os.environ:
    print("skipped: Python does not load a sanitizer's runtime before the library that needs it")
    sys.exit(77)
LACKING = torch_package.build()
if LACKING:
    print("skipped:", LACKING)
    sys.exit(77)
sys.path.insert(0, str(torch_package.PACKAGE))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import tutti_torch  # noqa: E402

CASES = int(os.environ.get("TT_STORM_CASES") or "6")
SEED = int(os.environ.get("TT_STORM_SEED") or random.randrange(1 << 30))
ONLY = os.environ.get("TT_STORM_ONLY")

HEARTBEAT, SLACK = 5.0, 1.0 if STRICT else 10.0  # seconds
MEETING = 6.0  # how long new_group() waits for who doesn't come
ENDS = ["kill", "kill from outside", "_exit", "raise", "exit"]  # a rank that is no more
FREEZES = ["freeze", "freeze from outside"]
MISMATCHES = ["op", "shape", "dtype", "root", "missing", "extra"]
SIZED = ["all_reduce", "broadcast", "all_gather", "reduce", "works", "future"]  # of which no two are alike
STEPS = SIZED + ["gather", "scatter", "all_to_all", "ring", "object", "barrier", "ddp", "subgroup", "new_group"]
LEAVINGS = ["destroy", "nothing", "raise", "futures", "daemon"]  # how survivors end


class Case:
    """What is drawn for a case."""

    def __init__(self, number):
        draw = random.Random(f"{SEED} {number}")
        self.number, self.seed = number, draw.random()
        self.world = draw.choice([2, 3, 4])
        self.victim = draw.randrange(self.world)
        self.transport = draw.choice(["auto", "tcp"])
        self.fault = draw.choice([draw.choice(ENDS), draw.choice(ENDS), draw.choice(FREEZES), draw.choice(MISMATCHES)])
        self.step = draw.randrange(1, 12)
        self.delay = draw.uniform(0, 0.2)
        self.leaving = draw.choice(LEAVINGS)

    def __str__(self):
        return (f"case {self.number} (seed {SEED}): {self.fault} of rank {self.victim} of {self.world}, step "
                f"{self.step}, {self.transport}, survivors: {self.leaving}")

    def is_outside(self):
        return self.fault.endswith("outside")

    def kind_of_step(self, i, draw):
        """The same on all ranks. Around a fault of a rank's own nothing may be done that could hide it."""
        kind = draw.choice(STEPS)
        if self.fault in MISMATCHES and self.step <= i <= self.step + 1:
            return "broadcast" if self.fault == "root" else draw.choice(SIZED)
        return draw.choice(SIZED) if i == self.step and kind == "new_group" else kind


# ---- a rank


class Rank:
    def __init__(self, case, rank, folder):
        self.case, self.rank, self.folder = case, rank, folder
        self.is_victim = rank == case.victim
        self.ddp = self.pair = None
        self.kept = []

    def note(self, name, what):
        """Whole or not at all: the rank may die meanwhile."""
        path = self.folder / f".{name}.{self.rank}"
        path.write_text(json.dumps(what))
        path.rename(self.folder / f"{name}.{self.rank}")

    def join(self, port, pair=True):
        if self.case.transport != "auto":
            os.environ["TT_TRANSPORT"] = self.case.transport
        patience = datetime.timedelta(seconds=DEADLINE)
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=patience)
        dist.init_process_group("tutti", store=dist.PrefixStore(self.folder.name, store), rank=self.rank,
                                world_size=self.case.world, timeout=patience)
        self.pair = dist.new_group([0, 1]) if pair else None
        net = torch.nn.Linear(8, 8)
        self.ddp = torch.nn.parallel.DistributedDataParallel(net)
        if self.case.leaving == "daemon" and not self.is_victim:
            self.wait_in_a_thread()
        dist.barrier()

    def wait_in_a_thread(self):
        """For what never comes, until the process ends."""
        work = dist.irecv(torch.zeros(3), self.case.victim, tag=99)

        def wait():
            try:
                work.wait()
            except RuntimeError:
                pass

        threading.Thread(target=wait, daemon=True).start()

    def run(self):
        draw = random.Random(self.case.seed)
        for i in range(1 << 30):
            self.kind = self.case.kind_of_step(i, draw)
            fault = self.case.fault if self.is_victim and i == self.case.step and not self.case.is_outside() else None
            if fault in ENDS + FREEZES:
                self.strike(fault)
            if fault in MISMATCHES:
                self.note("struck", time.monotonic())
            if fault != "missing":
                self.call(self.kind, i, fault)
            if fault == "extra":
                dist.all_reduce(torch.ones(2))

    def strike(self, fault):
        self.note("struck", time.monotonic())
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault == "_exit":
            os._exit(7)
        elif fault == "exit":
            sys.exit(3)
        raise ValueError("boom")

    def call(self, kind, i, wrong):
        """Step i; `wrong`: as the others don't."""
        n, world = 3 + i % 5000, self.case.world
        x = torch.ones(n + (wrong == "shape"), dtype=torch.float64 if wrong == "dtype" else torch.float32)
        root = (i + (wrong == "root")) % world
        if wrong == "op":
            kind = "all_gather" if kind != "all_gather" else "all_reduce"
        if kind == "all_reduce":
            dist.all_reduce(x)
        elif kind == "broadcast":
            dist.broadcast(x, root)
        elif kind == "all_gather":
            dist.all_gather([torch.empty_like(x) for _ in range(world)], x)
        elif kind == "reduce":
            dist.reduce(x, root)
        elif kind == "works":
            for work in [dist.all_reduce(x + k, async_op=True) for k in range(4)]:
                work.wait()
        elif kind == "future":
            dist.all_reduce(x, async_op=True).get_future().wait()
        else:
            getattr(self, f"call_{kind}")(n, root)

    def parts(self, n):
        return [torch.ones(n) for _ in range(self.case.world)]

    def call_gather(self, n, root):
        dist.gather(torch.ones(n), self.parts(n) if self.rank == root else None, root)

    def call_scatter(self, n, root):
        dist.scatter(torch.empty(n), self.parts(n) if self.rank == root else None, root)

    def call_all_to_all(self, n, _root):
        dist.all_to_all_single(torch.empty(n * self.case.world), torch.ones(n * self.case.world))

    def call_ring(self, n, _root):
        right, left = (self.rank + 1) % self.case.world, (self.rank - 1) % self.case.world
        for work in [dist.isend(torch.ones(n), right), dist.irecv(torch.empty(n), left)]:
            work.wait()

    def call_object(self, n, _root):
        dist.all_gather_object([None] * self.case.world, {"n": n})

    def call_barrier(self, _n, _root):
        dist.barrier()

    def call_ddp(self, _n, _root):
        self.ddp(torch.ones(4, 8)).sum().backward()

    def call_subgroup(self, n, _root):
        if self.rank < 2:
            dist.all_reduce(torch.ones(n), group=self.pair)

    def call_new_group(self, n, _root):
        group = dist.new_group(list(range(self.case.world)), timeout=datetime.timedelta(seconds=MEETING))
        dist.all_reduce(torch.ones(n), group=group)
        self.kept.append(group)

    def leave(self, error):
        """As a survivor."""
        self.note("heard", {"type": type(error).__name__, "text": str(error), "at": time.monotonic(), "in": self.kind,
                            "ours": isinstance(error, tutti_torch.DistBackendError)})
        if self.case.leaving == "destroy":
            dist.destroy_process_group()
        elif self.case.leaving == "raise":
            raise error


def be_rank(case, rank, folder, port, ready):
    """Returns as a program ends: what follows is the interpreter's."""
    log = os.open(folder / f"log.{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    here = Rank(case, rank, folder)
    here.join(port)
    os.write(ready, b"x")
    if case.leaving == "futures":
        future = dist.irecv(torch.zeros(3), case.victim, tag=98).get_future() if rank != case.victim else None
        here.kept += [future, future.then(lambda f: f.value())] if future else []
    try:
        here.run()
    except RuntimeError as error:
        here.leave(error)
    # `here` and its futures live until the interpreter is finished
    sys.modules["__main__"].kept = here


# ---- the test


class Play:
    """A case, and what came of it."""

    def __init__(self, case):
        self.case, self.folder = case, pathlib.Path(tempfile.mkdtemp(prefix="tutti-storm-"))
        self.pids, self.codes = {}, {}

    def fork(self, port):
        """False in a rank that has come to its end."""
        came, ready = os.pipe()
        for rank in range(self.case.world):
            pid = os.fork()
            if not pid:
                os.setpgid(0, 0)  # see run_rank() in tests/support/ranks.h
                die_with_parent()
                os.close(came)
                be_rank(self.case, rank, self.folder, port, ready)
                return False
            self.pids[rank] = pid
        os.close(ready)
        self.all_came = self.wait_ready(came)
        os.close(came)
        return True

    def wait_ready(self, fd):
        end, count = time.monotonic() + DEADLINE, 0
        while count < self.case.world and select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
            got = len(os.read(fd, 16))
            if not got:
                break
            count += got
        return count == self.case.world

    def strike_from_outside(self):
        time.sleep(self.case.delay)  # the random moment
        (self.folder / f"struck.{self.case.victim}").write_text(json.dumps(time.monotonic()))
        os.kill(self.pids[self.case.victim], signal.SIGSTOP if self.case.fault in FREEZES else signal.SIGKILL)

    def wait(self, ranks):
        end = time.monotonic() + DEADLINE
        while not self.codes.keys() >= ranks and time.monotonic() < end:
            for rank in ranks - self.codes.keys():
                pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
                if pid:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return ranks - self.codes.keys()

    def ask(self, ranks):
        """Have their logs say where they are."""
        for rank in ranks - {self.case.victim}:
            log, end = self.folder / f"log.{rank}", time.monotonic() + 5
            os.kill(self.pids[rank], signal.SIGUSR2)
            while "most recent call first" not in log.read_text() and time.monotonic() < end:
                time.sleep(0.05)

    def end(self):
        for rank in self.pids.keys() - self.codes.keys():
            os.kill(self.pids[rank], signal.SIGKILL)
            os.waitpid(self.pids[rank], 0)
        shutil.rmtree(self.folder)

    def read(self, name, rank):
        path = self.folder / f"{name}.{rank}"
        return json.loads(path.read_text()) if path.exists() else None

    def survivors(self):
        mismatch = self.case.fault in MISMATCHES
        return {rank for rank in self.pids if mismatch or rank != self.case.victim}

    def wrong(self):
        """What is not as it must be; "" if nothing is."""
        if not self.all_came:
            return "not all have joined"
        if self.case.is_outside():
            self.strike_from_outside()
        hung = self.wait(self.survivors() | (set() if self.case.fault in FREEZES else {self.case.victim}))
        if hung:
            self.ask(hung)
            return f"rank {sorted(hung)} does not end"
        said = (self.wrong_of(rank) for rank in sorted(self.survivors()))
        return next((f"rank {rank}: {text}" for rank, text in zip(sorted(self.survivors()), said) if text), "")

    def wrong_of(self, rank):
        heard, code = self.read("heard", rank), int(self.case.leaving == "raise")
        if not heard:
            return "it heard nothing"
        if self.codes[rank] != code:
            return f"expected exit code {code}, got {self.codes[rank]}"
        meets = heard["in"] == "new_group"
        by_torch = meets and not heard["ours"]  # new_group() itself waits in its store for all
        if not heard["ours"] and not (by_torch and re.search("(?i)timed out|timeout", heard["text"])):
            return f"not a DistBackendError, but {heard['type']}"
        if not by_torch and not re.search(self.expected(rank, meets), heard["text"]):
            return f"expected {self.expected(rank, meets)}"
        took = heard["at"] - self.read("struck", self.case.victim)
        TOOK[self.case.fault in FREEZES].append(took)
        most = SLACK + (HEARTBEAT if self.case.fault in FREEZES else 0) + (MEETING if meets else 0)
        return f"it took {took:.2f} s" if took > most else ""

    def expected(self, rank, meets):
        who = rf"rank {self.case.victim}\b"
        if meets:  # by the store alone, where it can't be seen how a rank that doesn't come has ended
            missing = r"\d+" if rank == self.case.victim else self.case.victim
            return rf"TT_ERR_(PEER|TIMEOUT|NET|ABORTED): .*\branks? .*\b{missing}\b"
        if self.case.fault in MISMATCHES:
            # A broadcast's root has left it when the others see the difference, and hears of that in its next call.
            left = r"|TT_ERR_PEER: rank \d+ left the group" if rank == self.case.victim else ""
            return rf"TT_ERR_MISMATCH: .*{who}{left}"
        if self.case.fault in ["raise", "exit"]:
            return rf"TT_ERR_(PEER|ABORTED): .*{who}" + (".*ValueError: boom" if self.case.fault == "raise" else "")
        return rf"TT_ERR_PEER: .*{who}"

    def logs(self):
        text = ""
        for rank in self.pids:
            log = self.folder / f"log.{rank}"
            text += f"-- rank {rank}, exit code {self.codes.get(rank)}: {self.read('heard', rank)}\n"
            text += log.read_text() if log.exists() else ""
        return text


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve_store():
    """What ranks meet by; a file would do, but one that is frozen in PyTorch's FileStore keeps its lock. Returns
    (process, port)."""
    store = subprocess.Popen([os.environ["TUTTI"], "store", "--port", "0"], stdout=subprocess.PIPE, text=True,
                             preexec_fn=die_with_parent)
    return store, int(re.search(r"\d+$", store.stdout.readline().strip())[0])


TOOK = {False: [], True: []}  # how long survivors took to hear: of ends and mismatches; of freezes


def import_what_ranks_import(port):
    """A rank imports hundreds of modules with its first calls. One that is alone says which, so that they need not be
    imported by all others."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-storm-"))
    pid = os.fork()
    if not pid:
        case = Case(0)
        case.world, case.victim, case.leaving = 1, 0, "destroy"
        here = Rank(case, 0, folder)
        here.join(port, pair=False)
        here.call_ddp(3, 0)
        (folder / "modules").write_text("\n".join(sys.modules))
        os._exit(0)
    try:
        if os.waitpid(pid, 0)[1]:
            sys.exit("a rank that is alone fails")
        for name in (folder / "modules").read_text().splitlines():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    finally:
        shutil.rmtree(folder)


def shared_names():
    return set(os.listdir("/dev/shm"))


def main():
    store, port = serve_store()
    import_what_ranks_import(port)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("importing torch has started threads, and ranks can't be forked")
    print(f"TT_STORM_SEED={SEED}", flush=True)
    numbers = [n for n in range(CASES) if not ONLY or n == int(ONLY)]
    before, failed, begun = shared_names(), [], time.monotonic()
    for number in numbers:
        play = Play(Case(number))
        if not play.fork(port):
            return  # a rank; the interpreter ends now
        try:
            problem = play.wrong()
            if problem:
                failed.append(number)
                print(f"{play.case}: {problem}\n{play.logs()}", file=sys.stderr, flush=True)
        finally:
            play.end()
    times = [f"{name} {statistics.median(t):.3f} s, at most {max(t):.3f} s"
             for name, t in (("ends and mismatches", TOOK[False]), ("freezes", TOOK[True])) if t]
    took = time.monotonic() - begun
    print(f"PyTorch {torch.__version__}: {len(numbers)} cases in {took:.0f} s, {len(failed)} wrong; "
          f"survivors heard of {'; of '.join(times)}", flush=True)
    store.kill()
    left = {name for name in shared_names() - before if "tutti" in name or "torch" in name}
    sys.exit(f"wrong: {failed}" if failed else f"left in /dev/shm: {left}" if left else 0)


main()
