"""Process groups whose members change in the same processes (enable_reconfigure=True, reconfigure()), of the back end
that the second argument names. Argument: the name of a function below, or several cases (one_job.py). Started by
`tutti run` on 4 ranks. Rank 0 prints "CASE: n checks"; a case prints "CASE lacks all" where this PyTorch has no
reconfigure()."""
import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch_checks
import tutti_torch
from one_job import function
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_checks import expect, refused

BACKEND = sys.argv[2] if len(sys.argv) > 2 else "tutti"
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHORT, LONG = datetime.timedelta(seconds=1), datetime.timedelta(seconds=60)
CPU = torch.device("cpu")


def begin():
    """A group that has no members yet."""
    dist.init_process_group(BACKEND, timeout=LONG, enable_reconfigure=True)
    return store()


def store():
    return dist.PrefixStore(CASE, dist.distributed_c10d._get_default_store())


def backend():
    return dist.distributed_c10d._get_default_group()._get_backend(CPU)


def handle():
    return dist._get_reconfigure_handle()


def exchanged(name, ranks=range(WORLD)):
    """The handles of these ranks of the job, in this order."""
    if RANK in ranks:
        store().set(f"{name}/{RANK}", handle())
    return [store().get(f"{name}/{r}").decode() for r in ranks]


def become(uuid, handles, timeout=LONG):
    expect(dist._reconfigure(uuid, handles, timeout=timeout).wait(), "the work has ended well")


def all_here(name):
    """All processes of the job, members or not."""
    store().set(f"{name}/here/{RANK}", "")
    for r in range(WORLD):
        store().get(f"{name}/here/{r}")


def expect_member(rank, world):
    expect((dist.get_rank(), dist.get_world_size()) == (rank, world),
           f"{dist.get_rank()} of {dist.get_world_size()} where {rank} of {world} was expected")
    x = torch.tensor([dist.get_rank() + 1.0, 1.0])
    dist.all_reduce(x)
    expect(x.tolist() == [world * (world + 1) / 2, world], f"sum {x}")
    x = torch.full((3,), float(rank))
    dist.broadcast(x, group_src=world - 1)
    expect(x.tolist() == [world - 1.0] * 3, f"broadcast {x}")


# ---- what gloo can, too


def all_of_them():
    begin()
    become(100, exchanged("all"))
    expect_member(RANK, WORLD)
    become(101, exchanged("again"))
    expect_member(RANK, WORLD)


def without_one():
    """Of any place; the one that was left out comes back, last."""
    begin()
    become(200, exchanged("first"))
    order = list(range(WORLD))
    for lost in (WORLD - 1, 0, 1):
        handles = exchanged(f"before {lost}", order)
        left = [r for r in order if r != lost]
        if RANK != lost:
            become(201 + 2 * lost, [h for r, h in zip(order, handles) if r != lost])
            expect_member(left.index(RANK), WORLD - 1)
        order = left + [lost]
        become(202 + 2 * lost, exchanged(f"after {lost}", order))
        expect_member(order.index(RANK), WORLD)


def parts_and_whole():
    begin()
    become(300 + RANK, [handle()])
    expect_member(0, 1)
    half = WORLD // 2
    mine = range(half) if RANK < half else range(half, WORLD)
    handles = exchanged("alone")
    become(310 + (RANK < half), handles[mine.start:mine.stop])
    expect_member(RANK - mine.start, len(mine))
    become(320, exchanged("whole"))
    expect_member(RANK, WORLD)


def late_ones():
    begin()
    handles = exchanged("first")
    if RANK < 2:
        become(400, handles[:2])
        expect_member(RANK, 2)
    become(401, exchanged("all"))
    expect_member(RANK, WORLD)


def in_a_set():
    """The back end chooses the ranks: all choose the same ones."""
    begin()
    become(500, set(exchanged("all")))
    expect_member(dist.get_rank(), WORLD)
    if BACKEND == "tutti":  # members keep their order, and those that join come last
        expect(dist.get_rank() == RANK, "the order of the ranks")


def messages():
    begin()
    become(600, exchanged("first"))
    left = exchanged("second")[1:]
    if RANK == 0:
        return
    become(601, left)
    peer, x = (dist.get_rank() + 1) % dist.get_world_size(), torch.zeros(2)
    works = [backend().send([torch.full((2,), float(dist.get_rank()))], peer, 3),
             backend().recv([x], (dist.get_rank() - 1) % dist.get_world_size(), 3)]
    for work in works:
        work.wait()
    expect(x.tolist() == [(dist.get_rank() - 1) % dist.get_world_size()] * 2, f"received {x}")


def used_twice():
    begin()
    become(700 + RANK, [handle()])
    refused(lambda: become(700 + RANK, [handle()]), "already used")
    become(710, exchanged("all"))
    expect_member(RANK, WORLD)


def after_an_abort():
    begin()
    become(800, exchanged("first"))
    backend().abort()
    become(801, exchanged("second"))
    expect_member(RANK, WORLD)


def after_a_timeout():
    begin()
    become(900, exchanged("first"))
    expect_member(RANK, WORLD)
    backend().set_timeout(datetime.timedelta(milliseconds=100))
    if RANK == 1:
        refused(lambda: dist.all_reduce(torch.ones(4)), "imed out" if BACKEND == "gloo" else "TT_ERR_TIMEOUT")
    backend().set_timeout(LONG)
    all_here("timeout")
    become(901, exchanged("second"))
    expect_member(RANK, WORLD)


# ---- Tutti's own


def no_members_yet():
    begin()
    expect(backend().get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS, "no error yet")
    for call in (lambda: dist.all_reduce(torch.ones(1)), dist.barrier,
                 lambda: dist.broadcast(torch.ones(1), group_src=0)):
        refused(call, "has no members before reconfigure()")
    become(1000, exchanged("first"))
    expect_member(RANK, WORLD)


def wrong_handles():
    begin()
    first = exchanged("first")
    become(1100, first)
    now = exchanged("now")
    others = [h for r, h in enumerate(now) if r != RANK]
    for given, parts in (([], ["got none"]),
                         (others, ["this rank's own handle", now[RANK]]),
                         (first, ["is an old handle of this rank", now[RANK], "exchange theirs anew"]),
                         (now + [now[0]], ["two of the same one"]),
                         (now + ["gloo:0:-1:0:"], ['got "gloo:0:-1:0:"']),
                         (now + ["tutti:member:x:1:ff"], ['got "tutti:member:x:1:ff"']),
                         (now + ["tutti:member:1:1:"], ["tutti:member:1:1:"]),
                         (now + [""], ['got ""'])):
        refused(lambda given=given: become(1101, given), *parts, kind=ValueError)
    refused(lambda: become(1101, now, timeout=-SHORT), "more than 0 ms", kind=ValueError)
    expect_member(RANK, WORLD)  # nothing has changed
    become(1101, now)
    expect_member(RANK, WORLD)


def one_does_not_come():
    """The others learn who, and have the group that they had."""
    begin()
    become(1200, exchanged("first"))
    now = exchanged("now")
    if RANK != 2:
        begun = time.monotonic()
        refused(lambda: become(1201, now, timeout=SHORT), "TT_ERR_TIMEOUT", "rank 2", "timeout= of reconfigure()")
        expect(time.monotonic() - begun < 10, "in time")
        refused(lambda: become(1201, now, timeout=SHORT), "already used")
    all_here("missed")
    expect_member(RANK, WORLD)
    become(1202, exchanged("later"))
    expect_member(RANK, WORLD)


def other_members():
    """Two ranks give another list than the others."""
    begin()
    now = exchanged("now")
    given = now if RANK < 2 else now[::-1]
    first = 0 if RANK < 2 else 3
    store().set("turn", "0") if RANK == 0 else None
    while int(store().get("turn")) < first:
        time.sleep(0.01)
    if RANK in (0, 1):
        become(1300, now[:2])
        if RANK == 0:
            store().set("turn", "3")
        expect_member(RANK, 2)
    else:
        refused(lambda: become(1300, given), "already used, for other members", *now)


def store_is_gone():
    """Its server has ended, before the meeting."""
    port = 0
    server = dist.TCPStore("localhost", 0, None, True, wait_for_workers=False) if RANK == 0 else None
    outer = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
    if RANK == 0:
        outer.set("gone/port", str(server.port))
    port = int(outer.get("gone/port"))
    client = dist.TCPStore("localhost", port, None, False, wait_for_workers=False)
    dist.init_process_group(BACKEND, store=client, rank=RANK, world_size=WORLD, timeout=LONG, enable_reconfigure=True)
    become(1400 + RANK, [handle()])
    outer.set(f"gone/{RANK}", "")
    for r in range(WORLD):
        outer.get(f"gone/{r}")
    if RANK == 0:
        return  # and with it the server, which ends with this process
    while True:
        try:
            client.num_keys()
        except RuntimeError:
            break
        time.sleep(0.01)
    refused(lambda: become(1500 + RANK, [handle()], timeout=SHORT), "PyTorch's store")
    expect_member(0, 1)


def works_under_way():
    """Those of the old group end; a thread that waits for one learns why."""
    begin()
    become(1600, exchanged("first"))
    said = []
    if RANK == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)

        def wait():
            try:
                work.wait()
            except RuntimeError as error:
                said.append(str(error))

        waits = threading.Thread(target=wait)
        waits.start()
    become(1601, exchanged("second"))
    if RANK == 0:
        waits.join(30)
        expect(said and "left the group after call 0" in said[0], f"the thread heard {said}")
    expect_member(RANK, WORLD)


def hooks_stay():
    begin()
    heard = []
    backend().register_abort_hook(7, lambda: heard.append(dist.get_world_size()))
    become(1700, exchanged("first"))
    backend().abort()
    expect(heard == [WORLD], f"heard {heard}")
    become(1701, exchanged("second"))
    backend().abort()
    expect(heard == [WORLD, WORLD], f"heard {heard}")


def many_times():
    begin()
    held = None
    for i in range(20):
        become(1800 + i, exchanged(f"round {i}"))
        with tutti_torch.symmetric_memory():
            held = torch.ones(1 << 12)
        dist.all_reduce(held)
        expect(held[0] == WORLD, "symmetric tensors")
    expect_member(RANK, WORLD)
    open_files = []
    for i in range(20):
        become(1900 + i, exchanged(f"round {20 + i}"))
        open_files.append(len(os.listdir("/proc/self/fd")))
    expect(open_files[-1] <= open_files[4], f"open descriptors: {open_files}")


# ---- memory


def suspended():
    """A suspended group holds nothing; its ranks, hooks and symmetric tensors are there again after resume()."""
    begin()
    become(2100, exchanged("first"))
    refused(backend().resume, "that suspend() has suspended", kind=ValueError)
    with tutti_torch.symmetric_memory():
        held = torch.ones(1 << 16)
    dist.all_reduce(held)
    stats = backend().memory_stats
    stats = stats() if callable(stats) else stats
    expect(stats["group_shared"] > 0 and stats["symmetric_limit"] > stats["symmetric_used"] >= 4 << 16, f"{stats}")
    for number in range(3):
        backend().suspend()
        refused(lambda: dist.all_reduce(held), "is suspended", "resume()")
        refused(backend().suspend, "is suspended")
        all_here(f"suspended {number}")
        backend().resume()
        expect_member(RANK, WORLD)
    expect(held[0] == WORLD, "the tensor")
    backend().suspend()
    become(2101, exchanged("second"))  # another way to go on
    expect_member(RANK, WORLD)


# ---- ranks that die


def train(steps, lose, how):
    """DDP on 4 ranks, one of which ends after `lose` steps; the others go on. Returns the losses of all steps."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    data = torch.randn(steps, 12, 8, generator=torch.Generator().manual_seed(2))
    ddp, losses, step, again = DistributedDataParallel(net), [], 0, 0
    while step < steps:
        if step == lose and RANK == 1 and how and not again:
            os.kill(os.getpid(), how)
        try:
            part = data[step].chunk(dist.get_world_size())[dist.get_rank()]
            sgd.zero_grad()
            loss = ddp(part).square().mean()
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
        except dist.DistBackendError as error:
            expect("rank 1 (" in str(error), str(error))
            again += 1
            become(2000 + again, exchanged(f"lost {again}", [0, 2, 3]))
            ddp = DistributedDataParallel(net)
            continue
        sgd.step()
        losses.append(float(mean) / dist.get_world_size())
        step += 1
    return losses


def alone(steps, lose):
    """The same by one process: what the ranks' mean gradients add up to."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    data = torch.randn(steps, 12, 8, generator=torch.Generator().manual_seed(2))
    losses = []
    for step in range(steps):
        sgd.zero_grad()
        parts = data[step].chunk(WORLD if step < lose else WORLD - 1)
        loss = sum(net(part).square().mean() for part in parts) / len(parts)
        loss.backward()
        sgd.step()
        losses.append(float(loss.detach()))
    return losses


def a_rank_is_killed():
    begin()
    become(2000, exchanged("first"))
    got, want = train(9, 4, signal.SIGKILL), alone(9, 4)
    expect(torch.allclose(torch.tensor(got), torch.tensor(want), rtol=1e-5), f"losses {got} where {want} was expected")
    expect(dist.get_world_size() == WORLD - 1, "one fewer")


if __name__ == "__main__":
    torch.set_num_threads(1)
    CASE = function(sys.argv[1])
    if not hasattr(dist, "_reconfigure"):
        print(f"{CASE} lacks all: this PyTorch has no reconfigure()")
        sys.exit(0)
    globals()[CASE]()
    if RANK == (2 if CASE == "store_is_gone" else 0):
        print(f"{CASE}: {torch_checks.count} checks", flush=True)
    if CASE != "store_is_gone":
        all_here("end") if CASE not in ("a_rank_is_killed",) else None
    dist.destroy_process_group()
