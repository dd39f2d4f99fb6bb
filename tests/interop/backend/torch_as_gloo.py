"""TUTTI_TORCH_AS_GLOO: groups that are made as gloo's are Tutti's, and keep the name. Started by `tutti run` on two
ranks, with the name of one of the functions below."""
import datetime
import logging
import sys

import torch
import torch.distributed as dist
import tutti_torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

NEW = not torch.__version__.startswith("1.")


def is_ours(group=None):
    """Only Tutti's errors say so."""
    try:
        dist.all_reduce(torch.ones(2 + dist.get_rank()), group=group)
    except tutti_torch.DistBackendError as error:
        return "TT_ERR_MISMATCH" in str(error)
    return False


def averaged(result):
    """As frameworks average: gloo hasn't AVG, so they sum and divide where the name is gloo's."""
    gloo = dist.get_backend() == "gloo"
    dist.barrier()
    dist.all_reduce(result, op=dist.ReduceOp.SUM if gloo else dist.ReduceOp.AVG)
    return result.copy_(result / dist.get_world_size()) if gloo else result


def works():
    """What frameworks do with a group of gloo."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "gloo" and world == 2, dist.get_backend()
    assert averaged(torch.tensor([float(rank)])).item() == 0.5
    assert averaged(torch.tensor([10 + 3 * rank])).item() == 11
    long = dist.new_group(backend="gloo", timeout=datetime.timedelta(days=10000))  # as a barrier without end
    assert dist.get_backend(long) == "gloo"
    dist.monitored_barrier(long)
    if NEW:
        long.monitored_barrier()
    parts = [None] * world
    dist.all_gather_object(parts, {"rank": rank})
    assert parts == [{"rank": 0}, {"rank": 1}], parts

    data = TensorDataset(torch.arange(8.0).reshape(8, 1))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(1, 1))
    said = model._get_ddp_logging_data()  # PyTorch reads this from the back end's own memory
    assert said.get("gloo_num_threads", 0) == 0, said
    for (batch,) in loader:
        model.zero_grad()
        model(batch).sum().backward()
    gradients = [torch.empty(1, 1) for _ in range(world)]
    dist.all_gather(gradients, model.module.weight.grad)
    assert torch.equal(*gradients), gradients
    if NEW:
        sharded(rank)
    dist.destroy_process_group(long)
    assert is_ours(dist.new_group(backend="gloo"))
    if NEW:  # before, PyTorch joins once with a launcher's store
        dist.destroy_process_group()
        undefined()


def sharded(rank):
    """fully_shard(), and a mesh, which asks for the name."""
    fsdp = __import__("torch.distributed.fsdp", fromlist=["fully_shard"])
    if not hasattr(fsdp, "fully_shard"):
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model, alone = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)) for _ in range(2))
    alone.load_state_dict(model.state_dict())
    fsdp.fully_shard(model, mesh=mesh)
    x = torch.arange(8.0).reshape(2, 4)
    model(x[rank:rank + 1]).sum().backward()
    (alone(x).sum() / 2).backward()
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(ours.grad.full_tensor(), theirs.grad), (ours.grad, theirs.grad)


def undefined():
    """A group without a name has that of the tensors' device, and one with names has each."""
    dist.init_process_group()
    assert is_ours()
    dist.destroy_process_group()
    dist.init_process_group("cpu:gloo")
    assert is_ours()


def without():
    """The variable is not set, so gloo is gloo."""
    dist.init_process_group("gloo")
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu")) if NEW else group
    assert isinstance(backend, dist.ProcessGroupGloo), backend


def refused():
    """A value that can't be read."""
    try:
        dist.init_process_group("gloo")
    except ValueError as error:
        assert str(error) == "TUTTI_TORCH_AS_GLOO: expected 1 or 0, got 'yes'", error
        return
    raise AssertionError("expected ValueError")


if __name__ == "__main__":
    logging.basicConfig()
    globals()[sys.argv[1]]()
