"""Errors of the back end tutti as Python sees them. Started by `tutti run` on two ranks, with the name of one of the
functions below, or with several cases (one_job.py)."""
import ctypes
import datetime
import logging
import os
import resource
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import tutti_torch
from one_job import function
from torch import nn

NEW = not torch.__version__.startswith("1.")
SECOND = datetime.timedelta(seconds=1)


def say(text):
    sys.stdout.write(f"{dist.get_rank() if dist.is_initialized() else ''}: {text}\n")  # one write: lines stay whole
    sys.stdout.flush()


def expect(kind, words, call):
    """The call is refused by `kind`, with these words."""
    try:
        call()
    except Exception as error:
        if not isinstance(error, kind) or words not in str(error):
            got = f"{type(error).__name__}: {error}"
            raise AssertionError(f"expected {kind.__name__} with {words!r}, got {got}") from error
        return
    raise AssertionError(f"expected {kind.__name__} with {words!r}, got no exception")


def refused():
    """Arguments that are refused leave the group as it was."""
    dist.init_process_group("tutti")
    me, group = dist.get_rank(), dist.distributed_c10d._get_default_group()
    one, meta = torch.ones(4), torch.ones(4, device="meta")
    backend = group._get_backend(torch.device("cpu")) if NEW else group
    cases = [
        (ValueError, "requires non-empty tensor list", lambda: backend.allreduce([])),
        (TypeError, "elements to reduce, got ComplexDouble",
         lambda: backend.allreduce([torch.ones(2, dtype=torch.complex128)])),
        (ValueError, "expected one of 2, got one of 1", lambda: backend.allgather([[one]], [one])),
        (ValueError, "expected the input's 4 elements, got 5",
         lambda: backend.allgather([[torch.ones(5), torch.ones(5)]], [one])),
        (ValueError, "expected Float, got Double", lambda: backend.allgather([[one, one.double()]], [one])),
        (ValueError, "expected lists of tensors, got an empty one", lambda: backend.alltoall([], [])),
        (ValueError, "output split sizes with a sum of 4",
         lambda: dist.all_to_all_single(torch.empty(4), one, [1, 1], [2, 2])),
        (ValueError, "no negative ones", lambda: dist.all_to_all_single(torch.empty(4), one, [5, -1], [2, 2])),
        (ValueError, "whose dimension 0 divides by 2",
         lambda: dist.all_to_all_single(torch.empty(3), torch.ones(3))),
        (ValueError, "expected a rank of 0 to 1, got 7", lambda: backend.send([one], 7, 0)),
        (ValueError, "expected a tag of 0 or more, got -3", lambda: backend.send([one], 1 - me, -3)),
        (ValueError, "invalid root rank 2: expected 0 to 1", lambda: backend.reduce(one, 2)),
    ]
    spread = torch.ones(1).expand(4)
    cases += [(ValueError, "memory of their own each, got one of sizes [4] and strides [0]", call) for call in (
        lambda: dist.all_reduce(spread), lambda: dist.broadcast(spread, 1 - me), lambda: dist.recv(spread, 1 - me),
        lambda: dist.all_gather([spread, one], one), lambda: dist.all_gather_coalesced([[one], [spread]], [one]))]
    if NEW:  # before, PyTorch's dispatcher refuses them itself
        cases += [
            (ValueError, "takes tensors in the host's memory, got one on meta", lambda: backend.allreduce([meta])),
            (ValueError, "expected a dense tensor", lambda: backend.broadcast([one.to_sparse()])),
            (TypeError, "elements to reduce, got QInt8",
             lambda: backend.allreduce([torch.quantize_per_tensor(one, 1.0, 0, torch.qint8)]))]
    for kind, words, call in cases:
        expect(kind, words, call)
    leaf = torch.ones(2, 3, requires_grad=True)
    dist.all_reduce(leaf)  # gloo writes it as well
    turned = torch.ones(2, 3).t().requires_grad_()
    dist.all_reduce(turned)
    assert torch.equal(leaf, torch.full((2, 3), 2.0)) and torch.equal(turned, torch.full((3, 2), 2.0)), (leaf, turned)
    work = dist.irecv(one, 1 - me, tag=5)
    expect(tutti_torch.DistBackendError, "TT_ERR_TIMEOUT: ", lambda: work.wait(SECOND / 20))
    dist.barrier()  # both have waited in vain
    dist.send(torch.full((4,), 3.0), 1 - me, tag=5)
    work.wait()
    assert torch.equal(one, torch.full((4,), 3.0))
    dist.destroy_process_group()
    if NEW:  # before, a group goes when nobody has it any more
        expect(tutti_torch.DistBackendError, "destroyed or aborted before", lambda: backend.allreduce([one]))


def meeting():
    """What is wrong with how ranks meet."""
    rank = int(os.environ["RANK"])
    create = tutti_torch._C.create
    expect(ValueError, "expected a timeout of more than 0 s, got 0", lambda: create(dist.HashStore(), 0, 1, SECOND * 0))
    expect(ValueError, "a timeout of more than 0 s, got -1", lambda: create(dist.HashStore(), 0, 1, -SECOND))
    expect(ValueError, "expected a rank of 0 to world_size - 1", lambda: create(dist.HashStore(), 2, 2, SECOND))
    if rank == 0:
        expect(tutti_torch.DistBackendError, "rank 1", lambda: create(dist.HashStore(), 0, 2, SECOND / 2))
        server = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=SECOND, wait_for_workers=False)
        client = dist.TCPStore("127.0.0.1", server.port, 1, False, timeout=SECOND, wait_for_workers=False)
        for _ in range(3):  # 1.13's client ends the process if a server ends that has not taken its second connection
            client.set("key", "value")
            client.get("key")
        del server
        expect(tutti_torch.DistBackendError, "PyTorch's store", lambda: create(client, 0, 2, SECOND))
    dist.init_process_group("tutti")


def store_ends():
    """Calls need no store once all have met."""
    folder = os.environ["TT_TEST_FOLDER"]
    rank, port = int(os.environ["RANK"]), os.path.join(folder, "port")
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, True, timeout=10 * SECOND, wait_for_workers=False)
        with open(f"{port}.new", "w", encoding="ascii") as file:
            file.write(str(store.port))
        os.rename(f"{port}.new", port)
    else:
        while not os.path.exists(port):
            time.sleep(0.01)
        with open(port, encoding="ascii") as file:
            store = dist.TCPStore("127.0.0.1", int(file.read()), 2, False, timeout=10 * SECOND, wait_for_workers=False)
    group = tutti_torch._C.create(store, rank, 2, 10 * SECOND)
    del store
    x = torch.ones(5)
    for _ in range(3):
        group.allreduce([x]).wait()
    assert torch.equal(x, torch.full((5,), 8.0)), x


def sites():
    """Each error names the line of the user's own frame; the test reads which."""
    how = os.environ["TT_TEST_SITE"]
    dist.init_process_group("tutti")
    me = dist.get_rank()
    try:
        if how == "future":
            dist.all_reduce(torch.ones(3 + me), async_op=True).get_future().wait()  # site: future
        elif how == "thread":
            in_a_thread(lambda: dist.all_reduce(torch.ones(3 + me)))  # site: thread
        elif how == "exec":
            exec(compile("\n\ndist.all_reduce(torch.ones(3 + me))", "<cell>", "exec"), {**globals(), "me": me})
        elif how == "object":
            dist.all_gather_object([None] * 2, 1) if me else dist.broadcast_object_list([1])  # site: object
        elif how == "barrier":
            dist.barrier() if me else dist.all_reduce(torch.ones(3))  # site: barrier
        elif how == "message":
            dist.send(torch.ones(3), 1) if me == 0 else dist.recv(torch.ones(4), 0)  # site: message
            dist.barrier()
        elif how == "backward":
            ddp = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
            loss = ddp(torch.ones(1, 4)).sum()
            if me:
                dist.barrier()
            loss.backward()  # site: backward
    except tutti_torch.DistBackendError as error:
        say(error)


def in_a_thread(call):
    caught = []

    def run():
        try:
            call()
        except tutti_torch.DistBackendError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise caught[0]


def raises():
    """Rank 1 raises, and the interpreter ends it; rank 0 hears what, and ends because of it."""
    dist.init_process_group("tutti")
    dist.barrier()
    if dist.get_rank() == 1:
        os.environ.update({"TORCHELASTIC_ERROR_FILE": path for path in [os.environ.get("TT_TEST_ERROR_FILE")] if path})
        if "TT_TEST_ROOM" in os.environ:
            resource.setrlimit(resource.RLIMIT_FSIZE, [int(os.environ["TT_TEST_ROOM"])] * 2)
        raise ValueError("no such batch: 17" + os.environ.get("TT_TEST_MORE", ""))  # site: raises
    dist.barrier()


def killed():
    """Rank 1 ends by a signal; rank 0 hears which, from the launcher."""
    dist.init_process_group("tutti")
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect(tutti_torch.DistBackendError, "ended with signal 9 (SIGKILL)", dist.barrier)
    say("heard of the signal")


def interrupted_twice():
    """Both ranks: Ctrl-C ends the program, and a second one comes while it leaves its groups."""
    dist.init_process_group("tutti")
    module, leave = tutti_torch._C, tutti_torch._C.shutdown_all

    def interrupted_while_leaving(words):
        os.kill(os.getpid(), signal.SIGINT)
        leave(words)

    module.shutdown_all = interrupted_while_leaving
    dist.barrier()
    os.kill(os.getpid(), signal.SIGINT)
    dist.barrier()


def interrupted_as_another_fails():
    """Ctrl-C reaches both ranks. Rank 1 ends at once, and so rank 0's call fails while its own signal is pending."""
    dist.init_process_group("tutti")
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank():
        store.wait(["waits"])
        os.kill(int(store.get("pid")), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    store.set("pid", str(os.getpid()))
    threading.Timer(0.2, store.set, ("waits", "1")).start()
    dist.barrier()


def left_after_a_failure():
    """Rank 1 has seen another group fail when it leaves this one, which works: rank 0 is told why."""
    dist.init_process_group("tutti")
    rank, group = dist.get_rank(), dist.new_group()
    expect(tutti_torch.DistBackendError, "TT_ERR_MISMATCH", lambda: dist.all_reduce(torch.ones(2 + rank), group=group))
    if rank == 0:
        expect(tutti_torch.DistBackendError, "rank 1 failed: TT_ERR_MISMATCH: ", dist.barrier)


def sparse_interrupted():
    """Ctrl-C in an all_reduce of sparse tensors, of which the first call goes on: what it still writes is its own."""
    dist.init_process_group("tutti")
    x, store = torch.sparse_coo_tensor([[1]], torch.ones(1), (4,)), dist.distributed_c10d._get_default_store()
    four = torch.tensor([1, 1, 1, 1])
    if dist.get_rank():
        store.wait(["interrupted"])
        work = dist.all_gather([torch.zeros_like(four) for _ in range(2)], four, async_op=True)  # as sparse ones begin
        store.set("sent", "1")
        work.wait()
        dist.barrier()
        return
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        dist.all_reduce(x)
    except KeyboardInterrupt:
        say("interrupted")
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    blocks = [libc.malloc(64) for _ in range(400)]
    for block in blocks:
        ctypes.memset(block, 0xAA, 64)
    store.set("interrupted", "1")
    store.wait(["sent"])
    dist.barrier()
    assert all(ctypes.string_at(block, 64) == b"\xaa" * 64 for block in blocks)


def hooked():
    """On rank 0 hooks come and go while the group breaks in another thread."""
    dist.init_process_group("tutti")
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")) if NEW else None
    if not hasattr(backend, "register_abort_hook"):
        return
    if rank:
        store.wait(["hooks come"])
        expect(tutti_torch.DistBackendError, "TT_ERR_MISMATCH", lambda: dist.all_reduce(torch.ones(3)))
        return
    told, hooks = [], 1000
    for i in range(hooks):
        backend.register_abort_hook(i, lambda: told.append(1))
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    store.set("hooks come", "1")
    while not told:
        backend.register_abort_hook(hooks, lambda: told.append(1))
        backend.unregister_abort_hook(hooks)
    expect(RuntimeError, "TT_ERR_MISMATCH", future.wait)
    while len(told) < hooks:
        time.sleep(0.01)


def interrupted_meeting():
    """Ctrl-C ends the wait for a rank that doesn't come."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=2,
                                timeout=datetime.timedelta(seconds=float(os.environ["TT_TIMEOUT"])))
    except KeyboardInterrupt:
        say("interrupted")


def long_waits():
    """A batch may be given any time to end in."""
    dist.init_process_group("tutti")
    rank, x = dist.get_rank(), torch.zeros(1)
    store = dist.distributed_c10d._get_default_store()
    if rank:
        store.wait(["waits"])
        dist.send(torch.ones(1), 0)
        return
    work = dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1)])[0]
    threading.Timer(0.2, store.set, ("waits", "1")).start()
    work.wait(datetime.timedelta(days=106751, hours=23, minutes=40))  # nearly all the ns that PyTorch can count
    assert x.item() == 1, x


def interrupted():
    """Ctrl-C ends a wait."""
    dist.init_process_group("tutti")
    dist.barrier()
    if dist.get_rank() == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            dist.barrier()
        except KeyboardInterrupt:
            say(f"interrupted, in time: {time.monotonic() - begun < 0.4 * float(os.environ['TT_TIMEOUT'])}")
        dist.destroy_process_group()
    else:
        try:
            dist.recv(torch.ones(1), 0)  # what never comes
        except tutti_torch.DistBackendError as error:
            say(error)


def forked():
    """A child that inherits a group, and its end by way of the interpreter, don't disturb the job."""
    dist.init_process_group("tutti")
    work = dist.irecv(torch.ones(1), 1 - dist.get_rank(), tag=4)
    future = work.get_future()  # which has a thread
    child = os.fork()
    if not child:
        expect(tutti_torch.DistBackendError, "was forked by rank", lambda: dist.all_reduce(torch.ones(1)))
        sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    rows = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, num_workers=2)
    for row in rows:
        dist.all_reduce(row)
    dist.send(torch.ones(1), 1 - dist.get_rank(), tag=4)
    future.wait()
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    child = os.fork()
    if not child:  # which lets go of the group, whose threads it has not
        dist.destroy_process_group()
        sys.exit(6)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
    dist.barrier()
    dist.destroy_process_group()


def unbegun():
    """A call that can't begin leaves its outputs as they were; one of a type that Tutti lacks counts right where a rank
    sends nothing; sparse tensors of other sizes are refused on all ranks."""
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    # Rank 1 sends one to each, rank 0 nothing.
    sends = torch.full((2 if rank else 0,), 3 + 4j, dtype=torch.complex64)
    taken = torch.zeros(1, dtype=torch.complex64)
    dist.all_to_all_single(taken, sends, [0, 1], [1, 1] if rank else [0, 0])
    assert taken.tolist() == [3 + 4j], taken
    few = torch.sparse_coo_tensor([[1]], torch.ones(1), (4 + rank,))
    expect(ValueError, "the same sizes on all ranks", lambda: dist.all_reduce(few))
    lists = [torch.full((5,), 7.0) for _ in range(2)]
    holes = torch.full((4, 3), 7.0).t()
    expect(tutti_torch.DistBackendError, "differs", lambda: dist.all_reduce(torch.ones(1 + rank)))
    for call in (lambda: dist.all_gather(lists, torch.ones(5)), lambda: dist.all_reduce(holes)):
        expect(tutti_torch.DistBackendError, "", call)
    assert all(bool((x == 7).all()) for x in [*lists, holes]), (lists, holes)
    dist.destroy_process_group()


def busy_threads():
    """Threads come back from their waits as the interpreters end, and are long in getting Python's lock."""
    dist.init_process_group("tutti")
    peer = 1 - dist.get_rank()

    def wait(tag):
        try:
            dist.recv(torch.zeros(4), peer, tag=tag)
        except tutti_torch.DistBackendError:
            while True:
                pass

    for tag in range(40):
        threading.Thread(target=wait, args=(tag,), daemon=True).start()
    dist.barrier()


def logged():
    """The library's log lines come to the logger "tutti", in the main thread."""
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append((record.levelno, record.getMessage(), threading.current_thread() is threading.main_thread()))

    logging.getLogger("tutti").addHandler(Keep())
    logging.getLogger("tutti").setLevel(logging.DEBUG)
    dist.init_process_group("tutti")
    dist.barrier()
    assert lines and all(main for _, _, main in lines), lines
    dist.destroy_process_group()


if __name__ == "__main__":
    NAME = function(sys.argv[1])
    tempfile.tempdir = os.environ.get("TT_TEST_FOLDER")
    globals()[NAME]()
