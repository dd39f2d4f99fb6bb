"""PyTorch's own rendezvous handler, of whichever version runs this, as a node that takes orders from stdin, a line
each, and writes what came of them as lines of JSON. "new" makes another node of it:

  new HOST PORT RUN_ID MIN MAX ADDRESS LAST_CALL_S KEEP_ALIVE_S
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


def make_handler(host, port, run_id, low, high, address, last_call, keep_alive):
    store = dist.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=60))
    settings = rendezvous.RendezvousSettings(
        run_id, int(low), int(high),
        rendezvous.RendezvousTimeout(timedelta(seconds=60), timedelta(seconds=float(last_call)), timedelta(seconds=20)),
        keep_alive_interval=timedelta(seconds=float(keep_alive)), keep_alive_max_attempt=3)
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
    handler = joined = None
    say(event="ready")
    for line in sys.stdin:
        order, *words = line.split()
        try:
            if order == "new":
                handler = make_handler(*words)
            elif order == "join":
                joined = join(handler)
            elif order == "ranks":
                assign(*joined, int(words[0]), words[1])
            elif order == "barrier":
                barrier(*joined)
            elif order == "waiting":
                say(event="waiting", count=handler.num_nodes_waiting())
            elif order == "close":
                say(event="closed", good=handler.shutdown())
        except Exception as error:  # what the test expects, or will show
            say(event="error", kind=type(error).__name__, text=str(error))


main()
