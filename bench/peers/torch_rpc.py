"""Peer: a call of torch.distributed.rpc, over the agent that TORCH_RPC_BACKEND names (TENSORPIPE; TUTTI is found in
PYTHONPATH). Run: launch.py 2 /usr/bin/python3 torch_rpc.py CALLS. `INTERPRETER` measures no agent, but what both ends
of a call of an empty function do in Python: pickle it, run it, and pickle its result."""
import json
import os
import statistics
import sys
import time
import warnings

import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import internal

torch.set_num_threads(1)
warnings.filterwarnings("ignore")  # TensorPipe's rendezvous uses what PyTorch has deprecated
backend, calls = os.environ.get("TORCH_RPC_BACKEND", "TENSORPIPE"), int(sys.argv[1])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LARGE = 16 << 20


def empty():
    pass


def in_python():
    pickler = internal._internal_rpc_pickler
    function = pickler.deserialize(*pickler.serialize(internal.PythonUDF(empty, (), {})))
    return pickler.deserialize(*pickler.serialize(internal._run_function(function)))


def report(what, call, count):
    for _ in range(max(3, count // 10)):
        call()
    usec = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            call()
        usec.append((time.perf_counter() - start) / count * 1e6)
    print(json.dumps({"bench": "rpc", "peer": "torch", "backend": backend, "call": what,
                      "usec_median": round(statistics.median(usec), 2), "usec_min": round(min(usec), 2)}), flush=True)


def with_agent():
    if backend == "TUTTI":
        import tutti_torch  # noqa: F401: makes itself known
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world, backend=getattr(rpc.BackendType, backend))
    if rank == 0:
        small, large = torch.ones(1), torch.ones(LARGE // 4)
        report("empty Python function", lambda: rpc.rpc_sync("worker1", empty), calls)
        report("torch.add of one element", lambda: rpc.rpc_sync("worker1", torch.add, (small, 1)), calls)
        report("16 MiB there and back", lambda: rpc.rpc_sync("worker1", torch.neg, (large,)), max(5, calls // 50))
    rpc.shutdown()


if backend != "INTERPRETER":
    with_agent()
elif rank == 0:
    report("empty Python function", in_python, calls)
