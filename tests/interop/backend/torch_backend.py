"""torch.distributed with the back end tutti beside gloo, in the same processes: each collective on each element type.
Started by `tutti run`; with an argument, one of the ways in which a rank fails: mismatch, death, absent."""
import datetime
import os
import signal
import sys

import torch
import torch.distributed as dist
import tutti_torch
from one_job import function
from torch import nn
from torch.nn.parallel import DistributedDataParallel

INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]  # gloo has no int16
FLOATS = [torch.float32, torch.float64, torch.float16]
MOVED = INTEGERS + FLOATS + ([] if torch.__version__.startswith("1.") else [torch.bool])  # gloo's, since 2.0
ROWS = 6


def values(dtype, seed, *shape):
    torch.manual_seed(seed)
    x = torch.randint(0, 3, shape)
    return x.to(dtype) if dtype != torch.float32 else x + torch.rand(shape)


def odd(x, group):
    """The same values, whose elements don't lie one after the other; gloo, which can't tell, gets them as they are."""
    if group is None:
        return x
    return x.t().contiguous().t() if x.dim() == 2 else torch.stack([x, x], -1)[..., 0]


def same(ours, theirs, what):
    exact = ours.dtype not in (torch.float32, torch.float64)
    if not (torch.equal(ours, theirs) if exact else torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)):
        raise AssertionError(f"{what}: {ours} where gloo has {theirs}")


class Both:
    """Calls of both back ends with the same arguments."""

    def __init__(self, tutti):
        self.groups = tutti, None  # None: gloo's
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def check(self, what, call):
        """call(group) -> tensors that the two must have alike."""
        ours, theirs = (call(group) for group in self.groups)
        for a, b in zip(ours, theirs):
            same(a, b, what)

    def reductions(self, dtype, op, shape):
        def all_reduce(group):
            y = odd(values(dtype, 7 + self.rank, *shape), group)
            dist.all_reduce(y, op, group=group)
            return [y]

        def reduce(group):
            y = odd(values(dtype, 7 + self.rank, *shape), group)
            dist.reduce(y, self.world - 1, op, group=group)
            return [y] if self.rank == self.world - 1 else []

        self.check(f"all_reduce {dtype} {op}", all_reduce)
        self.check(f"reduce {dtype} {op}", reduce)

    def moves(self, dtype):
        plain = values(dtype, 70 + self.rank, ROWS, 4)

        def empty(n, group):
            return [odd(torch.zeros_like(plain), group) for _ in range(n)]

        def broadcast(group):
            y = odd(plain.clone(), group)
            dist.broadcast(y, self.world - 1, group=group)
            return [y]

        def all_gather(group):
            y = empty(self.world, group)
            dist.all_gather(y, odd(plain, group), group=group)
            return y

        def gather(group):
            y = empty(self.world, group) if self.rank == 0 else None
            dist.gather(odd(plain, group), y, 0, group=group)
            return y or []

        def scatter(group):
            y = empty(1, group)
            parts = [odd(plain + r if dtype != torch.bool else plain, group) for r in range(self.world)]
            dist.scatter(y[0], parts if self.rank == 0 else None, 0, group=group)
            return y

        def to_the_next(group):
            y, works = empty(1, group), []
            works.append(dist.isend(odd(plain, group), (self.rank + 1) % self.world, group=group, tag=3))
            works.append(dist.irecv(y[0], (self.rank - 1) % self.world, group=group, tag=3))
            for work in works:
                work.wait()
            return y

        for call in [broadcast, all_gather, gather, scatter] + ([to_the_next] if self.world > 1 else []):
            self.check(f"{call.__name__} {dtype}", call)

    def what_gloo_lacks(self):
        """Calls that gloo does not have in all versions: held against their definition."""
        tutti, _ = self.groups
        n = self.world
        x = [torch.full((3,), float(10 * self.rank + r)) for r in range(n)]
        y = torch.zeros(3)
        dist.reduce_scatter(y, x, group=tutti)
        same(y, torch.full((3,), sum(10.0 * r + self.rank for r in range(n))), "reduce_scatter")
        y = [torch.zeros(3) for _ in range(n)]
        dist.all_to_all(y, x, group=tutti)
        for r in range(n):
            same(y[r], torch.full((3,), float(10 * r + self.rank)), "all_to_all")
        split, whole = [r + 1 for r in range(n)], torch.arange(sum(range(n + 1)), dtype=torch.int64)
        y = torch.zeros((self.rank + 1) * n, dtype=torch.int64)
        dist.all_to_all_single(y, whole, [self.rank + 1] * n, split, group=tutti)
        first = sum(split[:self.rank])
        same(y, whole[first:first + self.rank + 1].repeat(n), "all_to_all_single with splits")
        y = torch.ones(4)
        dist.all_reduce(y, dist.ReduceOp.AVG, group=tutti)
        same(y, torch.ones(4), "AVG")
        rows = torch.sparse_coo_tensor([[self.rank, 5]], torch.ones(2, 3), (8, 3))
        dist.all_reduce(rows, group=tutti)
        want = torch.zeros(8, 3)
        want[:n] += 1
        want[5] += n
        same(rows.to_dense(), want, "all_reduce of a sparse tensor")

    def works(self):
        """Works and futures, also those that nobody keeps."""
        tutti, _ = self.groups
        x = [torch.full((5,), float(i + self.rank)) for i in range(20)]
        works = [dist.all_reduce(y, group=tutti, async_op=True) for y in x]
        futures = [work.get_future() for work in works[::2]]
        doubled = futures[0].then(lambda f: f.value()[0] * 2)
        for future in futures:
            future.wait()
        for work in works[1::2]:
            work.wait()
        total = [float(sum(i + r for r in range(self.world))) for i in range(20)]
        for y, want in zip(x, total):
            same(y, torch.full((5,), want), "works")
        same(doubled.wait(), torch.full((5,), 2 * total[0]), "a future's then()")
        self.futures_of_tensors_that_nobody_keeps()
        said = [None] * self.world
        dist.all_gather_object(said, {"rank": self.rank}, group=tutti)
        assert said == [{"rank": r} for r in range(self.world)], said
        dist.barrier(group=tutti)


    def futures_of_tensors_that_nobody_keeps(self):
        """The group's thread frees them, for which it waits for the interpreter, while this one begins more calls."""
        tutti, _ = self.groups
        futures = []
        for i in range(1000):
            into = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
            work = dist.all_gather(into, torch.tensor([i + self.rank]), group=tutti, async_op=True)
            futures.append(work.get_future())
        for i, future in enumerate(futures):
            future.wait()
            values = future.value()
            values = values[0] if isinstance(values[0], list) else values
            assert [int(y) for y in values] == [i + r for r in range(self.world)], (i, values)

    def several_tensors_a_rank(self):
        """The list forms, which only a group's own methods take."""
        tutti, _ = self.groups
        n = self.world
        x = [torch.tensor([2 * self.rank + i]) for i in range(2)]
        y = [[torch.zeros(1, dtype=torch.int64) for _ in range(2 * n)] for _ in range(2)]
        tutti.allgather(y, x).wait()
        for part in y:
            same(torch.cat(part), torch.arange(2 * n), "all_gather of two tensors a rank")
        tutti.allreduce(x).wait()
        for part in x:
            same(part, torch.tensor([sum(range(2 * n))]), "all_reduce of two tensors a rank")
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = n - 1, 1
        x = [torch.tensor([10 * self.rank + i]) for i in range(2)]
        tutti.broadcast(x, options).wait()
        for part in x:
            same(part, torch.tensor([10 * (n - 1) + 1]), "broadcast to two tensors a rank")
        rows = [torch.sparse_coo_tensor([[self.rank]], torch.ones(1), (n,)) for _ in range(2)]
        tutti.allreduce(rows).wait()
        for part in rows:
            same(part.to_dense(), torch.full((n,), 2.0), "all_reduce of two sparse tensors a rank")
        refused = (ValueError, RuntimeError)
        for error in refused:
            try:
                tutti.allreduce([torch.ones(1), torch.ones(2)])
            except error as wrong:
                assert "invalid tensor size at index 1: expected [1], got [2]" in str(wrong), wrong
            else:
                raise AssertionError(f"no {error}")

    def inference_mode(self):
        tutti, _ = self.groups
        with torch.inference_mode():
            y = [torch.zeros(2, 3).t() for _ in range(self.world)]
            future = dist.all_gather(y, torch.ones(3, 2) * self.rank, group=tutti, async_op=True).get_future()
        future.wait()
        for r in range(self.world):
            same(y[r], torch.full((3, 2), float(r)), "all_gather in inference mode")


def train(group):
    """Losses and parameters of 20 steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    ddp = DistributedDataParallel(model, process_group=group)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(20):
        sgd.zero_grad()
        loss = nn.functional.mse_loss(ddp(torch.randn(8, 20)), torch.randn(8, 4))
        loss.backward()
        sgd.step()
        losses.append(loss.detach())
    return torch.stack(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


def compare():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tutti = dist.new_group(backend="tutti")
    assert dist.get_backend(tutti) == "tutti"
    both = Both(tutti)
    ops = dist.ReduceOp
    for dtype in INTEGERS + FLOATS:
        for op in [ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX]:
            both.reductions(dtype, op, (ROWS, 5))
            both.reductions(dtype, op, (0,))
    for dtype in INTEGERS:
        for op in [ops.BAND, ops.BOR, ops.BXOR]:
            both.reductions(dtype, op, (17,))
    for dtype in MOVED:
        both.moves(dtype)
    both.what_gloo_lacks()
    both.works()
    both.several_tensors_a_rank()
    both.inference_mode()
    (ours, parameters), (theirs, _), (again, twice) = train(tutti), train(None), train(tutti)
    assert (ours - theirs).abs().max() <= 1e-5, (ours, theirs)
    assert torch.equal(ours, again) and torch.equal(parameters, twice)
    dist.destroy_process_group()


def fail(how):
    """The others' error names rank 0 and what it did, with lines of this file."""
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    dist.barrier()
    if rank == 0 and how == "death":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(3 if rank else 4))
    except tutti_torch.DistBackendError as error:
        sys.stdout.write(f"{error}\n")
        sys.stdout.flush()
    else:
        print("no error", flush=True)
    dist.destroy_process_group()


def absent():
    """monitored_barrier names the rank that does not come."""
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if rank != 1:
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))
        except tutti_torch.DistBackendError as error:
            sys.stdout.write(f"{error}\n")
            sys.stdout.flush()
    dist.distributed_c10d._get_default_store().set(f"done {rank}", "")
    dist.distributed_c10d._get_default_store().wait([f"done {r}" for r in range(dist.get_world_size())])
    dist.destroy_process_group()


if __name__ == "__main__":
    HOW = function(sys.argv[1]) if len(sys.argv) > 1 else ""
    {"": compare, "absent": absent}.get(HOW, lambda: fail(HOW))()
