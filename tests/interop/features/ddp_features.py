"""ddp_features.c in PyTorch: ddp_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by `tutti run`."""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, IN, HIDDEN, OUT, BATCH, LEFT, RIGHT = 50, 20, 16, 4, 8, 1, 2


def both(_, __):
    return LEFT | RIGHT


def by_rank(a_pass, rank):
    return (a_pass * 7 + rank * 3) % 4


def by_pass(a_pass, _):
    return a_pass // 3 % 4


FEW, FIRST_FEW = (0, 5, 1, 3), (4, 0, 5, 2)

IN_BACKWARD = ("step in backward", "step in backward, and no_sync")
STATIC, IGNORED, DELAYED = "a static graph", "a layer in .ignored", "a layer in .delay_all_reduce"

# NAME: heads, passes a step, steps that each rank has less, divided by the world size
FEATURES = {
    "averaging": (both, 1, None, True),
    STATIC: (both, 1, None, True),
    "parameters that some ranks leave out": (by_rank, 1, None, True),
    "parameters that all ranks leave out": (by_pass, 1, None, True),
    "no_sync": (both, 3, None, True),
    "no_sync, and parameters that some ranks leave out": (by_rank, 3, None, True),
    "join": (both, 1, FEW, True),
    "join, of which rank 0 ends early": (both, 1, FIRST_FEW, True),
    "join, divided by the ranks that have data": (both, 1, FEW, False),
    IGNORED: (both, 1, None, True),
}
FEATURES |= {IN_BACKWARD[0]: (both, 1, None, True), IN_BACKWARD[1]: (both, 3, None, True)}
OLD = torch.__version__.startswith("1.")
if not OLD:  # 1.13 knows no such parameters
    FEATURES[DELAYED] = (both, 1, None, True)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(IN, HIDDEN)
        self.left, self.right, self.idle = (nn.Linear(HIDDEN, OUT) for _ in range(3))

    def forward(self, x, heads):
        stem = torch.tanh(self.stem(x))
        y = stem[:, :OUT]
        if heads & LEFT:
            y = y + self.left(stem)
        if heads & RIGHT:
            y = y + self.right(stem)
        return y


def waiting(all_reduce):
    """DistributedDataParallel starts the late all_reduce and waits for nothing, as CUDA streams would: with gloo the
    step may come first."""
    def call(*args, async_op=False, **options):
        work = all_reduce(*args, async_op=True, **options)
        work.wait()
        return work if async_op else None
    return call


def wrapped(name):
    module, options = Branches(), {}
    right = [(key, x) for key, x in module.named_parameters() if key.startswith("right.")]
    if name == IGNORED:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [key for key, _ in right])
    if name == DELAYED:
        options = {"delay_all_reduce_named_params": right, "param_to_hook_all_reduce": module.stem.weight}
    if name == STATIC:
        return DistributedDataParallel(module, static_graph=True)
    return DistributedDataParallel(module, find_unused_parameters=True, **options)  # idle is left out always


def step_in_backward(ddp, options):
    """_apply_optimizer_in_backward() wants a CUDA stream; and Python 3.11 can't import _register_fused_optim()'s part
    of 1.13, which does this."""
    if not OLD:
        ddp._register_fused_optim(torch.optim.SGD, **options)
        return
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, optimizer_overlap_hooks
    from torch.distributed.optim.functional_sgd import _FunctionalSGD
    sgd = optimizer_overlap_hooks._OptimizerHookState(_FunctionalSGD([], _allow_empty_param_list=True, **options))
    ddp.register_comm_hook(None, optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, sgd))


def train(name, out):
    rank = dist.get_rank()
    heads, passes, missing, by_world = FEATURES[name]
    torch.manual_seed(0)
    ddp = wrapped(name)
    options = {"lr": 0.05, "momentum": 0.9}
    if name in IN_BACKWARD:
        step_in_backward(ddp, options)
    sgd = torch.optim.SGD(ddp.parameters(), **options)
    torch.manual_seed(1000 + rank)
    with (ddp.join(divide_by_initial_world_size=by_world) if missing else contextlib.nullcontext()):
        for step in range(STEPS - (missing[rank] if missing else 0)):
            sgd.zero_grad(set_to_none=name != DELAYED)  # whose gradients must stay in the wrapper's buffer
            for i in range(passes):
                with ddp.no_sync() if i + 1 < passes else contextlib.nullcontext():
                    x, y = torch.randn(BATCH, IN), torch.randn(BATCH, OUT)
                    loss = nn.functional.mse_loss(ddp(x, heads(step * passes + i, rank)), y)
                    loss.backward()
                print(f"loss {loss.item():.9g}", file=out)
            if name not in IN_BACKWARD:
                sgd.step()
    for key, value in ddp.module.named_parameters():
        print(key, *(f"{x:.9g}" for x in value.detach().flatten().tolist()), file=out)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.all_reduce = waiting(dist.all_reduce)
    for name in FEATURES:
        with open(f"{sys.argv[1]}/torch.{name}.{dist.get_rank()}", "w", encoding="ascii") as out:
            train(name, out)
    dist.barrier()
    os._exit(0)  # ending in order, gloo's threads now and then abort the current version's process


if __name__ == "__main__":
    main()
