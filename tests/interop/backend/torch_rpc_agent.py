"""What the agent of torch.distributed.rpc does beyond PyTorch's own tests of RPC: torch_rpc_agent.py CASE, on two
workers."""
import os
import re
import signal
import sys
import threading
import time

import one_job
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import tutti_torch  # noqa: F401: makes itself known

CASE = one_job.function(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OTHER = f"worker{1 - RANK}"


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_error(pattern, call):
    try:
        call()
    except RuntimeError as error:
        expect(re.search(pattern, str(error)), f"expected an error like {pattern}, got {error}")
        return
    raise AssertionError(f"expected an error like {pattern}, got none")


def join(**options):
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=WORLD, backend=rpc.BackendType.TUTTI, **options)


def same(x):
    return x


def doubled_in_place(x):
    return x.mul_(2)


def requires_grad(x):
    return x.requires_grad


def get_process():
    return os.getpid()


HELD, NOTED = threading.Event(), []


def hold_the_thread():
    HELD.wait()


def note(what):
    NOTED.append(what)


def get_noted():
    return NOTED


def many_tensors():
    """Of each element type and layout some, and views."""
    base = torch.arange(60, dtype=torch.float32).view(3, 4, 5)
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int8, torch.uint8, torch.int64,
                  torch.bool, torch.float8_e4m3fn):
        yield f"of {dtype}", base.to(dtype)
    yield "without dimensions", torch.tensor(3.5)
    yield "without elements", torch.empty(0, 7)
    yield "transposed", base.permute(2, 0, 1)
    yield "with gaps", base[:, 1:3, ::2]
    yield "expanded", torch.tensor([[1.0], [2.0]]).expand(2, 1000)
    yield "small view of a large one", torch.arange(1 << 16)[77:80]
    yield "view with large gaps", torch.arange(1 << 16)[::4096]
    yield "conjugate", torch.view_as_complex(torch.randn(4, 2)).conj()
    yield "negated", torch.view_as_complex(torch.randn(4, 2)).conj().imag
    yield "of numpy's memory", torch.from_numpy(torch.arange(9).numpy())
    yield "sparse", torch.eye(4).to_sparse()
    yield "large", torch.randn(1 << 20)


def tensors():
    """They come back as they are, and a view doesn't bring along what it hides."""
    join()
    for what, x in many_tensors():
        for to in (OTHER, f"worker{RANK}"):
            y = rpc.rpc_sync(to, same, (x,))
            dense, back = (t.to_dense() if t.layout != torch.strided else t.resolve_conj().resolve_neg()
                           for t in (x, y))
            expect(x.dtype == y.dtype and x.layout == y.layout and x.shape == y.shape, f"a tensor {what}: {y}")
            expect(torch.equal(dense.to(torch.complex64), back.to(torch.complex64)), f"a tensor {what} changed: {y}")
    hidden = rpc.rpc_sync(OTHER, same, (torch.arange(1 << 16)[77:80],))
    expect(hidden.untyped_storage().nbytes() < 100, f"{hidden.untyped_storage().nbytes()} bytes for three elements")
    expect(rpc.rpc_sync(OTHER, requires_grad, (torch.ones(1, requires_grad=True),)), "requires_grad is lost")
    x = torch.ones(3)
    y = rpc.rpc_sync(f"worker{RANK}", doubled_in_place, (x,))
    expect(torch.equal(x, torch.ones(3)) and torch.equal(y, x * 2), "a call to itself changed its argument")
    rpc.shutdown()


def refused():
    """What is wrong with options is said where they are given."""
    try:
        join(rpc_backend_options=rpc.TensorPipeRpcBackendOptions(device_maps={OTHER: {0: 0}}))
    except ValueError as error:
        expect("CPU alone" in str(error), error)
    else:
        raise AssertionError("a device map was accepted")


def taken():
    """A second worker of one name is refused in the words of PyTorch's agent, also where workers come and go."""
    meeting = next(dist.rendezvous("env://"))[0]
    how = {"rank": RANK, "backend": rpc.BackendType.TUTTI}
    if RANK == 0:
        rpc.init_rpc("same", **how)
        meeting.set("joined", "")
        meeting.wait(["refused"])
        rpc.shutdown()
        return
    meeting.wait(["joined"])
    expect_error("^RPC worker name same is not unique: ", lambda: rpc.init_rpc("same", **how))
    meeting.set("refused", "")


def errors():
    """Errors name the other worker."""
    join(rpc_backend_options=rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=30))
    expect(rpc.get_rpc_timeout() == 30, rpc.get_rpc_timeout())
    expect_error("could not find destination nobody", lambda: rpc.rpc_sync("nobody", same, (1,)))
    expect_error(rf"On WorkerInfo\(id={1 - RANK}, name={OTHER}\):\nZeroDivisionError",
                 lambda: rpc.rpc_sync(OTHER, divmod, (1, 0)))
    expect_error("RPC ran for more than set timeout", lambda: rpc.rpc_sync(OTHER, time.sleep, (2,), timeout=0.2))
    rpc.shutdown()
    expect_error("RPC has not been initialized", lambda: rpc.rpc_sync(OTHER, same, (1,)))


def late():
    """A call whose timeout passes before it begins is made all the same: it may carry a reference."""
    meeting = next(dist.rendezvous("env://"))[0]
    join(rpc_backend_options=rpc.TensorPipeRpcBackendOptions(num_worker_threads=1))
    busy = rpc.rpc_async(OTHER, hold_the_thread)
    expired = "RPC ran for more than set timeout \\(100 ms\\)"
    expect_error(expired, lambda: rpc.rpc_sync(OTHER, note, ("waited for at once",), timeout=0.1))
    expect_error(expired, rpc.rpc_async(OTHER, note, ("waited for later",), timeout=0.1).wait)
    meeting.set(f"expired on {RANK}", "")
    meeting.wait([f"expired on {1 - RANK}"])
    HELD.set()
    busy.wait()
    noted = rpc.rpc_sync(OTHER, get_noted)
    expect(noted == ["waited for at once", "waited for later"], noted)
    rpc.shutdown()


def killed():
    """A worker that is killed ends the calls to it at once, and those that follow, with its name."""
    join(rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=0))
    process = rpc.rpc_sync(OTHER, get_process)
    if RANK == 1:
        time.sleep(600)
    waiting = rpc.rpc_async(OTHER, time.sleep, (600,))
    began = time.monotonic()
    os.kill(process, signal.SIGKILL)
    expect_error("TT_ERR_PEER: .*worker1", waiting.wait)
    expect_error("TT_ERR_PEER: .*worker1", lambda: rpc.rpc_sync(OTHER, same, (1,)))
    expect(time.monotonic() - began < 20, f"{time.monotonic() - began} s")
    rpc.shutdown(graceful=False)


def left():
    """A program that ends without shutdown() ends, with its exit code."""
    join()
    rpc.rpc_sync(OTHER, same, (1,))
    rpc.api._barrier(["worker0", "worker1"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    {function.__name__: function for function in (tensors, refused, taken, errors, late, killed, left)}[CASE]()
    print(CASE, "done", flush=True)
