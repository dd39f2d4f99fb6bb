"""PyTorch's own rendezvous handler, of whichever version runs this, as a node that takes orders from stdin, a word a
line, and writes what came of them as lines of JSON.

usage: torch_peer.py HOST PORT RUN_ID MIN MAX ADDRESS LAST_CALL_S KEEP_ALIVE_S [serve]
"""

import json
import os
import sys
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as backends
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as rendezvous


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def make_handler(store, run_id, low, high, address, last_call, keep_alive):
    settings = rendezvous.RendezvousSettings(
        run_id, low, high,
        rendezvous.RendezvousTimeout(timedelta(seconds=60), timedelta(seconds=last_call), timedelta(seconds=20)),
        keep_alive_interval=timedelta(seconds=keep_alive), keep_alive_max_attempt=3)
    backend = backends.C10dRendezvousBackend(store, run_id)
    holder = rendezvous._BackendRendezvousStateHolder(backend, settings)
    node = rendezvous._NodeDesc(address, os.getpid(), 0)
    return rendezvous.DynamicRendezvousHandler(node, settings, backend.name, store, holder)


def join(handler):
    info = handler.next_rendezvous()
    if isinstance(info, tuple):  # 1.13: the agent exchanges the address
        store, rank, world = info
        if rank == 0:
            store.set("MASTER_ADDR", b"from.1.13")
            store.set("MASTER_PORT", b"1131")
        master, port = store.get("MASTER_ADDR").decode(), int(store.get("MASTER_PORT"))
    else:
        store, rank, world = info.store, info.rank, info.world_size
        master, port = info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port
    say(event="begin", node=rank, nodes=world, round=handler._state_holder.state.round, master=master, port=port)
    return store, rank, world


def assign(store, rank, world, workers, role):
    """The numbers of the first worker, as the agent of this version finds them."""
    from torch.distributed.elastic.agent.server import api

    class Agent(api.SimpleElasticAgent):
        _start_workers = _stop_workers = _monitor_workers = _shutdown = None

    spec = api.WorkerSpec(role=role, local_world_size=workers, entrypoint="x", args=(), rdzv_handler=None,
                          max_restarts=0, monitor_interval=1)
    first = Agent._assign_worker_ranks(Agent.__new__(Agent), store, rank, world, spec)[0]
    say(event="ranks", rank=first.global_rank, world=first.world_size, role_rank=first.role_rank,
        role_world=first.role_world_size)


def barrier(store, rank, world):
    from torch.distributed.elastic.agent.server import api
    from torch.distributed.elastic.utils import store as util
    try:
        util.barrier(store=store, world_size=world, key_prefix=api._TERMINAL_STATE_SYNC_ID, barrier_timeout=60)
    except TypeError:
        util.barrier(store, rank, world, key_prefix=api._TERMINAL_STATE_SYNC_ID, barrier_timeout=60)
    say(event="ended")


def main():
    host, port, run_id, low, high, address, last_call, keep_alive = sys.argv[1:9]
    store = dist.TCPStore(host, int(port), is_master="serve" in sys.argv, wait_for_workers=False,
                          timeout=timedelta(seconds=60))
    if "serve" in sys.argv:
        say(event="serves", port=store.port)
    handler = make_handler(store, run_id, int(low), int(high), address, float(last_call), float(keep_alive))
    joined = None
    say(event="ready")
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "join":
                joined = join(handler)
            elif words[0] == "ranks":
                assign(*joined, int(words[1]), words[2])
            elif words[0] == "barrier":
                barrier(*joined)
            elif words[0] == "waiting":
                say(event="waiting", count=handler.num_nodes_waiting())
            elif words[0] == "close":
                say(event="closed", good=handler.shutdown())
        except Exception as error:  # what the test expects, or will show
            say(event="error", kind=type(error).__name__, text=str(error))


main()
