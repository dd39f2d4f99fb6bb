"""How the peers that are PyTorch meet: on gloo, or on the back end that TORCH_BACKEND names. `tutti` is found in
PYTHONPATH; `fake`, which current versions have, sends nothing: what is left is PyTorch's own part of a call."""
import os

import torch.distributed as dist


def join():
    name = os.environ.get("TORCH_BACKEND", "gloo")
    if name == "tutti":
        import tutti_torch  # noqa: F401: makes itself known
    if name == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group(name, store=FakeStore(), rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))
    else:
        dist.init_process_group(name)
    return name
