"""Tensors in symmetric memory: those of `symmetric_memory()` and DistributedDataParallel's buckets serve collectives as
others do, and outlive the group. Started by `tutti run`."""
import gc
import os

import torch
import torch.distributed as dist
import tutti_torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUCKETS = not torch.__version__.startswith("1.")  # 1.13 asks no back end for them


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def of_the_program(rank, world):
    """Each rank makes another number of tensors before, so that those that meet lie elsewhere in each."""
    with tutti_torch.symmetric_memory():
        before = [torch.ones(5000) for _ in range(rank + 1)]
        x, few = torch.full((1 << 20,), float(rank)), torch.zeros(3)
        with tutti_torch.symmetric_memory(dist.group.WORLD):
            nested = torch.ones(7)
        again = torch.ones(7)
    after = torch.ones(4)
    expect(all(map(tutti_torch.is_symmetric, [x, few, nested, again, *before])), "made within")
    expect(not tutti_torch.is_symmetric(after) and not tutti_torch.is_symmetric(x.clone()), "made outside")
    del before
    dist.all_reduce(x)
    expect(torch.equal(x, torch.full((1 << 20,), world * (world - 1) / 2)), "all_reduce")
    parts = list(x[:world * 1000].view(world, 1000).unbind())
    dist.all_gather(parts, torch.full((1000,), float(rank)))
    expect(all(bool((part == r).all()) for r, part in enumerate(parts)), "all_gather into views")
    plain = torch.full((1 << 20,), float(rank)) if rank else x.fill_(0.0)
    dist.all_reduce(plain)  # symmetric on rank 0 alone
    expect(float(plain[-1]) == world * (world - 1) / 2, "mixed")
    return x


def train(steps=5):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(steps):
        torch.manual_seed(10 * step + dist.get_rank())
        sgd.zero_grad(set_to_none=False)
        ddp(torch.randn(8, 784)).square().mean().backward()
        sgd.step()
    return model


def main():
    torch.set_num_threads(1)
    os.environ["DDP_DISABLE_COMM_MEM"] = "0"  # also where there are GPUs
    dist.init_process_group("tutti")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = of_the_program(rank, world)
    model = train()
    gradients = [p.grad for p in model.parameters()]
    if BUCKETS:
        expect(all(map(tutti_torch.is_symmetric, gradients)), "buckets")
        os.environ["DDP_DISABLE_COMM_MEM"] = "1"
    else:
        with tutti_torch.symmetric_memory():
            model = train()
    plain = train()
    expect(not any(tutti_torch.is_symmetric(p.grad) for p in plain.parameters()), "plain buckets")
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        expect(torch.equal(ours, theirs), "the same bits")
    dist.barrier()
    dist.destroy_process_group()
    x += 1  # what is left of a group that is gone
    gradients[0].add_(1)
    del x, model, plain, gradients
    gc.collect()
    try:
        tutti_torch.is_symmetric(torch.ones(1), group="no group")
    except Exception as error:  # pylint: disable=broad-except
        expect(not isinstance(error, SystemError), error)
    else:
        raise AssertionError("a text is no group")


if __name__ == "__main__":
    main()
