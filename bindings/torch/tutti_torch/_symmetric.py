"""Tensors of the program's own in memory that the ranks of a host share."""
import contextlib
import os

import torch
import torch.distributed as dist


def _backend(group):
    group = dist.distributed_c10d._get_default_group() if group is None else group
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group  # 1.13: itself


def ask_for_buckets():
    """Have DistributedDataParallel take its buckets from its back end: PyTorch (2.15) does so only if it is told, in
    the whole process. Where there are GPUs it is left to the user, since it changes what NCCL's groups do, too."""
    if not os.path.exists("/dev/nvidiactl"):
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def make(module):
    """The public functions, over the module in C++."""

    @contextlib.contextmanager
    def symmetric_memory(group=None):
        """CPU tensors that this thread makes within the block lie in memory that the ranks of a host share, so that
        collectives of `group` (the default one if none is given) read and write them where they lie, without copying
        them first. They can be used as any other, and outlive block and group; only a forked child writes to its
        parent's, as after share_memory_(). Each takes whole pages (4 KiB): for large tensors that live long. Without
        shared memory between ranks, or where it is full, they are ordinary ones.

            with tutti_torch.symmetric_memory():
                x = torch.empty(1 << 20)
            dist.all_reduce(x)

        Not collective, though a collective gains where all ranks' tensors lie so. ValueError: a group of another back
        end."""
        used = module.use_symmetric_memory(_backend(group))
        try:
            yield
        finally:
            used.restore()

    def is_symmetric(x, group=None):
        """Do the elements of the tensor `x` lie in such memory of `group`?"""
        return module.is_symmetric(_backend(group), x)

    return symmetric_memory, is_symmetric
