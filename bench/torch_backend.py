"""Sections of the back end for PyTorch (bindings/torch) beside gloo, in one script that differs by one word. Where
nothing is sent, by PyTorch's `fake` back end or by its hook that does nothing, is the floor: PyTorch's own part of a
call or of a step."""
import os
import statistics

from pytorch import CURRENT, PYTHON, backend_package, current_torch, torch
from section import Section, number, size_label, size_of, times_better

KEYS = ["torch_backend_2", "torch_backend_4", "torch_backend_tcp", "torch_backend_send_recv", "torch_backend_step",
        "torch_backend_step_tcp", "torch_backend_memory", "torch_backend_rpc"]
TUTTI, GLOO, NOTHING, OLD_TUTTI, OLD_GLOO = "tutti", "gloo", "nothing sent", "1.13: tutti", "1.13: gloo"
RATIOS = [(TUTTI, GLOO), (OLD_TUTTI, OLD_GLOO)]
SMALL, LARGE = 1 << 16, 1 << 24
STEP = "torch_train.py"
TCP = {"TT_TRANSPORT": "tcp"}


def contenders(script, runs, **variables):
    """Who runs `script` with each (world, words) of `runs`, in turn."""
    def each(function, **more):
        return [found for world, words in runs for found in function(world, script, *words, **more, **variables)]

    def tutti(function, python):
        return lambda: each(function, TORCH_BACKEND="tutti", PYTHONPATH=str(backend_package(python)))

    nothing = {"TORCH_BACKEND": "gloo", "TORCH_HOOK": "noop"} if script == STEP else {"TORCH_BACKEND": "fake"}
    return {TUTTI: tutti(current_torch, str(CURRENT)), GLOO: lambda: each(current_torch, TORCH_BACKEND="gloo"),
            NOTHING: lambda: each(current_torch, **nothing), OLD_TUTTI: tutti(torch, PYTHON),
            OLD_GLOO: lambda: each(torch, TORCH_BACKEND="gloo")}


def told(what, times, target):
    return f"{what}: {TUTTI} : {GLOO} {times:.2f} x (target {target:g}{'' if times >= target else ', MISSED'})"


def call_targets(small, large=None):
    """A geometric mean up to 64 KiB, the ratio at 16 MiB, and what a call takes beside PyTorch's own part of it."""
    def remarks(section):
        times = {size_of(row): times_better(section.median(row, TUTTI), section.median(row, GLOO), "less")
                 for row in section.values}
        few = [found for size, found in times.items() if size <= SMALL]
        lines = []
        if few and all(few):
            lines.append(told(f"geometric mean up to {size_label(SMALL)}", statistics.geometric_mean(few), small))
        if large and times.get(LARGE):
            lines.append(told(size_label(LARGE), times[LARGE], large))
        row = next(iter(section.values), None)
        ours, floor = (section.median(row, name) if row else None for name in (TUTTI, NOTHING))
        if ours and floor:
            lines.append(f"{row}: a call takes {number(ours)} us, of which PyTorch {number(floor)} us")
        return lines
    return remarks


def step_targets(targets):
    def remarks(section):
        lines = []
        for row, target in targets.items():
            ours, theirs, floor = (section.median(row, name) for name in (TUTTI, GLOO, NOTHING))
            times = times_better(ours, theirs, "less")
            if times:
                lines.append(told(row, times, target))
            if floor and theirs:
                lines.append(f"{row}: {number(floor)} with nothing sent, {theirs / floor:.2f} x gloo's speed")
        return lines
    return remarks


def by_size(found):
    return [(size_label(found["bytes"]), found["usec_median"])]


def call_sections(quick):
    sizes = [8, 1 << 16, 1 << 20] if quick else [8, *(1 << shift for shift in range(10, 25, 2))]
    cpus = len(os.sched_getaffinity(0))
    for key, name, world, remarks, variables in (
            ("torch_backend_2", "2 ranks", 2, call_targets(40, 8), {}),
            ("torch_backend_4", f"4 ranks on {cpus} CPUs", 4, call_targets(5), {}),
            ("torch_backend_tcp", "2 ranks over loopback TCP", 2, call_targets(2), TCP)):
        yield Section(key, f"PyTorch's all_reduce of f32, {name}", "us", "less",
                      contenders("torch_allreduce.py", [(world, sizes)], **variables), RATIOS, by_size,
                      remarks=remarks)
    some = [size for size in sizes if size <= 1 << 22]
    yield Section("torch_backend_send_recv", "PyTorch's send and recv, half a round trip", "us", "less",
                  contenders("torch_send_recv.py", [(2, some)]), RATIOS, by_size, [(TUTTI, GLOO, 0)])


def step_rows(found):
    ranks = f"{found['model']}, {found['world']} ranks"
    return [(f"{ranks}, ms", found["ms_median"]), (f"{ranks}, MB a rank", found["rss_mb"])]


def step_sections(quick):
    few = 8 if quick else 1
    runs = [(2, ("mlp", 200 // few)), (2, ("conv", 16 // few)), (2, ("gpt", 8 // few)), (4, ("mlp", 100 // few))]
    targets = {"mlp, 2 ranks, ms": 3.5, "mlp, 4 ranks, ms": 5}
    yield Section("torch_backend_step", "DistributedDataParallel's step", "ms and MB", "less",
                  contenders(STEP, runs), RATIOS, step_rows, remarks=step_targets(targets))
    yield Section("torch_backend_step_tcp", "DistributedDataParallel's step over loopback TCP", "ms and MB", "less",
                  contenders(STEP, runs[:1], **TCP), RATIOS, step_rows,
                  remarks=step_targets({"mlp, 2 ranks, ms": 2}))


def memory_section(quick):
    """What a rank holds after it has reduced a tensor of that size: its own memory, and what of the shared it used."""
    sizes = [8, 1 << 20] if quick else [8, 1 << 20, LARGE]

    def rows(found):
        return [(f"all_reduce of {size_label(found['bytes'])}, {found['world']} ranks", found["rss_mb"])]

    return Section("torch_backend_memory", "resident memory of a rank", "MB", "less",
                   contenders("torch_allreduce.py", [(2, sizes), (4, sizes)]), RATIOS, rows)


def rpc_section(quick):
    """A call of torch.distributed.rpc, over Tutti's agent and over PyTorch's."""
    calls = 100 if quick else 1000

    def agent(name, **more):
        return lambda: current_torch(2, "torch_rpc.py", calls, TORCH_RPC_BACKEND=name, TP_SOCKET_IFNAME="lo", **more)

    def remarks(section):
        row = "empty Python function"
        ours, theirs, floor = (section.median(row, name) for name in ("TUTTI", "TENSORPIPE", "in Python"))
        times = times_better(ours, theirs, "less")
        lines = [f"{row}: TUTTI : TENSORPIPE {times:.2f} x (target 1.5{'' if times >= 1.5 else ', MISSED'})"] \
            if times else []
        return lines + [f"{row}: pickling and running it takes {number(floor)} us of these"] * bool(floor)

    return Section("torch_backend_rpc", "PyTorch's rpc_sync, 2 workers", "us", "less",
                   {"TUTTI": lambda: agent("TUTTI", PYTHONPATH=str(backend_package(str(CURRENT))))(),
                    "TENSORPIPE": agent("TENSORPIPE"), "in Python": agent("INTERPRETER")},
                   [("TUTTI", "TENSORPIPE")], lambda found: [(found["call"], found["usec_median"])], remarks=remarks)


def sections(quick):
    return [*call_sections(quick), *step_sections(quick), memory_section(quick), rpc_section(quick)]
