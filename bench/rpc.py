"""Sections of calls to another worker (`tutti bench rpc`) beside TensorPipe, as PyTorch has it, and gRPC, between two
processes of this machine."""
import os
import shutil
import subprocess

from contenders import Missing, compiled, run
from pytorch import current_torch
from section import Section, number, size_label, times_better

KEYS = ["rpc", "rpc_tcp", "rpc_tensor"]
TUTTI, TENSORPIPE, GRPC, MESSAGES = "tutti", "TensorPipe, scripted", "gRPC", "send and recv"
MANY = "64 under way"


def grpc(out, transport, sizes):
    flags = ["pkg-config", "--cflags", "--libs", "grpc++"]
    if not shutil.which("pkg-config") or subprocess.run(flags, capture_output=True).returncode:
        raise Missing("there is no gRPC for C++ (apt-get install libgrpc++-dev)")
    words = subprocess.run(flags, capture_output=True, text=True, check=True).stdout.split()
    return run([compiled(out, "g++", "grpc_calls.cpp", "-std=c++17", "-O2", *words), transport, *sizes])


def tensorpipe(transport, sizes):
    """Where the shared memory of this machine is too small, TensorPipe's shm is too; TP_SOCKET_IFNAME: as a host's
    own name may lead elsewhere."""
    return current_torch(2, "torch_rpc_script.py", transport, *sizes, TP_SOCKET_IFNAME="lo")


def rows(found):
    if found["call"] in ("empty", MANY):
        return [(f"{found['call']}, us a call", found["usec_median"])]
    return [(f"{size_label(found['bytes'])} {found['call']}", found["usec_median"])]


def remarks(targets, least):
    """Beside each target of (row, contender) how many times better we are, and the longest time a row may take."""
    def lines(section):
        for (row, peer), target in targets.items():
            times = times_better(section.median(row, TUTTI), section.median(row, peer), "less")
            if times:
                missed = "" if times >= target else ", MISSED"
                yield f"{row}: {TUTTI} : {peer} {times:.2f} x (target {target:g}{missed})"
        for row, most in least.items():
            took = section.median(row, TUTTI)
            if took:
                yield f"{row}: {number(took)} us (target {most:g}{'' if took <= most else ', MISSED'})"
    return lambda section: list(lines(section))


def rpc_section(out, tutti, key, name, transport, quick, peers, *flags, **judged):
    sizes = [64, 1 << 20] if quick else [64, 1 << 10, 1 << 16, 1 << 20, 1 << 24]
    latest = []

    def ours():
        latest[:] = tutti("rpc", "--sizes", ",".join(map(str, sizes)), *flags)
        return latest

    def messages():
        return [dict(found, usec_median=found["send_recv_usec_median"])
                for found in latest if "send_recv_usec_median" in found]

    contenders = {TUTTI: ours, MESSAGES: messages}
    if TENSORPIPE in peers:
        contenders[TENSORPIPE] = lambda: tensorpipe(transport, [0, *sizes])
    if GRPC in peers:
        contenders[GRPC] = lambda: grpc(out, "tcp" if transport == "tcp" else "unix", [0, *sizes])
    cpus = len(os.sched_getaffinity(0))
    return Section(key, f"{name}, 2 processes on {cpus} CPUs", "us", "less", contenders,
                   [(TUTTI, peer) for peer in contenders if peer != TUTTI], rows, remarks=remarks(**judged))


def sections(out, quick, tutti):
    """`tutti`: runs `tutti bench` with these words."""
    empty, small, many = "empty, us a call", "64 B there", f"{MANY}, us a call"
    large = {(f"16 MiB {way}", MESSAGES): 0.8 for way in ("there", "there and back")}
    both = (TENSORPIPE, GRPC)
    return [
        rpc_section(out, tutti, "rpc", "calls with bytes over shared memory", "shm", quick, both,
                    targets={(empty, TENSORPIPE): 20, (small, TENSORPIPE): 20, **large},
                    least={empty: 3, small: 3, many: 10}),
        rpc_section(out, tutti, "rpc_tcp", "calls with bytes over loopback TCP", "tcp", quick, both, "--transport",
                    "tcp",
                    targets={(empty, TENSORPIPE): 8, (small, TENSORPIPE): 8, **large},
                    least={empty: 20, small: 20, many: 10}),
        rpc_section(out, tutti, "rpc_tensor", "calls with a tensor over shared memory", "shm", quick, (TENSORPIPE,),
                    "--values", "tensor", targets=large, least={small: 3}),
    ]
