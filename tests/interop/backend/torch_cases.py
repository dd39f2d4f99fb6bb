"""The calls of torch.distributed as a table for torch_results.py: what is called, and what must come of it."""
import functools
import math
import zlib

import torch
import torch.distributed as dist

OLD = torch.__version__.startswith("1.")
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, torch.float64, *HALVES]
COMPLEX = [torch.complex64, torch.complex128]
BYTES = [getattr(torch, name) for name in ("uint16", "float8_e4m3fn") if hasattr(torch, name)]  # only moved
REDUCED = [*INTEGERS, *FLOATS, torch.bool]
MOVED = [*REDUCED, *COMPLEX, *BYTES]
PREMUL = getattr(dist, "_make_nccl_premul_sum", None)
LARGE = (300_001,), (2_100_001,)  # more than 1 MiB of float32, and than any slot holds

# Element types that gloo lacks, send and recv apart.
NOT_IN_GLOO = {torch.int16, *BYTES, *([torch.bfloat16, torch.bool, *COMPLEX] if OLD else [])}


@functools.lru_cache(maxsize=256)
def values(dtype, seed, shape):
    """The same on all ranks that ask with one seed, not to be written to; integers over their whole range."""
    random = torch.Generator().manual_seed(zlib.crc32(repr((str(dtype), seed, shape)).encode()))
    if dtype in COMPLEX:
        return torch.complex(*(torch.rand(shape, generator=random, dtype=torch.float64) for _ in "ri")).to(dtype)
    if dtype in BYTES:
        many = (*shape, torch.empty(0, dtype=dtype).element_size())
        return torch.randint(0, 120, many, generator=random).to(torch.uint8).view(dtype).reshape(shape)
    if dtype in FLOATS:
        return (3 * torch.rand(shape, generator=random, dtype=torch.float64) - 1.5).to(dtype)
    return torch.randint(-2**62, 2**62, shape, generator=random).bitwise_right_shift(7).to(dtype) \
        if dtype != torch.bool else torch.randint(0, 2, shape, generator=random).bool()


def same_bits(a, b):
    if a.dtype in COMPLEX:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    a, b = (x.clone(memory_format=torch.contiguous_format).reshape(-1) for x in (a, b))
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def factor(rank):
    return 0.5 + rank


def reduced(op, parts):
    """What `op` makes of all ranks' parts, by its definition: integers wrap, halves are rounded once."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        meaning = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}
        op = meaning.get(op, op)
    wide = [x.to(torch.float64 if dtype in FLOATS else torch.complex128 if dtype in COMPLEX else torch.int64)
            for x in parts]
    if op == "PREMUL_SUM":
        wide = [x * factor(rank) for rank, x in enumerate(wide)]
    total = wide[0].clone()
    step = {"PREMUL_SUM": torch.add, "SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum,
            "MAX": torch.maximum, "BAND": torch.bitwise_and, "BOR": torch.bitwise_or,
            "BXOR": torch.bitwise_xor}[op]
    for x in wide[1:]:
        total = step(total, x)
    if op == "AVG" and dtype not in FLOATS and dtype not in COMPLEX:  # the sum wraps, as sums do
        return torch.div(total.to(dtype), len(parts), rounding_mode="trunc")
    return (total / len(parts) if op == "AVG" else total).to(dtype)


def plain(x, read=False):
    return x.clone()


# ---- how tensors lie in memory

class Layout:
    """put(x) makes a tensor of x's values; `dims`: how many dimensions x must have at least."""

    def __init__(self, name, put, dims=0):
        self.name, self.make, self.dims = name, put, dims

    def __str__(self):
        return self.name

    def takes(self, case):
        return len(case.shape) >= self.dims and math.prod(case.shape) < 1 << 20

    def put(self, x, read=False):
        made = self.make(x)
        assert made.shape == x.shape
        return made


def at_offset(x):
    made = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape)
    return made.copy_(x)


def columns(x):
    made = torch.zeros((*x.shape[:-1], x.shape[-1] + 2), dtype=x.dtype)[..., 1:-1]
    return made.copy_(x)


LAYOUTS = [
    Layout("every second element", lambda x: torch.zeros((*x.shape, 2), dtype=x.dtype)[..., 0].copy_(x)),
    Layout("transposed", lambda x: x.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1), 2),
    Layout("at an odd offset", at_offset),
    Layout("some columns", columns, 1),
    Layout("channels last", lambda x: x.clone(memory_format=torch.channels_last) if x.dim() == 4 else x.clone(), 4),
    Layout("parameters", lambda x: torch.nn.Parameter(columns(x), x.is_floating_point() or x.is_complex()), 1),
]


# ---- calls

class Case:
    """begin(job, group, put, later) -> (work or None, tensors that hold the results)."""
    reduces = False
    since_2 = False        # gloo has the call since PyTorch 2
    in_any_gloo = True

    def __init__(self, dtype, op=None, shape=(4, 3), all_layouts=False):
        self.dtype, self.op, self.shape, self.all_layouts = dtype, op, shape, all_layouts
        self.exact = dtype not in FLOATS + COMPLEX or not self.reduces or op in ("MIN", "MAX")

    def __str__(self):
        return f"{type(self).__name__} of {self.dtype} {self.shape} {self.op or ''}"

    def in_gloo(self):
        if not self.in_any_gloo or self.dtype in NOT_IN_GLOO or OLD and self.since_2 or self.op == "PREMUL_SUM" or \
                math.prod(self.shape) == 0:
            return False
        if self.reduces and self.dtype == torch.bool:
            return self.op in ("BAND", "BOR", "BXOR")  # sums of bytes in gloo
        return self.op != "AVG" or not OLD and self.dtype in FLOATS

    def x(self, rank, part=0, shape=None):
        return values(self.dtype, (rank, part), self.shape if shape is None else shape)

    def zeros(self, shape=None):
        return torch.zeros(self.shape if shape is None else shape, dtype=self.dtype)

    def redop(self, job):
        return PREMUL(factor(job.rank)) if self.op == "PREMUL_SUM" else getattr(dist.ReduceOp, self.op)

    def rows(self, rank):
        """The shape where ranks' sizes differ."""
        return (rank + 1, *self.shape)

    def wide(self, job):
        """All ranks' parts in one tensor."""
        return (job.world * self.shape[0], *self.shape[1:]) if self.shape else (job.world,)


class Broadcast(Case):
    def begin(self, job, group, put, later):
        y = put(self.x(job.rank))
        return dist.broadcast(y, job.world - 1, group=group, async_op=later), [y]

    def want(self, job):
        return [self.x(job.world - 1)]


class AllReduce(Case):
    reduces = True

    def begin(self, job, group, put, later):
        y = put(self.x(job.rank))
        return dist.all_reduce(y, self.redop(job), group=group, async_op=later), [y]

    def want(self, job):
        return [reduced(self.op, [self.x(r) for r in range(job.world)])]


class Reduce(AllReduce):
    def begin(self, job, group, put, later):
        y, root = put(self.x(job.rank)), job.world - 1
        work = dist.reduce(y, root, self.redop(job), group=group, async_op=later)
        return work, [y] if job.rank == root else []

    def want(self, job):
        return super().want(job) if job.rank == job.world - 1 else []


class AllReduceCoalesced(Case):
    reduces = True

    def begin(self, job, group, put, later):
        y = [put(self.x(job.rank, part)) for part in range(3)]
        return dist.all_reduce_coalesced(y, self.redop(job), group=group, async_op=later), y

    def want(self, job):
        return [reduced(self.op, [self.x(r, part) for r in range(job.world)]) for part in range(3)]


class ReduceScatter(Case):
    reduces, since_2 = True, True

    def begin(self, job, group, put, later):
        y = put(self.zeros())
        parts = [put(self.x(job.rank, part), read=True) for part in range(job.world)]
        return dist.reduce_scatter(y, parts, self.redop(job), group=group, async_op=later), [y]

    def want(self, job):
        return [reduced(self.op, [self.x(r, job.rank) for r in range(job.world)])]


class ReduceScatterUneven(Case):
    reduces, in_any_gloo = True, False

    def begin(self, job, group, put, later):
        y = put(self.zeros(self.rows(job.rank)))
        parts = [put(self.x(job.rank, part, self.rows(part)), read=True) for part in range(job.world)]
        return dist.reduce_scatter(y, parts, self.redop(job), group=group, async_op=later), [y]

    def want(self, job):
        return [reduced(self.op, [self.x(r, job.rank, self.rows(job.rank)) for r in range(job.world)])]


class ReduceScatterTensor(Case):
    reduces, since_2 = True, True

    def in_gloo(self):
        return super().in_gloo() and self.shape != ()  # 2.15's ends the process

    def whole(self, job, rank):
        return torch.stack([self.x(rank, part) for part in range(job.world)]).reshape(self.wide(job))

    def begin(self, job, group, put, later):
        y, x = put(self.zeros()), put(self.whole(job, job.rank), read=True)
        return dist.reduce_scatter_tensor(y, x, self.redop(job), group=group, async_op=later), [y]

    want = ReduceScatter.want


class AllGather(Case):
    def begin(self, job, group, put, later):
        y = [put(self.zeros()) for _ in range(job.world)]
        return dist.all_gather(y, put(self.x(job.rank), read=True), group=group, async_op=later), y

    def want(self, job):
        return [self.x(r) for r in range(job.world)]


class AllGatherUneven(Case):
    in_any_gloo = False

    def begin(self, job, group, put, later):
        y = [put(self.zeros(self.rows(r))) for r in range(job.world)]
        x = put(self.x(job.rank, shape=self.rows(job.rank)), read=True)
        return dist.all_gather(y, x, group=group, async_op=later), y

    def want(self, job):
        return [self.x(r, shape=self.rows(r)) for r in range(job.world)]


class AllGatherTensor(Case):
    since_2 = True

    def in_gloo(self):
        return super().in_gloo() and self.shape != ()

    def begin(self, job, group, put, later):
        y, x = put(self.zeros(self.wide(job))), put(self.x(job.rank), read=True)
        return dist.all_gather_into_tensor(y, x, group=group, async_op=later), [y]

    def want(self, job):
        return [torch.stack([self.x(r) for r in range(job.world)]).reshape(self.wide(job))]


class AllGatherStacked(Case):
    in_any_gloo = False

    def begin(self, job, group, put, later):
        y, x = put(self.zeros((job.world, *self.shape))), put(self.x(job.rank), read=True)
        return dist.all_gather_into_tensor(y, x, group=group, async_op=later), [y]

    def want(self, job):
        return [torch.stack([self.x(r) for r in range(job.world)])]


class AllGatherCoalesced(Case):
    in_any_gloo = not OLD  # 1.13's own takes no types but a few

    def begin(self, job, group, put, later):
        y = [[put(self.zeros()), put(self.zeros((7,)))] for _ in range(job.world)]
        x = [put(self.x(job.rank), read=True), put(self.x(job.rank, shape=(7,)), read=True)]
        return dist.all_gather_coalesced(y, x, group=group, async_op=later), [z for pair in y for z in pair]

    def want(self, job):
        return [x for r in range(job.world) for x in (self.x(r), self.x(r, shape=(7,)))]


class Gather(Case):
    def in_gloo(self):
        return super().in_gloo() and self.dtype not in COMPLEX

    def begin(self, job, group, put, later):
        root = job.world - 1
        y = [put(self.zeros()) for _ in range(job.world)] if job.rank == root else None
        return dist.gather(put(self.x(job.rank), read=True), y, root, group=group, async_op=later), y or []

    def want(self, job):
        return [self.x(r) for r in range(job.world)] if job.rank == job.world - 1 else []


class Scatter(Case):
    def in_gloo(self):
        return super().in_gloo() and self.dtype not in COMPLEX

    def begin(self, job, group, put, later):
        y, root = put(self.zeros()), job.world - 1
        x = [put(self.x(root, part), read=True) for part in range(job.world)] if job.rank == root else None
        return dist.scatter(y, x, root, group=group, async_op=later), [y]

    def want(self, job):
        return [self.x(job.world - 1, job.rank)]


class AllToAllSingle(Case):
    def begin(self, job, group, put, later):
        y = put(self.zeros(self.wide(job)))
        x = put(torch.stack([self.x(job.rank, part) for part in range(job.world)]).reshape(self.wide(job)), read=True)
        return dist.all_to_all_single(y, x, group=group, async_op=later), [y]

    def want(self, job):
        return [torch.stack([self.x(r, job.rank) for r in range(job.world)]).reshape(self.wide(job))]


class AllToAllSplit(Case):
    """Rank a sends a + b rows to rank b, none to itself where both are 0."""

    def part(self, a, b):
        return self.x(a, b, (a + b, *self.shape))

    def begin(self, job, group, put, later):
        counts = [job.rank + r for r in range(job.world)]
        x = put(torch.cat([self.part(job.rank, r) for r in range(job.world)]), read=True)
        y = put(torch.zeros_like(x))
        return dist.all_to_all_single(y, x, counts, counts, group=group, async_op=later), [y]

    def want(self, job):
        return [torch.cat([self.part(r, job.rank) for r in range(job.world)])]


class AllToAll(Case):
    since_2 = True

    def part(self, a, b):
        return self.x(a, b)

    def begin(self, job, group, put, later):
        y = [put(torch.zeros_like(self.part(r, job.rank))) for r in range(job.world)]
        x = [put(self.part(job.rank, r), read=True) for r in range(job.world)]
        return dist.all_to_all(y, x, group=group, async_op=later), y

    def want(self, job):
        return [self.part(r, job.rank) for r in range(job.world)]


class AllToAllUneven(AllToAll):
    in_any_gloo = False

    def part(self, a, b):
        return self.x(a, b, (1 + a + 2 * b, *self.shape))


class Both:
    """Several works as one."""

    def __init__(self, *works):
        self.works = works

    def wait(self):
        for work in self.works:
            work.wait()


class SendToTheNext(Case):
    in_any_gloo = False

    def begin(self, job, group, put, later):
        y, x = put(self.zeros()), put(self.x(job.rank), read=True)
        right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
        if job.world == 1:
            return None, []
        both = Both(dist.isend(x, right, group=group, tag=3), dist.irecv(y, left, group=group, tag=3))
        if not later:
            both.wait()
        return both, [y]

    def want(self, job):
        return [self.x((job.rank - 1) % job.world)] if job.world > 1 else []


class BatchToTheNext(SendToTheNext):
    def begin(self, job, group, put, later):
        if job.world == 1:
            return None, []
        y, x = put(self.zeros()), put(self.x(job.rank), read=True)
        right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
        both = Both(*dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, left, group),
                                             dist.P2POp(dist.isend, x, right, group)]))
        if not later:
            both.wait()
        return both, [y]


# PyTorch 2 gathers calls of one kind into one.

def together(group, later, calls):
    with dist._coalescing_manager(group=group, async_ops=later) as manager:
        for call in calls:
            call()
    return manager if later else None


class TogetherAllReduce(AllReduceCoalesced):
    in_any_gloo = False

    def begin(self, job, group, put, later):
        y = [put(self.x(job.rank, part)) for part in range(3)]
        return together(group, later, [lambda z=z: dist.all_reduce(z, self.redop(job), group=group) for z in y]), y


class TogetherReduceScatter(Case):
    reduces, in_any_gloo = True, False

    def begin(self, job, group, put, later):
        y = [put(self.zeros()) for _ in range(2)]
        wide = [torch.stack([self.x(job.rank, (part, i)) for part in range(job.world)]) for i in range(2)]
        x = [put(whole.reshape(self.wide(job)), read=True) for whole in wide]
        calls = [lambda a=a, b=b: dist.reduce_scatter_tensor(a, b, self.redop(job), group=group) for a, b in zip(y, x)]
        return together(group, later, calls), y

    def want(self, job):
        return [reduced(self.op, [self.x(r, (job.rank, i)) for r in range(job.world)]) for i in range(2)]


class TogetherAllGather(Case):
    in_any_gloo = False

    def begin(self, job, group, put, later):
        y = [put(self.zeros(self.wide(job))) for _ in range(2)]
        x = [put(self.x(job.rank, i), read=True) for i in range(2)]
        calls = [lambda a=a, b=b: dist.all_gather_into_tensor(a, b, group=group) for a, b in zip(y, x)]
        return together(group, later, calls), y

    def want(self, job):
        return [torch.stack([self.x(r, i) for r in range(job.world)]).reshape(self.wide(job)) for i in range(2)]


REDUCTIONS = [AllReduce, Reduce, AllReduceCoalesced, ReduceScatter, ReduceScatterUneven, ReduceScatterTensor,
              *([] if OLD else [TogetherAllReduce, TogetherReduceScatter])]
MOVES = [Broadcast, AllGather, AllGatherUneven, AllGatherTensor, AllGatherStacked, AllGatherCoalesced, Gather, Scatter,
         AllToAllSingle, AllToAllSplit, AllToAll, AllToAllUneven, SendToTheNext, BatchToTheNext,
         *([] if OLD else [TogetherAllGather])]


def ops_of(dtype):
    numbers = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype in FLOATS:
        return [*numbers, "AVG", *(["PREMUL_SUM"] if PREMUL else [])]
    return [*numbers, "BAND", "BOR", "BXOR", *([] if dtype == torch.bool else ["AVG"])]


def every_case():
    for dtype in REDUCED:
        for op in ops_of(dtype):
            for kind in REDUCTIONS:
                if op != "PREMUL_SUM" or not kind.__name__.startswith("Together"):
                    yield kind(dtype, op)
    for dtype in COMPLEX:
        yield AllReduce(dtype, "SUM")
    for dtype in MOVED:
        for kind in MOVES:
            yield kind(dtype)
    for kind in [*REDUCTIONS, *MOVES]:
        op = "SUM" if kind.reduces else None
        for dtype in (torch.float32, torch.uint8, torch.bool):
            yield kind(dtype, op, (2, 3, 4, 5), all_layouts=True)
        yield kind(torch.float32, op, (0,))
        yield kind(torch.float32, op, (3, 0))
        yield kind(torch.float32, op, ())
        for shape in LARGE[:1 + (kind in (AllReduce, Broadcast, AllGather, SendToTheNext))]:
            yield kind(torch.float32, op, shape)


# ---- calls that are no table

def any_source(job, group):
    """Rank 0 takes from whoever comes, by tags."""
    if job.rank:
        for tag in (5, 6):
            dist.send(torch.full((4,), float(10 * job.rank + tag)), 0, group=group, tag=tag)
        return
    for tag in (6, 5):
        seen = set()
        for _ in range(job.world - 1):
            y = torch.zeros(4)
            source = dist.recv(y, group=group, tag=tag)
            assert torch.equal(y, torch.full((4,), float(10 * source + tag))), (source, tag, y)
            seen.add(source)
        assert seen == set(range(1, job.world)), seen


def objects(job, group):
    said = [None] * job.world
    dist.all_gather_object(said, {"rank": job.rank, "long": "x" * (10 ** job.rank)}, group=group)
    assert said == [{"rank": r, "long": "x" * (10 ** r)} for r in range(job.world)], said
    said = [job.rank, ("root", job.rank)]
    dist.broadcast_object_list(said, job.world - 1, group=group)
    assert said == [job.world - 1, ("root", job.world - 1)], said
    all_of_them = [None] * job.world if job.rank == 0 else None
    dist.gather_object({job.rank}, all_of_them, 0, group=group)
    assert all_of_them in (None, [{r} for r in range(job.world)]), all_of_them
    mine = [None]
    dist.scatter_object_list(mine, [[r] * r for r in range(job.world)] if job.rank == 0 else None, 0, group=group)
    assert mine == [[job.rank] * job.rank], mine
    if job.world > 1 and hasattr(dist, "send_object_list"):
        if job.rank == 0:
            dist.send_object_list(["a", {"b": 1}], 1, group=group)
        elif job.rank == 1:
            got = [None, None]
            assert dist.recv_object_list(got, 0, group=group) == 0
            assert got == ["a", {"b": 1}], got


def sparse(job, group):
    """Rows that one rank has, that all have, twice, and none."""
    for dtype in (torch.float32, torch.float64, torch.int64):
        def rows(rank, dtype=dtype):
            where = torch.tensor([[rank, 5, 5]])[:, : 3 * (rank != 1)]
            return torch.sparse_coo_tensor(where, values(dtype, rank, (3, 2, 3))[: where.shape[1]], (8, 2, 3))
        ours, theirs = rows(job.rank), rows(job.rank)
        dist.all_reduce(ours, group=group)
        want = sum(rows(r).to_dense() for r in range(job.world))
        assert torch.allclose(ours.to_dense(), want, rtol=1e-6, atol=1e-6), (ours, want)
        dist.all_reduce(theirs, group=job.gloo)
        assert torch.allclose(ours.to_dense(), theirs.to_dense(), rtol=1e-6, atol=1e-6), (ours, theirs)


def read_only(job, group):
    """Inputs that own no memory of their own for each element, and ones whose bits are not their values."""
    x = torch.full((1, 3), float(job.rank)).expand(5, 3)
    y = [torch.zeros(5, 3) for _ in range(job.world)]
    dist.all_gather(y, x, group=group)
    for r in range(job.world):
        assert torch.equal(y[r], torch.full((5, 3), float(r))), y
    turned = torch.tensor([1 + 2j, 3 - 1j]).conj()
    for z in (turned.imag, turned[:1].imag):
        y = [torch.zeros_like(z) for _ in range(job.world)]
        dist.all_gather(y, z, group=group)
        assert torch.equal(y[-1], z), (y, z)


def inference(job, group):
    """Tensors that only an inference may write to."""
    with torch.inference_mode():
        x = torch.full((3, 4), float(job.rank)).t()
        work = dist.broadcast(x, 0, group=group, async_op=True)
    work.wait()
    assert torch.equal(x, torch.zeros(4, 3)), x


def barrier(job, group):
    dist.barrier(group=group)
    work = dist.barrier(group=group, async_op=True)
    work.wait()
    assert work.is_completed()


WHOLE = [any_source, objects, sparse, read_only, inference, barrier]
