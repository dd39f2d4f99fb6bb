"""hooks_features.c in PyTorch: hooks_features.py FOLDER writes FOLDER/torch.NAME.RANK. Started by `tutti run`."""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

STEPS, IN, WIDE, OUT, BATCH = 50, 20, 32, 4, 32


def power(rank, start, **options):
    """What makes state and hook."""
    return lambda: (powerSGD_hook.PowerSGDState(None, rank, start, **options), powerSGD_hook.powerSGD_hook)


# NAME: what makes state and hook, learning rate. With several buckets powerSGD_hook breaks over gloo, where the
# all-reduces of two buckets cross in another order on each rank.
FEATURES = {
    "all_reduce hook": (lambda: (None, default_hooks.allreduce_hook), 0.01),
    "f16 hook": (lambda: (None, default_hooks.fp16_compress_hook), 0.002),
    "bf16 hook": (lambda: (None, default_hooks.bf16_compress_hook), 0.002),
    "PowerSGD, rank 1 from step 30": (power(1, 30), 0.01),
    "PowerSGD, rank 2 from step 35": (power(2, 35), 0.01),
    "PowerSGD, rank 3 from step 20": (power(3, 20, min_compression_rate=1), 0.01),
    "PowerSGD, rank 4 from step 30": (power(4, 30, random_seed=5, min_compression_rate=1.5), 0.01),
    "PowerSGD, rank 1, no warm start": (power(1, 2, warm_start=False, random_seed=7), 0.01),
    "PowerSGD, rank 3, no error feedback": (power(3, 5, use_error_feedback=False, min_compression_rate=1), 0.01),
    "PowerSGD, rank 2, an epsilon, no error feedback": (
        power(2, 3, orthogonalization_epsilon=1e-8, use_error_feedback=False), 0.01),
}


# 1.13 has bf16_compress_hook for NCCL only.
if torch.__version__.startswith("1."):
    del FEATURES["bf16 hook"]


def model():
    return nn.Sequential(nn.Linear(IN, WIDE), nn.Tanh(), nn.Linear(WIDE, IN), nn.Tanh(),
                         nn.Linear(IN, WIDE), nn.Tanh(), nn.Linear(WIDE, OUT))


def train(name, out):
    hook, rate = FEATURES[name]
    torch.manual_seed(0)
    ddp = DistributedDataParallel(model())
    ddp.register_comm_hook(*hook())
    sgd = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    torch.manual_seed(1000 + dist.get_rank())
    for _ in range(STEPS):
        sgd.zero_grad(set_to_none=True)
        x = torch.randn(BATCH, IN)
        loss = nn.functional.mse_loss(ddp(x), x[:, :OUT])
        loss.backward()
        print(f"loss {loss.item():.9g}", file=out)
        sgd.step()
    for key, value in ddp.module.named_parameters():
        print(key, *(f"{x:.9g}" for x in value.detach().flatten().tolist()), file=out)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in FEATURES:
        with open(f"{sys.argv[1]}/torch.{name}.{dist.get_rank()}", "w", encoding="ascii") as out:
            train(name, out)
    dist.barrier()
    os._exit(0)  # ending in order, gloo's threads now and then abort the current version's process


if __name__ == "__main__":
    main()
