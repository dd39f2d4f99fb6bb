"""Peer: calls of TorchScript functions over TensorPipe, which run without the interpreter on the callee. Run:
launch.py 2 python3 torch_rpc_script.py shm|tcp SIZE..., each a tensor's bytes; 0: an empty call. At last calls a second
with 64 under way."""
import json
import statistics
import sys
import time
import os
import warnings

import torch
import torch.distributed.rpc as rpc
from torch import Tensor

torch.set_num_threads(1)
warnings.filterwarnings("ignore")  # TorchScript and TensorPipe's rendezvous use what PyTorch has deprecated
transport, sizes = sys.argv[1], [int(size) for size in sys.argv[2:]]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
UNDER_WAY, REPETITION_S = 64, 0.06


@torch.jit.script
def empty() -> None:
    pass


@torch.jit.script
def take(x: Tensor) -> None:
    pass


@torch.jit.script
def echo(x: Tensor) -> Tensor:
    return x


def seconds(call, count):
    start = time.perf_counter()
    call(count)
    return time.perf_counter() - start


def report(what, size, call):
    """`call(n)` makes n calls."""
    count = 3
    while (took := seconds(call, count)) < REPETITION_S / 8:
        count *= 4
    count = max(1, int(count * REPETITION_S / took))
    usec = [seconds(call, count) / count * 1e6 for _ in range(5)]
    print(json.dumps({"bench": "rpc", "peer": "tensorpipe", "call": what, "bytes": size,
                      "usec_median": round(statistics.median(usec), 3), "usec_min": round(min(usec), 3)}), flush=True)


def one_by_one(function, *args):
    def call(count):
        for _ in range(count):
            rpc.rpc_sync("worker1", function, args)
    return call


def many(count):
    waits = []
    for i in range(count):
        if i >= UNDER_WAY:
            waits[i - UNDER_WAY].wait()
            waits[i - UNDER_WAY] = None
        waits.append(rpc.rpc_async("worker1", empty))
    for wait in waits[-UNDER_WAY:]:
        wait.wait()


def measure():
    for size in sizes:
        x = torch.ones(size, dtype=torch.uint8)
        if not size:
            report("empty", 0, one_by_one(empty))
            continue
        report("there", size, one_by_one(take, x))
        report("there and back", size, one_by_one(echo, x))
    report("64 under way", 0, many)


options = {"shm": {"_transports": ["shm"]}, "tcp": {"_transports": ["uv"], "_channels": ["mpt_uv", "basic"]}}
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world,
             rpc_backend_options=rpc.TensorPipeRpcBackendOptions(**options[transport]))
if rank == 0:
    measure()
rpc.shutdown()
