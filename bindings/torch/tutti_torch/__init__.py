"""Tutti as a back end of torch.distributed, for tensors in the host's memory:

    import tutti_torch
    torch.distributed.init_process_group("tutti")
    torch.distributed.rpc.init_rpc("worker0", backend=torch.distributed.rpc.BackendType.TUTTI, rank=0, world_size=2)

From PyTorch 2.5 on the import is not needed: torch finds the package by its entry point."""
import functools

import torch
import torch.distributed as dist

from . import _as_gloo, _built_for, _interpreter, _rpc, _symmetric


def _load():
    """The module in C++, which is made for one version of PyTorch."""
    mend = "pip install --no-deps --force-reinstall ./bindings/torch, in Tutti's source tree, builds it for this one"
    built, here = _built_for.TORCH, torch.__version__
    if built.split(".")[:2] != here.split(".")[:2]:
        raise ImportError(f"tutti_torch was built for PyTorch {built}, and this is {here}: {mend}")
    try:
        from . import _C
    except ImportError as error:
        raise ImportError(f"tutti_torch can't be loaded with PyTorch {here}: {error}. It is built for one "
                          f"version: {mend}") from error
    return _C


_C = _load()
symmetric_memory, is_symmetric = _symmetric.make(_C)
ArgumentError = _C.ArgumentError
DistBackendError = getattr(dist, "DistBackendError", None) or _C.DistBackendError
if DistBackendError.__module__ == _C.__name__:
    DistBackendError.__module__ = __name__
RpcBackendOptions, _create_rpc_agent = _rpc.register(_C)


def _names():
    """Those under which groups of this back end are made."""
    return ("tutti", "gloo") if _as_gloo.is_asked_for() else ("tutti",)


def _expect_known(pg_options):
    """The options of a group that init_process_group() and new_group() hand on: there are none but the general ones."""
    known = getattr(getattr(torch._C._distributed_c10d, "Backend", None), "Options", None)  # since 2.x
    if pg_options is None or known and type(pg_options) is known and pg_options.backend in _names():
        return
    raise TypeError("pg_options: the back end tutti has no options of its own: expected None"
                    + (' or Backend.Options("tutti")' if known else "") + f", got {type(pg_options).__name__}")


def _create(how, pg_options):
    """A group, as torch.distributed asks for one: its timeout is that of the call, as with other back ends."""
    _expect_known(pg_options)
    _symmetric.ask_for_buckets()
    return _C.create(how.store, how.group_rank, how.group_size, how.timeout,
                     later=getattr(how, "enable_reconfigure", False))


def _admit_to_monitored_barrier():
    """PyTorch 1.13's function asks for a group of gloo's by name; groups of Tutti's go around that."""
    of_gloo = dist.monitored_barrier

    @functools.wraps(of_gloo)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        c10d = dist.distributed_c10d
        if c10d._rank_not_in_group(group) or dist.get_backend(group) != "tutti":
            return of_gloo(group, timeout, wait_all_ranks)
        here = group if group is not None else c10d._get_default_group()
        return here.monitored_barrier(c10d.default_pg_timeout if timeout is None else timeout, wait_all_ranks)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


def _register():
    """Give torch.distributed the back end, once."""
    if hasattr(dist.Backend, "TUTTI"):
        return
    options = {} if torch.__version__.startswith("1.") else {"devices": ["cpu"]}
    dist.Backend.register_backend("tutti", _create, extended_api=True, **options)
    _interpreter.attach(_C)
    # PyTorch's recorder of calls is for back ends that have none. Beside ours (`tutti trace`) it would cost time, and
    # after a failure its thread can outlast the interpreter and abort the process.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("tutti")
    if torch.__version__.startswith("1."):
        _admit_to_monitored_barrier()
    _as_gloo.replace(_create)


_register()
