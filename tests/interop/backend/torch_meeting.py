"""Ranks that meet in the way that the arguments say, by the back end tutti, and print "met-RANK"."""
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

if sys.argv[1:2] != ["without-import"]:
    import tutti_torch  # noqa: F401

TIMEOUT = timedelta(seconds=60)


def use(rank, world):
    x = torch.full((5,), float(rank + 1))
    dist.all_reduce(x)
    assert x.tolist() == [world * (world + 1) / 2] * 5, x
    dist.barrier()
    dist.destroy_process_group()


def meet(**options):
    dist.init_process_group("tutti", timeout=TIMEOUT, **options)
    rank, world = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "tutti"
    use(rank, world)
    print(f"met-{rank}\n", end="", flush=True)


def stores(folder, first_port, second_port):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    two = not torch.__version__.startswith("1.")

    def tcp(port, **options):
        return dist.TCPStore("127.0.0.1", int(port), world, rank == 0, timeout=TIMEOUT, **options)

    kept = [tcp(first_port), tcp(second_port, use_libuv=False) if two else None, dist.FileStore(f"{folder}/s", world)]
    for store in filter(None, kept):
        for prefix in ("a", "b"):
            dist.init_process_group("tutti", store=dist.PrefixStore(prefix, store), rank=rank, world_size=world,
                                    timeout=TIMEOUT)
            use(rank, world)
    dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
    use(0, 1)
    if rank == 0:  # it serves the TCP stores, and the file store counts
        kept[0].wait(["done"], TIMEOUT)
    else:
        kept[0].set("done", "1")
    print(f"met-{rank}\n", end="", flush=True)


def late():
    """Rank 0 comes when rank 1 has given up. Their store still answers: 1.13's doesn't, where it was told to wait for
    what has come since."""
    dist.init_process_group("tutti", timeout=TIMEOUT)
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["given up"], TIMEOUT)
    try:
        tutti_torch._C.create(dist.PrefixStore("late", store), rank, 2, 3.0)
        raise AssertionError("two ranks that were never there together have met")
    except tutti_torch.DistBackendError as error:
        assert rank == 0 or "TT_ERR_TIMEOUT: rank 0 of 2 did not join" in str(error), error
    store.set("given up", "1")
    dist.barrier()
    assert store.get("given up") == b"1"
    dist.barrier()
    print(f"met-{rank}\n", end="", flush=True)


def restarted(folder):
    """The first time node 1's rank ends when all have met, while that of node 0 waits until its launcher ends it. So
    one agent counts a restart, and the other none."""
    node = os.environ["NODE"]
    first = not os.path.exists(f"{folder}/{node}")
    open(f"{folder}/{node}", "w", encoding="ascii").close()
    if not first:
        meet()
        print(f"count-{os.environ['TORCHELASTIC_RESTART_COUNT']}\n", end="", flush=True)
        return
    dist.init_process_group("tutti", timeout=TIMEOUT)
    dist.barrier()
    if node == "1":
        os._exit(3)
    signal.alarm(300)  # if nobody ends it
    signal.pause()


def spawned(rank, port):
    meet(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def devices():
    """Names of several devices: as with gloo in the place of tutti, where there is no GPU."""
    if torch.__version__.startswith("1."):
        return
    for name in ("cpu:X,cuda:gloo", "cpu:X,cuda:nccl"):
        came = []
        for backend in ("gloo", "tutti"):
            try:
                # alone, as a rank whose GPU is missing leaves while the other still connects
                alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1} if "nccl" in name else {}
                dist.init_process_group(name.replace("X", backend), timeout=TIMEOUT, **alone)
                dist.all_reduce(torch.ones(1))
                came.append("works")
            except (RuntimeError, ValueError) as error:
                came.append(f"{type(error).__name__}: {error}".replace("gloo", "X").replace("tutti", "X"))
            if dist.is_initialized():
                dist.destroy_process_group()
        assert came[0] == came[1], came
        assert came[0] == "works" or "nccl" in name, came
    dist.init_process_group()
    assert dist.get_backend() != "tutti"  # whoever names none gets PyTorch's own
    dist.destroy_process_group()


if __name__ == "__main__":
    how, *rest = sys.argv[1:]
    if how in ("env", "without-import"):
        meet()
    elif how == "init":
        meet(init_method=rest[0], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    elif how == "spawn":
        torch.multiprocessing.spawn(spawned, (rest[0],), 2)
    else:
        {"stores": stores, "late": late, "devices": devices, "restarted": restarted}[how](*rest)
