"""What a program hears of its calls, with the back end tutti: hooks before and after them, of their completion and of a
group that breaks, times. Argument: the name of a function below, or several cases (one_job.py). Started by `tutti run`
on 2 ranks. Rank 0 prints "CASE: n checks", or "CASE lacks all: ..." where this PyTorch has no such thing."""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch_checks
import tutti_torch  # noqa: F401
from one_job import function
from torch_checks import expect

RANK = int(os.environ["RANK"])
CPU = torch.device("cpu")


def default_group():
    return dist.distributed_c10d._get_default_group()


def until(holds, what, seconds=20):
    """Nobody waits for the calls themselves."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    expect(holds(), what)


def lacks(name):
    if hasattr(dist.ProcessGroup, name):
        return False
    print(f"{CASE} lacks all: this PyTorch has no {name}()")
    return True


def durations():
    if lacks("_enable_collectives_timing") or not hasattr(dist.Work, "_get_duration"):
        return
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    work.wait()
    try:
        work._get_duration()
        raise AssertionError("a time that nobody took")
    except ValueError as error:
        expect("_enable_collectives_timing() before the call" in str(error), str(error))
    group._enable_collectives_timing()
    dist.barrier()
    if RANK == 1:
        time.sleep(0.3)
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    if RANK == 0:
        try:
            work._get_duration()
            raise AssertionError("the time of a call that has not ended")
        except ValueError as error:
            expect("wait() for it first" in str(error), str(error))
        time.sleep(1)  # its end is noted when it comes, not when somebody asks
    work.wait()
    low, high = (100, 900) if RANK == 0 else (0, 250)
    expect(low < work._get_duration() < high, f"{work._get_duration()} ms")


def on_completion():
    """Each call that succeeds is told once, whether somebody waits for it or not."""
    if lacks("_register_on_completion_hook"):
        return
    group, told = dist.new_group(), []
    group._register_on_completion_hook(told.append)
    expect(group._has_hooks(), "there is a hook")
    try:
        group._register_on_completion_hook(told.append)
        raise AssertionError("two hooks")
    except ValueError as error:
        expect("can have one" in str(error), str(error))
    works = []
    for n in range(10):
        works.append(dist.all_reduce(torch.ones(1 << n), group=group, async_op=True))
        works.append(dist.broadcast(torch.ones(3), 0, group=group, async_op=True))
    for work in works[::3]:
        work.wait()
    dist.send(torch.ones(2), 1, group=group) if RANK == 0 else dist.recv(torch.zeros(2), 0, group=group)
    group._wait_for_pending_works()
    kinds = [info.op_type for info in told]
    names = torch._C._distributed_c10d.OpType
    message = names.SEND if RANK == 0 else names.RECV
    expect(sorted(map(int, kinds)) == sorted(map(int, [names.ALLREDUCE, names.BROADCAST] * 10 + [message])),
           f"kinds {kinds}")
    expect(sorted(info.seq for info in told)[:20] == list(range(1, 21)), f"numbers {[info.seq for info in told]}")
    expect(all(info.time_finished >= info.time_started for info in told), "times")
    expect(all(info.active_duration == info.time_finished - info.time_started or
               abs(info.active_duration - (info.time_finished - info.time_started)) < datetime.timedelta(seconds=0.01)
               for info in told), "durations")
    del works
    before = len(told)
    dist.all_reduce(torch.ones(1), group=group, async_op=True)  # nobody keeps its work
    until(lambda: len(told) == before + 1, "the one that nobody kept")


def failures_are_no_completions():
    if lacks("_register_on_completion_hook"):
        return
    group, told = dist.new_group(timeout=datetime.timedelta(milliseconds=200)), []
    group._register_on_completion_hook(told.append)
    dist.all_reduce(torch.ones(1), group=group)
    group._wait_for_pending_works()
    expect(len(told) == 1, "the one that succeeded")
    if RANK == 0:
        try:
            dist.all_reduce(torch.ones(1), group=group)
            raise AssertionError("no timeout")
        except RuntimeError as error:
            expect("TT_ERR_TIMEOUT" in str(error), str(error))
    dist.barrier()
    expect(len(told) == 1, "not the one that failed")


def hooks_around():
    """PyTorch calls these itself."""
    if lacks("register_pre_hook"):
        return
    group, told = dist.new_group(), []
    group.register_pre_hook(3, lambda call: told.append(("before", call.name, call.op_id)))
    group.register_post_hook(4, lambda call: told.append(("after", call.name, call.op_id)))
    dist.all_reduce(torch.ones(2), group=group)
    dist.barrier(group=group)
    expect([(when, name.name) for when, name, _ in told] ==
           [(when, name) for name in ("ALLREDUCE", "BARRIER") for when in ("before", "after")], f"told {told}")
    expect(told[0][2] == told[1][2] != told[2][2], "the numbers belong together")
    group.unregister_pre_hook(3)
    group.unregister_post_hook(4)
    dist.all_reduce(torch.ones(2), group=group)
    expect(len(told) == 4, "no hooks are left")


def recorder():
    """PyTorch's own recorder of calls, which completion hooks serve, if somebody wants it in place of ours."""
    if lacks("supports_completion_hooks"):
        return
    dist.distributed_c10d._FR_SELF_RECORDING_BACKENDS.discard("tutti")
    group = dist.new_group(group_desc="recorded")
    expect(group.supports_completion_hooks, "completion hooks")
    for n in range(5):
        dist.all_reduce(torch.ones(1 << n), group=group, async_op=True)
    dist.all_gather([torch.zeros(2) for _ in range(2)], torch.ones(2), group=group)

    def states():
        dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend="tutti"))
        return [(each["profiling_name"], each["state"]) for each in dump.get("entries", [])
                if each["process_group"][1] == "recorded"]

    until(lambda: len(states()) == 6 and {state for _, state in states()} == {"completed"}, f"it has {states()}")
    expect([name.split(":")[1] for name, _ in states()] == ["all_reduce"] * 5 + ["all_gather"], f"it has {states()}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    CASE = function(sys.argv[1])
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=60))
    globals()[CASE]()
    if RANK == 0:
        print(f"{CASE}: {torch_checks.count} checks", flush=True)
    dist.destroy_process_group()
