"""Every call of torch.distributed with the back end tutti, over shared memory and over TCP, in one world: results are
those of their definitions, and gloo's where gloo has the call for the element type. Started by `tutti run`.

A call is a class: begin() makes the call on a group, want() gives what its tensors must hold then."""
import os
import random
import threading
import warnings

import torch
import torch.distributed as dist
import torch_cases as cases
import tutti_torch  # noqa: F401: the back end

IN_FLIGHT = 12  # calls that are begun before any is waited for


class Job:
    """This rank, and the groups whose results are compared."""

    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.gloo = dist.group.WORLD
        self.tutti = {"shared memory": dist.new_group(backend="tutti")}
        os.environ["TT_TRANSPORT"] = "tcp"
        self.tutti["TCP"] = dist.new_group(backend="tutti")
        del os.environ["TT_TRANSPORT"]


def differs(ours, want, exact, who):
    """Whether a result is another one than `want`: in any bit of what is moved, and of integers; else by more than
    1e-6, or of halves by more than one rounding. Gloo rounds sums of halves at each step."""
    if ours.shape != want.shape or ours.dtype != want.dtype:
        return True
    if exact:
        return not cases.same_bits(ours, want)
    if ours.dtype not in cases.HALVES:
        return not torch.allclose(ours, want, rtol=1e-6, atol=1e-6)
    step = torch.finfo(ours.dtype).eps
    return not torch.allclose(ours.double(), want.double(), rtol=step, atol=10 * step if who == "gloo" else 1e-7)


def check(case, ours, theirs, where):
    for who, all_of_it in theirs.items():
        if len(ours) != len(all_of_it):
            raise AssertionError(f"{case} {where}: {len(ours)} tensors, {who} has {len(all_of_it)}")
        for i, (a, b) in enumerate(zip(ours, all_of_it)):
            if differs(a, b, case.exact, who):
                raise AssertionError(f"{case} {where}: tensor {i} is {a} where {who} has {b}")


class Batch:
    """Calls of one group that are under way together, and are waited for in an order that differs by rank."""

    def __init__(self, job, group, where):
        self.job, self.group, self.where = job, group, where
        self.begun = []

    def add(self, case, layout, theirs):
        begun = case.begin(self.job, self.group, layout.put, True)
        self.begun.append((case, f"over {self.where}, {layout}", *begun, theirs))
        if len(self.begun) == IN_FLIGHT:
            self.end()

    def end(self):
        random.Random(self.job.rank).shuffle(self.begun)
        for case, where, work, ours, theirs in self.begun:
            if work is not None:
                work.wait()
            check(case, ours, theirs, where)
        self.begun = []


def theirs_of(job, case):
    """What the call must give, by who says so."""
    found = {"its definition": case.want(job)}
    if case.in_gloo():
        _, found["gloo"] = case.begin(job, job.gloo, cases.plain, False)
    return found


def one_after_the_other(job):
    """All cases: on contiguous tensors at once, then all layouts asynchronously."""
    batches = {name: Batch(job, group, name) for name, group in job.tutti.items()}
    for number, case in enumerate(cases.every_case()):
        theirs = theirs_of(job, case)
        for name, group in job.tutti.items():
            _, ours = case.begin(job, group, cases.plain, False)
            check(case, ours, theirs, f"over {name}")
            for layout in cases.LAYOUTS if case.all_layouts else cases.LAYOUTS[number % 4:][:1]:
                if layout.takes(case):
                    batches[name].add(case, layout, theirs)
    for batch in batches.values():
        batch.end()


def several_threads(job):
    """Threads with a group each, and with messages of their own tags in a group that all use."""
    shared, errors = job.tutti["shared memory"], []
    groups = [dist.new_group(backend="tutti") for _ in range(3)]

    def use(number, group):
        try:
            for turn in range(10):
                x = torch.full((100 * number + 7,), float(turn + job.rank))
                dist.all_reduce(x, group=group)
                assert torch.equal(x, torch.full_like(x, sum(turn + r for r in range(job.world)))), (number, turn)
                y, works = torch.zeros(50), []
                works.append(dist.isend(torch.full((50,), float(number * 100 + turn)), (job.rank + 1) % job.world,
                                        group=shared, tag=number)) if job.world > 1 else None
                if job.world > 1:
                    works.append(dist.irecv(y, (job.rank - 1) % job.world, group=shared, tag=number))
                    for work in works:
                        work.wait()
                    assert torch.equal(y, torch.full((50,), float(number * 100 + turn))), (number, turn)
        except Exception as error:  # told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=use, args=one) for one in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def waited_for_elsewhere(job):
    """One thread makes calls, others wait for them; futures run what follows."""
    group = job.tutti["shared memory"]
    x = [torch.full((5,), float(i + job.rank)) for i in range(24)]
    works = [dist.all_reduce(y, group=group, async_op=True) for y in x]
    doubled = [work.get_future().then(lambda f: f.value()[0] * 2) for work in works[::3]]
    threads = [threading.Thread(target=work.wait) for work in works[1::3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for work in reversed(works[2::3]):
        work.wait()
    totals = [torch.full((5,), float(sum(i + r for r in range(job.world)))) for i in range(24)]
    for future, total in zip(doubled, totals[::3]):
        assert torch.equal(future.wait(), 2 * total)
    for y, total in zip(x, totals):
        assert torch.equal(y, total), (y, total)


def main():
    warnings.simplefilter("ignore")  # names of calls that PyTorch is about to give up
    torch.set_num_threads(1)
    job = Job()
    one_after_the_other(job)
    several_threads(job)
    waited_for_elsewhere(job)
    for name, group in job.tutti.items():
        for call in cases.WHOLE:
            call(job, group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
