"""Windows (dist._new_window()) of the back end tutti beside a model in one process. Argument: the name of a function
below, or several cases (one_job.py). Started by `tutti run`. Rank 0 prints "CASE: n checks", or "CASE lacks all: ..."
where this PyTorch has no windows."""
import contextlib
import datetime
import functools
import os
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch_checks
import tutti_torch
from one_job import function
from torch._C import _distributed_c10d as c10d
from torch_checks import expect

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
refused = functools.partial(torch_checks.refused, kind=ValueError)


def within(**time):
    options = c10d.WaitSignalOptions()
    options.timeout = datetime.timedelta(**time)
    return options


def memory(symmetric):
    return tutti_torch.symmetric_memory() if symmetric else contextlib.nullcontext()


def against_a_model():
    """Rounds of random puts, each to a part of a peer's window that is the writer's alone; signals order them."""
    for symmetric in (True, False):
        for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.uint8, torch.complex64):
            part, rounds = 40, 6
            with memory(symmetric):
                tensor = torch.zeros(WORLD * part, dtype=dtype)
            window = dist._new_window(tensor)
            model = [torch.zeros(WORLD * part, dtype=dtype) for _ in range(WORLD)]
            draws = random.Random(7)  # the same on all ranks
            for number in range(rounds):
                for writer in range(WORLD):
                    for target in range(WORLD):
                        for _ in range(draws.randrange(4)):
                            first = draws.randrange(part)
                            count = draws.randrange(part - first + 1)
                            values = torch.tensor([draws.randrange(100) for _ in range(count)], dtype=dtype)
                            at = writer * part + first
                            model[target][at:at + len(values)] = values
                            if writer == RANK:
                                window.put(values, target, at, number % 2 == 1)
                for target in range(WORLD):
                    window.signal(target, False)
                for writer in range(WORLD):
                    expect(window.wait_signal(writer, False).wait(), "a signal")
                expect(torch.equal(tensor, model[RANK]), f"{dtype}, symmetric {symmetric}, round {number}")
                dist.barrier()  # the next round may overwrite
            del window


def signals_count():
    """Each is waited for once; they come in any number before that."""
    window = dist._new_window(torch.zeros(4))
    peer = 1 - RANK
    if RANK == 0:
        for _ in range(5):
            window.signal(peer, False)
    else:
        for _ in range(5):
            window.wait_signal(peer, False)
        refused(lambda: window.wait_signal(peer, False, within(milliseconds=100)), "TT_ERR_TIMEOUT",
                "no signal of rank 0", "can still be used", kind=RuntimeError)
    dist.barrier()
    if RANK == 0:
        window.signal(peer, True).wait()
    else:
        window.wait_signal(peer, False)  # the one that was late
        works = [window.wait_signal(peer, True) for _ in range(3)]
        expect(not any(work.is_completed() for work in works), "none has come")
    dist.barrier()
    if RANK == 0:
        window.put(torch.full((2,), 7.0), peer, 1, False)
        for _ in range(3):
            window.signal(peer, False)
        expect(True, "sent")
    else:
        works[1].wait()
        expect(window.map_remote_tensor(RANK).tolist() == [0, 7, 7, 0], "the put before the signal")
        done = threading.Event()
        works[2].get_future().then(lambda _: done.set())
        expect(done.wait(20), "its future")
        works[0].wait()
        expect(all(work.is_completed() and work.is_success() for work in works), "all have come")
    dist.barrier()


def views():
    """A peer's tensor that lies in shared memory is there to be read and written; another isn't."""
    with memory(True):
        tensor = torch.full((6,), float(RANK))
    window = dist._new_window(tensor)
    expect(window.get_attr(1).access_type == c10d.WindowAccessType.UNIFIED, "unified")
    peer = (RANK + 1) % WORLD
    if os.environ.get("TT_TRANSPORT") == "tcp":
        refused(lambda: window.map_remote_tensor(peer), "can't be mapped")
        return
    view = window.map_remote_tensor(peer)
    expect(view.tolist() == [float(peer)] * 6, f"peer's {view}")
    dist.barrier()
    view[2] = 100.0 + RANK
    dist.barrier()
    expect(tensor[2] == 100 + (RANK - 1) % WORLD, f"written {tensor}")
    del window
    dist.barrier()
    expect(view[0] == peer, "a view keeps its window")
    window = dist._new_window(torch.ones(2))
    refused(lambda: window.map_remote_tensor(peer), f"rank {peer}", "tutti_torch.symmetric_memory()")
    expect(window.map_remote_tensor(RANK).tolist() == [1, 1], "its own")


def registering():
    window = dist._new_window()
    for call in (lambda: window.put(torch.ones(1), 0, 0, False), lambda: window.map_remote_tensor(0),
                 window.tensor_deregister):
        refused(call, "tensor_register() gives it one")
    for number in range(4):
        tensor = torch.zeros(3 + number)
        window.tensor_register(tensor, number % 2 == 0)
        refused(lambda: window.tensor_register(torch.ones(1)), "tensor_deregister()")
        window.put(torch.full((3,), float(RANK)), (RANK + 1) % WORLD, number, True)
        window.tensor_deregister()  # what was put is there
        expect(tensor[number:number + 3].tolist() == [float((RANK - 1) % WORLD)] * 3, f"{tensor}")


def bad_input():
    refused(lambda: dist._new_window(torch.ones(3 if RANK else 4)), "16 bytes of Float on rank 0",
            "12 bytes of Float on rank 1")
    refused(lambda: dist._new_window(torch.ones(4, dtype=torch.int32 if RANK == 1 else torch.float32)),
            "of Float on rank 0", "of Int on rank 1")
    refused(lambda: dist._new_window(torch.ones(4) if RANK else None), "no tensor on rank 0", "on rank 1")
    refused(lambda: dist._new_window(torch.ones(4, 4).t()[:, :2] if RANK == 1 else torch.ones(4, 2)), "of rank 1")
    window = dist._new_window(torch.zeros(8))
    for call, parts in ((lambda: window.put(torch.ones(2), WORLD, 0, False), [f"0 to {WORLD - 1}, got {WORLD}"]),
                        (lambda: window.put(torch.ones(2), -1, 0, False), ["got -1"]),
                        (lambda: window.put(torch.ones(2), 0, 7, False), ["2 elements from 7", "window of 8"]),
                        (lambda: window.put(torch.ones(2), 0, -1, False), ["from -1"]),
                        (lambda: window.put(torch.ones(2), 0, 1 << 62, False), ["window of 8"]),
                        (lambda: window.put(torch.ones(2, dtype=torch.float64), 0, 0, False), ["Float", "Double"]),
                        (lambda: window.signal(WORLD, False), [f"got {WORLD}"]),
                        (lambda: window.wait_signal(-1, False), ["got -1"]),
                        (lambda: window.map_remote_tensor(WORLD), [f"got {WORLD}"]),
                        (lambda: window.get_attr(WORLD), [f"got {WORLD}"])):
        refused(call, *parts)
    window.put(torch.ones(0), 0, 8, False)
    window.put(torch.arange(8.0).view(2, 4).t(), (RANK + 1) % WORLD, 0, False)  # elements as the program sees them
    window.signal((RANK + 1) % WORLD, False)
    window.wait_signal((RANK - 1) % WORLD, False)
    expect(window.map_remote_tensor(RANK).tolist() == [0, 4, 1, 5, 2, 6, 3, 7], "after all that")


def a_rank_leaves():
    """Who waits for its signal learns it."""
    window = dist._new_window(torch.zeros(8))
    dist.barrier()
    if RANK == 0:
        expect(True, "left")
        del window
        return
    refused(lambda: window.wait_signal(0, False), "rank 0", kind=RuntimeError)


def speed():
    """The time of a signal there and back beside that of a message, in us; medians."""
    with memory(True):
        window = dist._new_window(torch.zeros(1))
    peer, x, rounds = 1 - RANK, torch.zeros(1), 200

    def messages():
        if RANK == 0:
            dist.send(x, peer)
            dist.recv(x, peer)
        else:
            dist.recv(x, peer)
            dist.send(x, peer)

    def signals():
        if RANK == 0:
            window.signal(peer, False)
            window.wait_signal(peer, False)
        else:
            window.wait_signal(peer, False)
            window.signal(peer, False)

    times = {messages: [], signals: []}
    for _ in range(9):
        for call, taken in times.items():
            begun = time.perf_counter()
            for _ in range(rounds):
                call()
            taken.append((time.perf_counter() - begun) / rounds * 5e5)
    if RANK == 0:
        message, signal = (sorted(taken)[4] for taken in times.values())
        print(f"one way: a message {message:.2f} us, a signal {signal:.2f} us")
    expect(True, "measured")


if __name__ == "__main__":
    torch.set_num_threads(1)
    CASE = function(sys.argv[1])
    if not hasattr(dist, "_new_window"):
        print(f"{CASE} lacks all: this PyTorch has no windows")
        sys.exit(0)
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
    globals()[CASE]()
    if RANK == 0:
        print(f"{CASE}: {torch_checks.count} checks", flush=True)
    dist.destroy_process_group()
