"""PyTorch's own tests of RPC over Tutti's agent: of what passes with TensorPipe here, all passes with TUTTI in its
place, but for the cases that docs/pytorch-tests.md lists.

The tests are part of PyTorch's wheel. All of them take ten minutes with two CPUs, where TT_TORCH_RPC_ONLY is ".": a
regular expression, it says which to run. They need the Python package expecttest."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_cases_compared  # noqa: E402  (after the path to it is set)
import torch_package  # noqa: E402

# Of each kind of message some: calls, references, autograd, an optimizer, a module, faults, a dynamic world.
A_FEW = (r"\.test_(py_udf_remote|rref_forward_chain|nested_rpc|rpc_timeouts|py_tensors_multi_async_call|"
         r"backward_rref_nested|dist_optim|forward_sync|udf_remote_message_delay_timeout_to_self|shutdown_errors|"
         r"dynamic_rpc_existing_rank_can_communicate_with_new_rank)$")


def lacking():
    """Why they can't be run; None: they can."""
    if torch_package.VERSION < (2, 0) or not hasattr(torch_package.torch._C, "_rpc_init"):
        return "this PyTorch has no RPC that the back end TUTTI is made for"
    try:
        import expecttest  # noqa: F401
    except ImportError as missing:
        return f"cannot import expecttest: {missing}"
    return None


if __name__ == "__main__":
    if lacking():
        print("skipped:", lacking())
        sys.exit(77)
    sys.exit(torch_cases_compared.main("torch_rpc_runner.py", ("TENSORPIPE", "TUTTI"), "PyTorch's own tests of RPC",
                                       os.environ.get("TT_TORCH_RPC_ONLY", A_FEW), 0.97))
