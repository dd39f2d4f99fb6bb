#!/usr/bin/env python3
"""Measures Tutti and its peers in one go and prints ratios: only ratios mean anything on a machine that others use too.

The contenders of a section run alternately, several rounds; each number is the median over the rounds. A peer that is
not installed is named, with what installs it.

usage: ./dev bench [--quick] [--rounds N] [--only SECTION[,SECTION]] [--wheels] [--out DIR]

  --quick     one round, fewer sizes: does everything run?
  --rounds N  rounds of each section (default 5)
  --only ...  some of: all_reduce all_reduce_4 all_reduce_8 all_reduce_tcp send_recv_tcp all_reduce_wire send_recv_wire
              all_reduce_wire_1gbit all_reduce_hosts all_reduce_hosts_1gbit overlap overlap_steps flags step_mlp
              step_conv step_gpt startup store store_clients all_reduce_mpi_2 all_reduce_mpi_4 all_reduce_mpi_8
              torch_backend_2 torch_backend_4 torch_backend_tcp torch_backend_send_recv torch_backend_step
              torch_backend_step_tcp torch_backend_memory torch_backend_rpc rpc rpc_tcp rpc_tensor; all_reduce_mpi,
              step and torch_backend for all of theirs
  --wheels    fetch Intel MPI, MPICH 5 and Open MPI 5 from PyPI (150 MB) into build/peers/mpi, where they stay, and are
              measured from then on
  --out DIR   where results.jsonl and the charts go (default build/measured)
"""
import argparse
import json
import os
import pathlib
import secrets
import subprocess
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]
import chart  # noqa: E402
import many_clients  # noqa: E402
import mpi_wheels  # noqa: E402
import rpc  # noqa: E402
import torch_backend  # noqa: E402
from contenders import Failed, Missing, compiled, objects, run  # noqa: E402
from pytorch import CURRENT, PYTHON, current_torch, has_torch, torch, torch_env  # noqa: E402
from section import Section, number, size_label, size_of  # noqa: E402

TUTTI = ROOT / "build" / "bin" / "tutti"
COMPARE = ROOT / "build" / "bench" / "tutti-bench"
WORLD = 2
GMAC = "GMAC alone"
MPI_WORLDS = (2, 4, 8)
GROUPS = {"all_reduce_mpi": [f"all_reduce_mpi_{world}" for world in MPI_WORLDS],
          "step": ["step_mlp", "step_conv", "step_gpt"], "torch_backend": torch_backend.KEYS}  # what --only also takes


def tutti(*words):
    return run([TUTTI, "bench", *words])


def shm_limit(out, sizes):
    return run([compiled(out, "gcc", "shm_limit.c", "-O3", "-march=native"), *sizes])


def gmac_limit(out, sizes):
    """What a rank's part of sealing an all_reduce between two takes OpenSSL alone, on one core: it seals as many bytes
    as the buffer has, and checks as many."""
    program = compiled(out, "gcc", "gmac_limit.c", "-O2", "-lcrypto")
    return [dict(found, bytes=found["bytes"] // 2) for found in run([program, *(2 * size for size in sizes)])]


def products_limit(out, model, steps):
    program = compiled(out, "gcc", "products_limit.c", "-O2", "-ldnnl")
    return run([program, model, steps], dict(os.environ, OMP_NUM_THREADS="1"))


def mlp_limit(out, world, steps):
    program = compiled(out, "gcc", "mlp_limit.c", "-O3", "-march=native", "-ldnnl", "-lm")
    return run([program, world, steps], dict(os.environ, OMP_NUM_THREADS="1"))


MPI_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")


def mpi(out, world, sizes, flags=(), source="mpi_allreduce.c"):
    """Open MPI; with more ranks than CPUs told so, as its manual asks."""
    program = compiled(out, "mpicc.openmpi", source, "-O2")
    env = dict(os.environ)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    crowded = world > len(os.sched_getaffinity(0))
    if crowded:
        env["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return run(["mpirun.openmpi", *(["--oversubscribe"] if crowded else []), *flags, "-n", world, program, *sizes], env)


def between_hosts(rate, per_host, *words):
    """`tutti bench` on two hosts of so many ranks each."""
    return on_two_hosts(rate, per_host, [TUTTI, "bench", *words])


def on_two_hosts(rate, per_host, program, **variables):
    """A program on two network name spaces of so many ranks each, joined by links of this rate."""
    lab = ROOT / "build" / "tests" / "support" / "netlab"
    if not lab.exists():
        raise Missing(f"{lab} was not built (cmake -DTT_TESTS=ON)")
    command = [lab, "--hosts", "2", "--per-host", per_host, *(["--rate", rate] if rate else []), "--", *program]
    env = dict(os.environ, TT_SECRET=secrets.token_hex(16), **variables)
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, timeout=600)
    if done.returncode == 77:
        raise Missing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no network name spaces here")
    if done.returncode:
        raise Failed(f"netlab: exit code {done.returncode}\n{done.stderr[-800:]}")
    return objects(done.stdout)


def torch_startup():
    has_torch(PYTHON)  # asked before the clock runs
    start = time.perf_counter()
    torch(WORLD, "torch_hello.py")
    return [{"bench": "startup", "peer": "torch", "world": WORLD,
             "ms_median": round((time.perf_counter() - start) * 1e3, 1)}]


# ---- sections ----

def all_reduce_sections(out, quick):
    sizes = [8, 1 << 10, 1 << 16, 1 << 20] if quick else [8, *(1 << shift for shift in range(10, 28, 2))]

    def ours(world, sizes, buffers):
        comma = ",".join(map(str, sizes))
        return tutti("all_reduce", "--world", str(world), "--sizes", comma, "--buffers", buffers)

    def by_size(found):
        return [(size_label(found["bytes"]), found["usec_median"])]

    symmetric, plain, gloo = "tutti symmetric", "tutti plain", "PyTorch gloo"
    yield Section("all_reduce", f"all_reduce f32, {WORLD} ranks", "us", "less", {
        symmetric: lambda: ours(WORLD, sizes, "symmetric"),
        plain: lambda: ours(WORLD, sizes, "plain"),
        "limit": lambda: shm_limit(out, sizes),
        "Open MPI": lambda: mpi(out, WORLD, sizes),
        gloo: lambda: torch(WORLD, "torch_allreduce.py", *sizes),
    }, [(symmetric, "limit"), (symmetric, "Open MPI"), (plain, "Open MPI"), (symmetric, gloo)],
        by_size, [(symmetric, "limit", 0), (symmetric, "Open MPI", 1 << 14), (plain, "Open MPI", 1 << 14),
                  (symmetric, gloo, 0)])

    for world in (4, 8):  # more ranks than CPUs on most machines that run this
        yield Section(f"all_reduce_{world}", f"all_reduce f32, {world} ranks on {len(os.sched_getaffinity(0))} CPUs",
                      "us", "less", {
            symmetric: lambda world=world: ours(world, sizes, "symmetric"),
            plain: lambda world=world: ours(world, sizes, "plain"),
            "Open MPI": lambda world=world: mpi(out, world, sizes),
            gloo: lambda world=world: torch(world, "torch_allreduce.py", *sizes),
        }, [(symmetric, "Open MPI"), (plain, "Open MPI"), (symmetric, gloo)], by_size,
            [(symmetric, "Open MPI", 0), (plain, "Open MPI", 0), (symmetric, gloo, 0)])


def mpi_sections(out, quick, may_fetch):
    """Beside the MPIs of today, which PyPI has."""
    sizes = [8, 1 << 10, 1 << 16, 1 << 20] if quick else [8, *(1 << shift for shift in range(10, 28, 2))]
    comma, cpus = ",".join(map(str, sizes)), len(os.sched_getaffinity(0))

    def by_size(found):
        return [(size_label(found["bytes"]), found["usec_median"])]

    def ours(world, buffers):
        return lambda: tutti("all_reduce", "--world", str(world), "--sizes", comma, "--buffers", buffers)

    def theirs(world, name):
        return lambda: mpi_wheels.all_reduce(out, name, world, sizes, may_fetch)

    kinds = ("symmetric", "plain")
    for world in MPI_WORLDS:
        yield Section(f"all_reduce_mpi_{world}", f"all_reduce f32, {world} ranks on {cpus} CPUs", "us", "less", {
            **{f"tutti {kind}": ours(world, kind) for kind in kinds},
            **{name: theirs(world, name) for name in mpi_wheels.PACKAGES},
        }, [(f"tutti {kind}", name) for kind in kinds for name in mpi_wheels.PACKAGES], by_size,
            remarks=mpi_wheels.verdicts)


def tcp_sections(out, quick):
    """Ranks joined by TCP: over loopback with shared memory switched off, beside the peers' TCP; and between two
    hosts."""
    sizes = [8, 1 << 14, 1 << 20] if quick else [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24]
    comma = ",".join(map(str, sizes))

    def by_size(found):
        return [(size_label(found["bytes"]), found["usec_median"])]

    tcp = ("--buffers", "plain", "--transport", "tcp")
    yield Section("all_reduce_tcp", f"all_reduce f32 over loopback TCP, {WORLD} ranks", "us", "less", {
        "tutti": lambda: tutti("all_reduce", "--world", str(WORLD), "--sizes", comma, *tcp),
        "PyTorch gloo": lambda: torch(WORLD, "torch_allreduce.py", *sizes),
        "Open MPI": lambda: mpi(out, WORLD, sizes, MPI_TCP),
    }, [("tutti", "PyTorch gloo"), ("tutti", "Open MPI")], by_size,
    [("tutti", "PyTorch gloo", 0), ("tutti", "Open MPI", 0)])

    between = [] if quick else [24 << 10, 32 << 10, 48 << 10]  # where others send unasked, or not
    some = sorted([size for size in sizes if size <= 1 << 22] + between)
    yield Section("send_recv_tcp", "send and recv over loopback TCP, half a round trip", "us", "less", {
        "tutti": lambda: tutti("send_recv", "--world", str(WORLD), "--sizes", ",".join(map(str, some)), *tcp),
        "PyTorch gloo": lambda: torch(WORLD, "torch_send_recv.py", *some),
        "Open MPI": lambda: mpi(out, WORLD, some, MPI_TCP, "mpi_send_recv.c"),
    }, [("tutti", "PyTorch gloo"), ("tutti", "Open MPI")], by_size,
    [("tutti", "PyTorch gloo", 0), ("tutti", "Open MPI", 0)])

    most = 1 << 20  # an all_reduce of 16 MiB takes a second at 1 Gbit/s
    for rate, name in ((None, "joined by a bridge"), ("1gbit", "joined by 1 Gbit/s")):
        few = ",".join(str(size) for size in sizes if not rate or size <= most)
        yield Section("all_reduce_hosts" + ("_1gbit" if rate else ""), f"all_reduce f32, 2 hosts of 2 ranks {name}",
                      "us", "less", {
            "tutti": lambda rate=rate, few=few: between_hosts(rate, 2, "all_reduce", "--sizes", few, "--buffers",
                                                              "plain"),
            "TCP alone": lambda rate=rate, few=few: between_hosts(rate, 2, "all_reduce", "--sizes", few, *tcp),
        }, [("tutti", "TCP alone")], by_size, [("tutti", "TCP alone", 0)])


def price_of_sealing(section):
    """A line a size: what the sealed wire takes more than the plain one, beside the least it could."""
    lines = []
    for row in section.values:
        sealed, plain, least = (section.median(row, name) for name in ("sealed", "plain", GMAC))
        if sealed is None or plain is None:
            continue
        more = sealed - plain
        line = f"{row}: sealing adds {number(more)} us, {100 * more / plain:.1f} %"
        if least and size_of(row) >= 1 << 16:
            line += f", {more / least:.2f} times what OpenSSL alone takes"
        lines.append(line)
    return lines


def wire_sections(out, quick):
    """The three wires side by side: over loopback, where the processor is all there is, and over a link."""
    def by_wire(function, *words):
        return {wire: lambda wire=wire: function(*words, "--wire", wire) for wire in ("sealed", "plain", "tls")}

    def comma(sizes):
        return ",".join(map(str, sizes))

    def by_size(found):
        return [(size_label(found["bytes"]), found["usec_median"])]

    tcp = ("--buffers", "plain", "--transport", "tcp")
    ratios = [("sealed", "plain"), ("sealed", "tls")]
    sizes = [8, 1 << 20] if quick else [8, 1 << 16, 1 << 20, 1 << 22, 1 << 24]
    yield Section("all_reduce_wire", f"all_reduce f32 over loopback TCP, {WORLD} ranks", "us", "less", {
        **by_wire(tutti, "all_reduce", "--world", str(WORLD), "--sizes", comma(sizes), *tcp),
        GMAC: lambda sizes=sizes: gmac_limit(out, sizes)}, ratios, by_size, remarks=price_of_sealing)

    sizes = [8, 1 << 14] if quick else [8, 1 << 10, 1 << 14, 1 << 16, 1 << 20]
    yield Section("send_recv_wire", "send and recv over loopback TCP, half a round trip", "us", "less",
                  by_wire(tutti, "send_recv", "--world", str(WORLD), "--sizes", comma(sizes), *tcp), ratios, by_size,
                  remarks=price_of_sealing)

    sizes = [1 << 20] if quick else [1 << 16, 1 << 20, 1 << 24]
    yield Section("all_reduce_wire_1gbit", "all_reduce f32, 2 hosts of a rank joined by 1 Gbit/s", "us", "less",
                  by_wire(between_hosts, "1gbit", 1, "all_reduce", "--sizes", comma(sizes), "--buffers", "plain"),
                  ratios, by_size, remarks=price_of_sealing)


def overlap_section(quick):
    """An asynchronous all_reduce of 16 MiB over 1 Gbit/s while its ranks compute for a share of its time. No program
    can be faster than the link, nor than computing and what reducing takes of the CPU."""
    program = [ROOT / "build" / "tests" / "fault" / "overlap", 1 << 24, 3 if quick else 7]
    latest = []

    def measured():
        latest[:] = on_two_hosts("1gbit", 1, program, TT_WIRE="plain")
        return latest

    def limit():
        return [dict(found, both_ms=max(found["compute_ms"] + found["cpu_ms"], found["reduce_ms"]))
                for found in latest]

    def alone(which):
        return lambda: [dict(found, both_ms=found[which]) for found in latest]

    return Section("overlap", "all_reduce beside computing, 2 hosts joined by 1 Gbit/s", "ms", "less", {
        "both at once": measured, "all_reduce alone": alone("reduce_ms"), "computing alone": alone("compute_ms"),
        "CPU time of all_reduce": alone("cpu_ms"), "limit": limit,
    }, [("both at once", "limit")], lambda found: [(f"computing for {found['share']:g} of its time", found["both_ms"])])


def overlap_steps_section(quick):
    """Training steps of two ranks over 1 Gbit/s. Averages can't be there before each bucket, when its last gradient is,
    and all later ones have crossed the link, by the same steps' traces."""
    latest = []

    def averaged():
        latest.clear()
        for model, steps in (("conv", 25 if quick else 200), ("gpt", 10 if quick else 50)):
            latest.extend(on_two_hosts("1gbit", 1, [COMPARE, "link", "--model", model, "--steps", steps,
                                                    "--mbit", 1000]))
        return [dict(found, ms=found["least_ms"] * found["of_least"]) for found in latest]

    def least():
        return [dict(found, ms=found["least_ms"]) for found in latest]

    return Section("overlap_steps", "a step until gradients are averaged, 2 hosts joined by 1 Gbit/s", "ms", "less", {
        "averaged": averaged, "least": least,
    }, [("averaged", "least")], lambda found: [(found["model"], found["ms"])])


def flags_section(out, quick):
    """What a step of the MLP costs more with a parameter that it doesn't use, and with ranks that may run out of data:
    here no flag and tt_join, there find_unused_parameters and Join; and one of a large table with sparse gradients.
    Steps with and without take turns."""
    whats = ("unused", "mlp", 200 if quick else 2000), ("join", "mlp", 200 if quick else 2000), \
        ("sparse", "table", 20 if quick else 200)

    def ours():
        program = compiled(out, "gcc", ROOT / "bench" / "step_pairs.c", "-O2", f"-I{ROOT / 'include'}",
                           f"-L{ROOT / 'build' / 'lib'}", "-ltutti", "-ltutti-comm",
                           f"-Wl,-rpath,{ROOT / 'build' / 'lib'}")
        env = dict(os.environ, OMP_NUM_THREADS="1")
        return [one for what in whats for one in run([TUTTI, "run", "--nproc-per-node=2", program, *what], env)]

    def theirs(function):
        return lambda: [one for what, _, pairs in whats for one in function(2, "torch_flags.py", what, pairs)]

    return Section("flags", "a step with, beside a step without", "times", "less", {
        "tutti": ours, "PyTorch": theirs(torch), "current PyTorch": theirs(current_torch),
    }, [("tutti", "PyTorch"), ("tutti", "current PyTorch")], lambda found: [(found["what"], found["ratio"])])


def step_section(out, model, title, steps):
    """Training steps of a model, on one rank and on two."""
    def rows(found):
        ranks = "1 rank" if found["world"] == 1 else f"{found['world']} ranks"
        if "ms_median" in found:
            yield f"{model}, {ranks}, ms", found["ms_median"]
        if "rss_mb" in found:
            yield f"{model}, {ranks}, MB a rank", found["rss_mb"]
        if "pool_mb" in found and found["world"] == 1:
            yield f"{model}, {ranks}, MB of tensors", found["pool_mb"]

    def both_worlds(function):
        return lambda: function(1) + function(2)

    def step(world, *flags):
        return tutti("step", "--model", model, "--world", world, "--steps", steps, *flags)

    def needs():
        """What the arithmetic of a step needs at once, beside what tensors have had."""
        return [{"world": 1, "pool_mb": found["needs_mb"]}
                for found in tutti("step", "--model", model, "--world", 1, "--steps", 1)]

    def times_only(found):
        return [{key: one[key] for key in ("world", "ms_median")} for one in found]

    contenders = {
        "tutti": both_worlds(step),
        "apart": lambda: times_only(step(2, "--apart")),
        "needed": needs,
        "products": lambda: products_limit(out, model, steps),
        "PyTorch": both_worlds(lambda world: torch(world, "torch_train.py", model, steps)),
        "current PyTorch": both_worlds(lambda world: current_torch(world, "torch_train.py", model, steps)),
    }
    if model == "mlp":
        contenders["limit"] = both_worlds(lambda world: mlp_limit(out, world, steps))
    if model == "gpt":
        contenders["bf16"] = both_worlds(lambda world: times_only(step(world, "--amp", "bf16")))
    return Section("step_" + model, title, "ms and MB", "less", contenders,
                   [("tutti", name) for name in contenders if name != "tutti"], rows)


def step_sections(out, quick):
    few = 4 if quick else 1
    return [step_section(out, "mlp", "training step: 784-512-10, batch 32", 200 // few),
            step_section(out, "conv", "training step: MNIST's convolutional network, batch 64", 12 // few),
            step_section(out, "gpt", "training step: GPT of 4 layers, 256 channels, 8 x 128 tokens", 8 // few)]


def sections(out, quick, may_fetch):
    return [
        *all_reduce_sections(out, quick),
        *mpi_sections(out, quick, may_fetch),
        *tcp_sections(out, quick),
        *wire_sections(out, quick),
        overlap_section(quick),
        overlap_steps_section(quick),
        flags_section(out, quick),
        *step_sections(out, quick),
        *torch_backend.sections(quick),
        *rpc.sections(out, quick, tutti),
        Section("startup", f"startup, {WORLD} ranks", "ms", "less", {
            "tutti": lambda: tutti("startup", "--world", str(WORLD)),
            "PyTorch": torch_startup,
        }, [("tutti", "PyTorch")], lambda found: [("join, all_reduce, leave", found["ms_median"])]),
        Section("store", "store, 1 client", "operations a second", "more", {
            "tutti": lambda: tutti("store", "--clients", "1"),
            "PyTorch": lambda: torch(1, "torch_store.py", 500 if quick else 5000),
        }, [("tutti", "PyTorch")], lambda found: [(found["op"], found["ops_per_sec"])]),
        many_clients_section(quick),
    ]


def many_clients_section(quick):
    count = many_clients.FEW if quick else many_clients.CLIENTS

    def torch_server(python, dialect, setup):
        if not has_torch(python):
            raise Missing(f"{python} has no torch (./dev setup {setup} installs it)")
        try:
            return [many_clients.measure(many_clients.torch_server(python), count, dialect, torch_env())]
        except Failed as reason:  # PyTorch 1.13's resets connections when there are many
            raise Missing(f"{count} are too many for it: {str(reason).strip().splitlines()[-1]}") from reason

    return Section("store_clients", f"store, {count} clients", "ms and bytes", "less", {
        "tutti": lambda: [many_clients.measure([TUTTI, "store", "--port", "0"], count)],
        "PyTorch": lambda: torch_server(PYTHON, 1, "--interop"),
        "current PyTorch": lambda: torch_server(str(CURRENT), 2, "--torch"),
    }, [("tutti", "PyTorch"), ("tutti", "current PyTorch")], many_clients.rows)


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "unknown")
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, {time.strftime('%Y-%m-%d')}"


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--wheels", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "measured")
    args = parser.parse_args()
    if args.help:
        print(__doc__)
        return 0
    out, rounds = args.out.resolve(), args.rounds or (1 if args.quick else 5)
    programs = ROOT / "build" / "peers"
    for folder in (out, programs):
        folder.mkdir(parents=True, exist_ok=True)
    wanted = {key for name in args.only.split(",") for key in GROUPS.get(name, [name])}
    chosen = [s for s in sections(programs, args.quick, args.wheels) if not args.only or s.key in wanted]
    if not chosen:
        print(f"bench: nothing is called \"{args.only}\"; ./dev bench --help lists the sections", file=sys.stderr)
        return 2
    print(f"{machine()}; medians of {rounds} alternating round(s); \"A : B\" is how many times better A is\n")
    for section in chosen:
        section.measure(rounds)
        print("\n".join(section.table()) + "\n", flush=True)
    with open(out / "results.jsonl", "w") as file:
        for section in chosen:
            file.writelines(json.dumps(found) + "\n" for found in section.objects)
    chart.write(out, chosen)
    print(f"single results: {out}/results.jsonl; charts: {out}/*.svg")
    return 1 if any(note.startswith("FAILED") for s in chosen for note in s.notes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
