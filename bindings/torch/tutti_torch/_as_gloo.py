"""TUTTI_TORCH_AS_GLOO=1: groups of the back end gloo are Tutti's, for frameworks that accept only a name they know.
dist.get_backend() stays "gloo", which such frameworks compare."""
import functools
import logging
import os
import types

import torch.distributed as dist

NAME = "TUTTI_TORCH_AS_GLOO"
logger = logging.getLogger("tutti")
_said = False


def is_asked_for():
    """Is gloo to be replaced? Raises ValueError for a value that can't be read."""
    value = os.environ.get(NAME, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{NAME}: expected 1 or 0, got {value!r}")
    return value == "1"


def _say_once(rank):
    """Rank 0 speaks for all."""
    global _said
    if not _said and rank == 0:
        logger.warning('%s=1: the process groups that this program makes with the back end "gloo" are Tutti\'s', NAME)
    _said = True


def _creator(create):
    """What makes a group, given torch.distributed's description of it."""
    def create_as_gloo(how, pg_options=None):
        is_asked_for()
        _say_once(how.group_rank)
        return create(how, pg_options)
    return create_as_gloo


def _stand_in(create, gloo):
    """What stands for the class ProcessGroupGloo where torch.distributed calls that itself."""
    class Kind(type):
        def __call__(cls, store, rank, size, timeout):
            return create(types.SimpleNamespace(store=store, group_rank=rank, group_size=size, timeout=timeout))

        def __instancecheck__(cls, group):
            return isinstance(group, gloo)

    return Kind("ProcessGroupGloo", (), {"__module__": gloo.__module__})


def _replace_class(c10d, create):
    """As _stand_in() says. The wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL needs a true one beside the group."""
    gloo, wrap = c10d.ProcessGroupGloo, c10d._create_process_group_wrapper
    c10d.ProcessGroupGloo = stand_in = _stand_in(create, gloo)

    @functools.wraps(wrap)
    def wrapped(*args, **how):
        c10d.ProcessGroupGloo = gloo
        try:
            return wrap(*args, **how)
        finally:
            c10d.ProcessGroupGloo = stand_in

    c10d._create_process_group_wrapper = wrapped


def replace(create):
    """Have torch.distributed make groups of gloo with `create`, where the variable says so. A value that can't be read
    is an error where a group is made."""
    if os.environ.get(NAME, "") in ("", "0"):
        return
    c10d, backend, creator = dist.distributed_c10d, dist.Backend, _creator(create)
    if hasattr(backend, "_ensure_backend_registered") or "GLOO" in backend._plugins:  # else it is no plug-in
        backend._plugins["GLOO"] = backend._BackendPlugin(creator, True)
    elif hasattr(c10d, "ProcessGroupGloo"):
        _replace_class(c10d, creator)
    capability = getattr(backend, "backend_capability", None)
    if capability is not None:
        capability["gloo"] = ["cpu"]  # and no GPU's, as gloo has
    getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("gloo")
