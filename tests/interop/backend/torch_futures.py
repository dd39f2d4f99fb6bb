"""Futures with the back end tutti: callbacks that wait for other futures, and groups that are destroyed beside threads
that wait, drop works and ask for futures. Started by `tutti run`, 2 ranks; rank 0 prints "futures: n checks"."""
import datetime
import threading

import torch
import torch.distributed as dist
import torch_checks
import tutti_torch  # noqa: F401: makes itself known
from torch_checks import expect

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def sums(i):
    return dist.all_reduce(torch.full((3,), float(i)), async_op=True)


def messages(i):
    peer = 1 - dist.get_rank()
    x = torch.full((3,), float(i))
    return dist.isend(x, peer, tag=i) if dist.get_rank() else dist.irecv(x, peer, tag=i)


def callbacks_wait(store):
    """On rank 0 each future's callback waits for the next future, and the last one until all are complete. Rank 1 makes
    no call before all that is set up."""
    for name, make, n in (("sums", sums, 8), ("messages", messages, 8)):
        if dist.get_rank():
            store.wait([name], datetime.timedelta(seconds=60))
            for work in [make(i) for i in range(n)]:
                work.wait()
            continue
        futures = [make(i).get_future() for i in range(n)]
        ended = threading.Event()
        chained = []
        for i, future in enumerate(futures):
            after = futures[i + 1].wait if i + 1 < n else lambda: expect(ended.wait(60), "all futures are complete")
            chained.append(future.then(lambda f, after=after: (after(), f.value())[1]))
        store.set(name, "1")
        for future in futures:
            future.wait()
        ended.set()
        for i, future in enumerate(chained):
            expect(make is messages or future.wait()[0].tolist() == [2.0 * i] * 3, name)


def a_callback_calls(store):
    def more(f):
        return [dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0] + 1]

    if dist.get_rank():
        store.wait(["more"], datetime.timedelta(seconds=60))
    chained = sums(1).get_future().then(more)
    store.set("more", "1")
    expect(chained.wait()[0].tolist() == [5.0] * 3, "a call within a callback")


def callbacks_exchange(store):
    """In callbacks on both ranks a receive, of which the future is asked for, stands before the send."""
    peer = 1 - dist.get_rank()

    def exchange(f):
        x = torch.zeros(2)
        come = dist.irecv(x, peer, tag=7).get_future()
        dist.send(torch.full((2,), float(dist.get_rank())), peer, tag=7)
        come.wait()
        return x

    if dist.get_rank():
        store.wait(["exchange"], datetime.timedelta(seconds=60))
    chained = sums(1).get_future().then(exchange)
    store.set("exchange", "1")
    expect(chained.wait().tolist() == [float(peer)] * 2, "messages within callbacks")


def callbacks_destroy(store):
    """On rank 0 a callback of each of two groups destroys the other one."""
    groups = [dist.new_group(backend="tutti") for _ in range(2)]
    if dist.get_rank():
        store.wait(["destroy"], datetime.timedelta(seconds=60))
    futures = [dist.all_reduce(torch.ones(2), group=group, async_op=True).get_future() for group in groups]
    if dist.get_rank():
        for future in futures:
            future.wait()
        return
    both = threading.Barrier(2)

    def destroy(group):
        both.wait(60)
        dist.destroy_process_group(group)
        return torch.ones(1)

    ended = [future.then(lambda f, group=group: destroy(group)) for future, group in zip(futures, reversed(groups))]
    store.set("destroy", "1")
    for future in ended:
        future.wait()
    expect(True, "each was destroyed")


def destroyed_beside(store, i):
    """Rank 0 destroys a group while its threads are in the midst of works that never end."""
    rank = dist.get_rank()
    group = dist.new_group(backend="tutti")
    if rank == 0:
        ready = threading.Barrier(5)
        works = [dist.all_reduce(torch.ones(2), group=group, async_op=True) for _ in range(4)]
        told = []

        def wait(work):
            ready.wait()
            try:
                work.wait()
            except Exception as error:
                told.append(str(error))

        def ask(work):
            ready.wait()
            while not work.is_completed():
                pass
            told.append("completed")

        def drop(works):
            ready.wait()
            works.clear()
            told.append("dropped")

        def future(work):
            ready.wait()
            try:
                work.get_future().wait()
            except Exception as error:
                told.append(str(error))

        threads = [threading.Thread(target=f, args=(x,)) for f, x in
                   zip((wait, ask, drop, future), (works[0], works[1], [works.pop()], works[2]))]
        works.clear()
        for thread in threads:
            thread.start()
        ready.wait()
        dist.destroy_process_group(group)
        for thread in threads:
            thread.join(60)
        expect(len(told) == 4 and all("destroyed" in text or text in ("completed", "dropped") for text in told), told)
    store.set(f"gone/{i}/{rank}", "1")
    store.wait([f"gone/{i}/{r}" for r in range(2)], datetime.timedelta(seconds=60))
    if rank:
        dist.destroy_process_group(group)


def main():
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
    store = dist.distributed_c10d._get_default_store()
    callbacks_wait(store)
    a_callback_calls(store)
    callbacks_exchange(store)
    callbacks_destroy(store)
    if VERSION >= (2, 0):
        for i in range(40):
            destroyed_beside(store, i)
    elif dist.get_rank() == 0:
        print("futures lacks the end of a group beside threads that use it: this PyTorch waits for them")
    if dist.get_rank() == 0:
        print(f"futures: {torch_checks.count} checks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
