"""Tutti as a back end of torch.distributed, for tensors in the host's memory:

    import tutti_torch
    torch.distributed.init_process_group("tutti")

From PyTorch 2.5 on the import is not needed: torch finds the package by its entry point."""
import torch
import torch.distributed as dist

from . import _interpreter


def _load():
    """The module in C++, which is made for one version of PyTorch."""
    try:
        from . import _C
    except ImportError as error:
        raise ImportError(f"tutti_torch can't be loaded with PyTorch {torch.__version__}: {error}. It is built for one "
                          "version: pip install --force-reinstall ./bindings/torch builds it for this one") from error
    built, here = (version.split(".")[:2] for version in (_C.torch_version(), torch.__version__))
    if built != here:
        raise ImportError(f"tutti_torch was built for PyTorch {_C.torch_version()}, and this is {torch.__version__}: "
                          "pip install --force-reinstall ./bindings/torch builds it for this one")
    return _C


_C = _load()
DistBackendError = getattr(dist, "DistBackendError", None) or _C.DistBackendError


def _register():
    """Give torch.distributed the back end, once."""
    if hasattr(dist.Backend, "TUTTI"):
        return
    options = {} if torch.__version__.startswith("1.") else {"devices": ["cpu"]}
    dist.Backend.register_backend("tutti", _C.create, **options)
    _interpreter.attach(_C)


_register()
