"""Features of torch.distributed with the back end tutti beside gloo, in the same processes: what is not a plain
collective. Argument: which of the parts below to run, or several cases (one_job.py). Started by `tutti run`. A rank
prints "PART lacks FEATURE: why" for what this version of PyTorch hasn't; rank 0 prints "PART: n checks" for what it has
checked."""
import contextlib
import datetime
import sys
import tempfile

import torch
import torch.distributed as dist
import torch_checks
import tutti_torch
from one_job import function
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_checks import expect

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
CPU = torch.device("cpu")


def same(ours, theirs, what):
    """Tensors, or trees of them, to gloo's: sums may differ in their last bits."""
    if isinstance(ours, (list, tuple)):
        expect(len(ours) == len(theirs), what)
        for a, b in zip(ours, theirs):
            same(a, b, what)
    else:
        expect(torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), f"{what}: {ours} where gloo has {theirs}")


def raised(call, *kinds):
    try:
        call()
    except kinds as error:
        return str(error)
    raise AssertionError(f"expected one of {kinds}, nothing was raised")


def both(what, call):
    """call(back end's name) gives tensors that the two back ends must have alike."""
    same(call("tutti"), call("gloo"), what)


def group_of(backend, *arguments, **options):
    return dist.new_group(*arguments, backend=backend, **options)


# ---- groups


def subgroups():
    rank, world = dist.get_rank(), dist.get_world_size()
    gaps = [3, 1, 0] if world > 3 else [world - 1, 0]

    def with_gaps(backend):
        group = group_of(backend, gaps)
        x = torch.full((3,), float(rank + 1))
        if rank in gaps:
            dist.all_reduce(x, group=group)
            dist.broadcast(x, sorted(gaps)[-1], group=group)
            x += dist.get_rank(group)
        return [x]

    both("a group with gaps", with_gaps)
    for _ in range(12):  # more than one at a time, and again where one has been
        held = [group_of("tutti", [r, (r + 1) % world]) for r in range(world)]
        for r, group in enumerate(held):
            if rank in (r, (r + 1) % world):
                x = torch.ones(2)
                dist.all_reduce(x, group=group)
                expect(float(x[0]) == 2, "many groups")
        for group in held:
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)
    group = group_of("tutti", timeout=datetime.timedelta(seconds=100))
    backend = group if VERSION < (2, 0) else group._get_backend(CPU)
    before = backend._get_sequence_number_for_group() if VERSION < (2, 0) else group._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(1), group=group)
    after = group._get_sequence_number_for_group()
    expect(after - before == 3, f"sequence numbers {before} and {after}")
    if rank < 2:  # messages are no affair of the others
        peer = 1 - rank
        dist.isend(torch.ones(1), peer, group=group).wait()
        dist.recv(torch.zeros(1), peer, group=group)
    numbers = [None] * world
    dist.all_gather_object(numbers, group._get_sequence_number_for_group(), group=group)
    expect(len(set(numbers)) == 1, f"sequence numbers {numbers}")


def objects():
    rank, world = dist.get_rank(), dist.get_world_size()
    group = group_of("tutti")
    mine = {"rank": rank, "text": "x" * (100 * rank)}
    everyone = [{"rank": r, "text": "x" * (100 * r)} for r in range(world)]
    got = [None] * world
    dist.all_gather_object(got, mine, group=group)
    expect(got == everyone, "all_gather_object")
    got = [None] * world if rank == 1 else None
    dist.gather_object(mine, got, 1, group=group)
    expect(rank != 1 or got == everyone, "gather_object")
    got = [mine, rank]
    dist.broadcast_object_list(got, 1, group=group)
    expect(got == [everyone[1], 1], "broadcast_object_list")
    got = [None]
    dist.scatter_object_list(got, everyone if rank == 0 else None, 0, group=group)
    expect(got == [mine], "scatter_object_list")
    if hasattr(dist, "send_object_list"):
        got = [None, None]
        if rank == 0:
            dist.send_object_list([1, "two"], 1, group=group)
        elif rank == 1:
            dist.recv_object_list(got, 0, group=group)
            expect(got == [1, "two"], "recv_object_list")


def messages():
    rank, world = dist.get_rank(), dist.get_world_size()

    def ring(backend):
        group = group_of(backend)
        x, y = torch.arange(4.0) + rank, torch.zeros(4)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, (rank - 1) % world, group),
                                            dist.P2POp(dist.isend, x, (rank + 1) % world, group)]):
            work.wait()
        return [y]

    def any_source(backend):
        group = group_of(backend)
        if rank:
            dist.send(torch.full((2,), float(rank)), 0, group=group, tag=7)
            return []
        got = torch.zeros(world, 2)
        for _ in range(world - 1):
            x = torch.zeros(2)
            sender = dist.recv(x, group=group, tag=7)
            got[sender] = x
        return [got]

    def tags(backend):
        group = group_of(backend)
        if rank == 0:
            works = [dist.isend(torch.full((1,), float(t)), 1, group=group, tag=t) for t in (1, 2)]
            for work in works:
                work.wait()
        y = torch.zeros(2)
        if rank == 1:
            dist.recv(y[1:], 0, group=group, tag=2)
            dist.recv(y[:1], 0, group=group, tag=1)
        return [y]

    both("batch_isend_irecv", ring)
    both("any source", any_source)
    both("tags", tags)


def split():
    """Groups made by dividing one, errors that are told, hooks, batches: of PyTorch since 2.13 or so."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if not hasattr(dist, "split_group"):
        print("groups lacks split_group: not in this PyTorch")
        return
    default = dist.distributed_c10d._get_default_group()
    backend = default._get_backend(CPU)
    expect(backend.supports_splitting and type(backend).__name__ == "ProcessGroupTutti", "supports_splitting")
    expect(backend.options.backend == "tutti" and backend.options._timeout == datetime.timedelta(seconds=60), "options")
    half = dist.split_group(None, [[2, 0], [1, 3]], timeout=datetime.timedelta(seconds=50))
    expect(dist.get_rank(half) == [1, 0, 0, 1][rank], "the order of split_group")
    expect(half._get_backend(CPU).options._timeout == datetime.timedelta(seconds=50), "a split group's timeout")
    x = torch.full((2,), float(rank))
    dist.all_reduce(x, group=half)
    expect(float(x[0]) == (2, 4)[rank % 2], "all_reduce of a split group")
    part = dist.split_group(None, [[1, 3]])
    expect((part is dist.GroupMember.NON_GROUP_MEMBER) == (rank in (0, 2)), "who is in no part")
    deeper = dist.split_group(half, [[0], [1]])
    expect(deeper.size() == 1, "a split of a split")
    dist.destroy_process_group(half)
    y = torch.ones(1)
    dist.all_reduce(y, group=deeper)
    dist.all_reduce(y)
    expect(float(y) == world, "groups outlive those that they were split from")
    store = dist.PrefixStore("merged/", dist.distributed_c10d._get_default_store())
    merged = deeper.merge_remote_group(store, world)
    expect(merged.size() == world, "merge_remote_group")
    coalescing(default)


def coalescing(group):
    rank, world = dist.get_rank(), dist.get_world_size()
    x = [torch.full((3,), float(rank + i)) for i in range(3)]
    with dist._coalescing_manager(group):
        for y in x:
            dist.all_reduce(y)
    with dist._coalescing_manager(group, CPU, async_ops=True) as batch:
        for y in x:
            dist.all_reduce(y)
        z = torch.full((2,), float(rank))
        dist.broadcast(z, 1)
    batch.wait()
    total = [float(world * sum(r + i for r in range(world))) for i in range(3)]
    expect([float(y[0]) for y in x] == total and float(z[0]) == 1, f"_coalescing_manager: {x} {z}")
    group._start_coalescing(CPU)
    dist.all_reduce(x[0], async_op=True)
    dist.all_reduce(x[1], async_op=True)
    future = group._end_coalescing(CPU).get_future()
    expect([float(y[0]) for y in future.wait()] == [t * world for t in total[:2]], "the future of a batch")
    gathered, parts = torch.zeros(world * 2), torch.zeros(2)
    with dist._coalescing_manager(group):
        dist.all_gather_into_tensor(gathered, torch.full((2,), float(rank)))
    with dist._coalescing_manager(group):
        dist.reduce_scatter_tensor(parts, gathered)
    expect(parts.tolist() == [float(rank * world)] * 2, "coalesced all_gather and reduce_scatter")


def ending():
    """A job's group is destroyed and made anew; abort; options that it has not."""
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    for i in range(2):
        dist.destroy_process_group()
        dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60), rank=rank, world_size=world,
                                store=dist.PrefixStore(f"again{i}", store))
        x = torch.ones(3)
        dist.all_reduce(x)
        expect(float(x[0]) == world, "init after destroy")
    if VERSION >= (2, 0):
        said = raised(lambda: dist.new_group(pg_options=object(), backend="tutti"), TypeError)
        expect("no options of its own" in said, said)


def failing():
    """What a broken group says, and that those that are left can go on."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if VERSION < (2, 13):
        print("groups lacks shrink_group: not in this PyTorch")
        return
    default = dist.distributed_c10d._get_default_group()
    backend = default._get_backend(CPU)
    kinds = torch._C._distributed_c10d.ErrorType
    expect(backend.get_error() == kinds.SUCCESS, "get_error of a group that works")
    dist.set_timeout(datetime.timedelta(milliseconds=200), default)
    expect(backend.options._timeout == datetime.timedelta(milliseconds=200), "set_timeout")
    backend._add_ephemeral_timeout(datetime.timedelta(seconds=60))
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait([f"waits{r}" for r in range(1, world)])
        threading_wait(0.4)  # longer than the timeout: what it has been lent is needed
    else:
        store.set(f"waits{rank}", "1")
    dist.all_reduce(torch.ones(1))
    told = []
    backend.register_abort_hook(1, lambda: told.append("hook 1"))
    backend.register_abort_hook(2, lambda: told.append("hook 2"))
    backend.unregister_abort_hook(2)
    said = raised(lambda: backend.unregister_abort_hook(2), ValueError)
    expect("expected the number of a hook" in said, said)
    if rank == world - 1:
        store.wait(["failed0"])  # it does not come
    else:
        said = raised(lambda: dist.all_reduce(torch.ones(1)), dist.DistBackendError)
        expect("TT_ERR_TIMEOUT" in said or "TT_ERR_PEER" in said, said)
        expect(backend.get_error() in (kinds.TIMEOUT, kinds.REMOTE_ERROR, kinds.COMM_ERROR), "get_error after one")
        expect(told == ["hook 1"], f"abort hooks: {told}")
        store.set(f"failed{rank}", "1")
        dist.set_timeout(datetime.timedelta(seconds=60), default)
        backend.options._timeout = datetime.timedelta(seconds=60)
        left = dist.shrink_group([world - 1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        x = torch.ones(2)
        dist.all_reduce(x, group=left)
        expect(left.size() == world - 1 and float(x[0]) == world - 1, "shrink_group")
        store.set(f"shrunk{rank}", "1")
    store.wait([f"shrunk{r}" for r in range(world - 1)])  # rank 0 serves the store


def threading_wait(seconds):
    """Let time pass that the other ranks must be seen to wait."""
    import threading
    threading.Event().wait(seconds)


def groups():
    subgroups()
    objects()
    messages()
    split()
    ending()
    failing()


# ---- training


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))


def batches(n, size=8, seed=50):
    torch.manual_seed(seed + dist.get_rank())
    return [(torch.randn(size, 12), torch.randn(size, 3)) for _ in range(n)]


def steps(ddp, optimizer, data):
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def trained(backend, prepare=None, data=None, **options):
    group = group_of(backend)
    net = model()
    ddp = DistributedDataParallel(net, process_group=group, **options)
    if prepare:
        prepare(ddp, group)
    losses = steps(ddp, torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9), data or batches(6))
    return losses + [p.detach() for p in net.parameters()]


def comm_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook

    def resizing(group, bucket):
        x, n = bucket.buffer(), bucket.buffer().numel()
        x.resize_(n + 7)[n:] = 0
        sent = dist.all_reduce(x, group=group, async_op=True).get_future()
        return sent.then(lambda f: (f.value()[0] / dist.get_world_size()).resize_(n))

    hooks = {"resizing": lambda d, g: d.register_comm_hook(g, resizing),
             "all_reduce": lambda d, g: d.register_comm_hook(g, default_hooks.allreduce_hook),
             "fp16": lambda d, g: d.register_comm_hook(g, default_hooks.fp16_compress_hook),
             "power SGD": lambda d, g: d.register_comm_hook(
                 powerSGD_hook.PowerSGDState(g, matrix_approximation_rank=2, start_powerSGD_iter=3),
                 powerSGD_hook.powerSGD_hook)}
    for name, hook in hooks.items():
        both(f"hook {name}", lambda backend, prepare=hook: trained(backend, prepare))
    if VERSION < (2, 0):
        print("training lacks the hook bf16: 1.13's needs CUDA")
    else:  # gloo's sums of bf16 are rounded otherwise
        ours = trained("tutti", lambda d, g: d.register_comm_hook(g, default_hooks.bf16_compress_hook))
        close = trained("gloo")
        expect(all(torch.allclose(a, b, rtol=0.05, atol=0.02) for a, b in zip(ours, close)), "hook bf16")

    def local_sgd(backend):
        def prepare(ddp, group):
            state = post_localSGD_hook.PostLocalSGDState(group, group, start_localSGD_iter=3)
            ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        return trained(backend, prepare)

    both("hook post-localSGD", local_sgd)


def ddp_options():
    class Some(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.unused = model(), nn.Linear(3, 3)

        def forward(self, x):
            return self.net(x)

    def unused(backend):
        net = Some()
        ddp = DistributedDataParallel(net, process_group=group_of(backend), find_unused_parameters=True)
        return steps(ddp, torch.optim.SGD(ddp.parameters(), 0.1), batches(4))

    both("find_unused_parameters", unused)
    both("static_graph", lambda backend: trained(backend, static_graph=True))
    both("small buckets, views", lambda backend: trained(backend, bucket_cap_mb=1e-3, gradient_as_bucket_view=True))

    def uneven(backend):
        ddp = DistributedDataParallel(model(), process_group=group_of(backend))
        with ddp.join():
            losses = steps(ddp, torch.optim.SGD(ddp.parameters(), 0.1), batches(3 + dist.get_rank()))
        return losses + [p.detach() for p in ddp.parameters()]

    both("join with uneven inputs", uneven)

    def no_sync(backend):
        ddp = DistributedDataParallel(model(), process_group=group_of(backend))
        for i, (x, y) in enumerate(batches(4)):
            with ddp.no_sync() if i < 3 else contextlib.nullcontext():
                nn.functional.mse_loss(ddp(x), y).backward()
        return [p.grad for p in ddp.parameters()]

    both("no_sync", no_sync)


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def run(backend):
        group = group_of(backend)
        ddp = DistributedDataParallel(model(), process_group=group)
        sharded = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, process_group=group,
                                          lr=0.01)
        losses = steps(ddp, sharded, batches(5))
        sharded.consolidate_state_dict(to=0)
        return losses + [p.detach() for p in ddp.parameters()]

    both("ZeroRedundancyOptimizer", run)


def fsdp1():
    if VERSION < (2, 0):
        print("training lacks FSDP: 1.13's needs CUDA")
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    def run(backend):
        net = FullyShardedDataParallel(model(), process_group=group_of(backend), device_id=CPU)
        return steps(net, torch.optim.SGD(net.parameters(), 0.1), batches(4))

    both("FullyShardedDataParallel", run)


def with_gradient():
    """torch.distributed.nn.functional: collectives that a gradient goes through."""
    import torch.distributed.nn.functional as through

    def run(backend):
        group = group_of(backend)
        x = (torch.arange(4.0) + dist.get_rank()).requires_grad_()
        through.all_reduce(x * x, group=group).sum().backward()
        first = x.grad.clone()
        sum(part.sum() * (i + 1) for i, part in enumerate(through.all_gather(x * 2, group=group))).backward()
        y = through.broadcast(x * 3, 0, group=group)
        y.sum().backward()
        return [first, x.grad, y.detach()]

    both("torch.distributed.nn.functional", run)


def training():
    comm_hooks()
    ddp_options()
    zero()
    fsdp1()
    with_gradient()


# ---- sharded tensors and modules: of PyTorch 2


def meshes():
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    expect(dist.get_backend(mesh["tp"].get_group()) == "tutti", "the back end of a mesh")
    rank = dist.get_rank()
    for name, total in (("dp", 2 * (rank % 2) + 2), ("tp", 1 + 4 * (rank // 2))):
        x = torch.full((2,), float(rank))
        dist.all_reduce(x, group=mesh[name].get_group())
        expect(float(x[0]) == total, f"all_reduce in dimension {name} of a mesh")
    return mesh


def distributed_tensors(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    torch.manual_seed(3)
    a, b = torch.randn(8, 6), torch.randn(6, 10)
    rows = distribute_tensor(a, mesh["dp"], [Shard(0)])
    columns = distribute_tensor(b, mesh["dp"], [Replicate()])
    same(torch.matmul(rows, columns).full_tensor(), a @ b, "a product of DTensors")
    same(rows.redistribute(mesh["dp"], [Shard(1)]).full_tensor(), a, "redistribute")
    both_ways = distribute_tensor(a, mesh, [Shard(0), Shard(1)])
    same(both_ways.full_tensor(), a, "a DTensor on two dimensions")
    same(both_ways.sum().full_tensor(), a.sum(), "the sum of a DTensor")


def tensor_parallel(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    net, x = model(), torch.randn(5, 12, generator=torch.Generator().manual_seed(9))
    want = net(x)
    want.sum().backward()
    gradient = net[0].weight.grad.clone()
    net.zero_grad()
    parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    got = net(x)
    got.sum().backward()
    same(got.detach(), want.detach(), "tensor parallel: forward")
    same(net[0].weight.grad.full_tensor(), gradient, "tensor parallel: gradient")


def fully_sharded():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def run(backend):
        net, over = model(), DeviceMesh.from_group(group_of(backend), "cpu")
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=over)
        fully_shard(net, mesh=over)
        losses = steps(net, torch.optim.Adam(net.parameters(), 0.01), batches(4))
        return losses + [p.full_tensor().detach() for p in net.parameters()]

    both("fully_shard", run)

def checkpoints(mesh):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    a = torch.arange(24.0).view(8, 3)
    for name, save in (("save", dcp.save), ("async_save", lambda *x, **y: dcp.async_save(*x, **y).result())):
        state = {"a": distribute_tensor(a, mesh["dp"], [Shard(0)]), "step": 7}
        save(state, checkpoint_id=f"{folder[0]}/{name}")
        dist.barrier()
        state = {"a": distribute_tensor(torch.zeros(8, 3), mesh["dp"], [Shard(1)]), "step": 0}
        dcp.load(state, checkpoint_id=f"{folder[0]}/{name}")
        same(state["a"].full_tensor(), a, f"a checkpoint by {name}")
        expect(state["step"] == 7, f"a number in a checkpoint by {name}")
    dist.barrier()
    if dist.get_rank() == 0:
        import shutil
        shutil.rmtree(folder[0])


def pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    rank = dist.get_rank()

    def run(backend):
        group = group_of(backend, [0, 1])
        if rank > 1:
            return []
        net = model()
        stage = PipelineStage(net[:2] if rank == 0 else net[2:], rank, 2, CPU, group=group)
        schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
        x, y = torch.ones(4, 12), torch.zeros(4, 3)
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        part = net[:2] if rank == 0 else net[2:]
        return [p.grad for p in part.parameters()] + [loss.detach() for loss in losses]

    both("a pipeline of two stages", run)


def functional(mesh):
    import torch.distributed._functional_collectives as funcol
    group = mesh["dp"].get_group()
    rank, x = dist.get_rank(), torch.full((4,), float(dist.get_rank()))
    pair = [rank % 2, rank % 2 + 2]

    def run(y):
        y = funcol.all_reduce(y * 1, "sum", group)
        y = funcol.all_gather_tensor(y, 0, group)
        y = funcol.reduce_scatter_tensor(y, "sum", 0, group)
        return funcol.all_to_all_single(y, None, None, group) + 1

    want = torch.full((4,), 2.0 * sum(pair) + 1)
    same(run(x).clone(), want, "functional collectives")
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    same(compiled(x).clone(), want, "functional collectives, compiled (aot_eager)")


def sharding():
    if VERSION < (2, 6):
        print("sharding lacks all: of PyTorch 2")
        return
    mesh = meshes()
    distributed_tensors(mesh)
    tensor_parallel(mesh)
    fully_sharded()
    checkpoints(mesh)
    pipeline()
    functional(mesh)


if __name__ == "__main__":
    torch.set_num_threads(1)
    PART = function(sys.argv[1])
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
    globals()[PART]()
    if dist.get_rank() == 0:
        print(f"{PART}: {torch_checks.count} checks", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
