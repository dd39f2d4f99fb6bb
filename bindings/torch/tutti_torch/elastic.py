"""Training that survives the loss of ranks, in the processes that are left, and takes in new ones:

    import tutti_torch.elastic as elastic

    elastic.init()                                  # in place of dist.init_process_group("tutti")
    net = Net()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    state = elastic.State(net=net, sgd=sgd, step=0)

    @elastic.run
    def train(state):                               # again from here after each change of the members
        ddp = DistributedDataParallel(state.net)
        while state.step < STEPS:
            ...
            state.sgd.step()
            state.step += 1
            state.commit()

    train(state)

Members change when a rank is lost, or when others want to join. Then all take the newest commit that one of them has,
from its memory. Under `tutti run` (--max-restarts, --nnodes=MIN:MAX) the launcher replaces lost ranks and numbers the
members. Under any other launcher that lets the others live, the ranks agree through the job's store, and a process that
is started with the environment of a lost rank joins. The names are those of Horovod's elastic state. PyTorch 2.13 or
newer.

Between init() and the first call of the function that run() makes, nothing may wait for other ranks: those of a job
that is under way don't wait there."""
import copy
import datetime
import functools
import json
import os
import random
import re
import time

import torch
import torch.distributed as dist

from . import _C, DistBackendError

__all__ = ["MembersChange", "State", "init", "members", "run"]

_POLL_S, _LOOK_S = 0.005, 0.05


class MembersChange(Exception):
    """Others want to join: raised by State.commit() on all ranks, and handled by run()."""


# ---- who the members are


class _Place:
    """This process among the members of a round."""

    def __init__(self, round_number, rank, world, reason=""):
        self.round, self.rank, self.world, self.reason = round_number, rank, world, reason


class _Told:
    """Rounds that `tutti run` tells."""

    def __init__(self, job, rounds):
        self.job, self.rounds = job, rounds
        self.place = _Place(rounds.first, job.rank, job.world)

    def _join(self, host, port):
        store = dist.TCPStore(host, port, None, False, self.job.timeout, wait_for_workers=False)
        place = self.place
        self.rounds.join(self.job.backend, dist.PrefixStore(f"tutti_torch/round/{place.round}", store), place.rank,
                         place.world, self.job.timeout)

    def begin(self):
        try:
            self._join(*self.job.address)
        except DistBackendError as error:
            self.next(str(error))

    def next(self, because):
        while True:
            told = self.rounds.next(because, self.job.timeout)
            self.place = _Place(told.round, told.rank, told.world, told.reason)
            try:
                return self._join(told.host, told.port)
            except DistBackendError as error:
                because = str(error)

    def wanted(self):
        return self.rounds.wanted()


class _Agreed:
    """Rounds on which the ranks agree themselves, through the job's store.

    Who wants a round posts its handle. A member of the round before closes it when all members are there that nobody
    blames: one list is written, once, and those in it meet by reconfigure(). If that fails, they want the next round.
    A process that is not in the last list, because it joins or was taken for lost, is no member, and closes nothing."""
    GRACE_S = 3.0  # for members that nobody blames: they may be in the midst of a step

    def __init__(self, job):
        self.job = job
        self.store = dist.PrefixStore("tutti_torch/elastic", job.new_store())
        self.place = _Place(-1, job.rank, job.world)  # in the last list that this process is in
        self.next_look = 0.0

    def _get(self, key):
        return self.store.get(key).decode()

    def _has(self, key):
        return self.store.check([key])

    def begin(self):
        """The ranks that the launcher starts are those of round 0; a process that comes later joins the next one."""
        if self._has("0/closed") or self.store.add(f"began/{self.job.rank}", 1) > 1:
            self.next("")
            return
        handles = self._first_handles()
        self.store.compare_set("0/closed", "", json.dumps([{"handle": handle} for handle in handles]))
        self.place = _Place(0, self.job.rank, self.job.world)
        self._meet(handles, self.job.timeout)

    def _first_handles(self):
        ranks, end = range(self.job.world), time.monotonic() + self.job.timeout.total_seconds()
        self.store.set(f"first/{self.job.rank}", dist._get_reconfigure_handle())
        while True:
            missing = [r for r in ranks if not self._has(f"first/{r}")]
            if not missing:
                return [self._get(f"first/{r}") for r in ranks]
            if time.monotonic() > end:
                raise DistBackendError(f"TT_ERR_TIMEOUT: ranks {', '.join(map(str, missing))} did not come to "
                                       f"elastic.init() within {self.job.timeout.total_seconds():g} s")
            time.sleep(_POLL_S)

    def _meet(self, handles, timeout):
        dist._reconfigure(self.place.round, handles, timeout=timeout).wait()
        if self.place.rank == 0:
            self.store.set("round", str(self.place.round))

    def _last_closed(self):
        """The number of the last round that is closed; -1: none is."""
        number = self.place.round
        if self._has("round"):
            number = max(number, int(self._get("round")))
        while self._has(f"{number + 1}/closed"):
            number += 1
        return number

    def next(self, because):
        end = time.monotonic() + self.job.timeout.total_seconds()
        lost = _blamed(because)
        while True:
            chosen = self._agree(lost, end)
            if chosen is None:
                continue
            self.place.reason = because
            try:
                left = datetime.timedelta(seconds=max(end - time.monotonic(), 1))
                return self._meet([post["handle"] for post in chosen], left)
            except DistBackendError as error:  # one of them was lost meanwhile
                because, lost = str(error), _blamed(str(error))
                if time.monotonic() > end:
                    raise

    def _agree(self, lost, end):
        """The members of the next round, in the order of their ranks; None: it has been closed without this process."""
        last = self._last_closed()
        is_member, number = last == self.place.round and last >= 0, last + 1
        own = dist._get_reconfigure_handle()
        post = {"handle": own, "rank": self.place.rank if is_member else -1, "lost": sorted(lost) if is_member else []}
        self.store.set(f"{number}/post/{self.store.add(f'{number}/count', 1)}", json.dumps(post))
        self.store.set(f"{number}/wanted", "")
        begun = time.monotonic()
        while not self._has(f"{number}/closed"):
            if time.monotonic() > end:
                raise DistBackendError(f"TT_ERR_TIMEOUT: the job's members began no round {number} within "
                                       f"{self.job.timeout.total_seconds():g} s")
            posts = self._posts(number)
            if is_member and self._is_complete(posts, time.monotonic() - begun > self.GRACE_S):
                self.store.compare_set(f"{number}/closed", "", json.dumps(sorted(posts, key=_order)))
            else:
                time.sleep(_POLL_S)
        chosen = json.loads(self._get(f"{number}/closed"))
        handles = [post["handle"] for post in chosen]
        if own not in handles:
            return None
        self.place = _Place(number, handles.index(own), len(handles), self.place.reason)
        return chosen

    def _posts(self, number):
        count = self.store.add(f"{number}/count", 0)
        keys = [f"{number}/post/{place}" for place in range(1, count + 1)]
        return [json.loads(self._get(key)) for key in keys if self._has(key)]

    def _is_complete(self, posts, patient):
        """Are all members there but those that one of them blames? After a while nobody else is waited for."""
        here = {post["rank"] for post in posts}
        lost = {rank for post in posts for rank in post["lost"]}
        return patient or not set(range(self.place.world)) - lost - here

    def wanted(self):
        """Asked of the store now and then, by one rank: the others learn it in a collective."""
        if self.place.rank or time.monotonic() < self.next_look:
            return False
        self.next_look = time.monotonic() + _LOOK_S
        return self._has(f"{self.place.round + 1}/wanted")


def _order(post):
    """Members by their ranks, then those that join."""
    return (post["rank"] < 0, post["rank"], post["handle"])


def _blamed(text):
    """The ranks of the group that an error names as lost."""
    found = re.search(r"TT_ERR_PEER: (?:.*? and left )?ranks? (\d+)(?:-(\d+))?", text)
    return set(range(int(found[1]), int(found[2] or found[1]) + 1)) if found else set()


# ---- the job


class _Job:
    """What init() found out and made."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        rounds = _C.Rounds(self.rank, self.world)
        self.group = self.backend = None
        dist.init_process_group("tutti", timeout=timeout, enable_reconfigure=True)
        self.group = dist.distributed_c10d._get_default_group()
        self.backend = self.group._get_backend(torch.device("cpu"))
        self.rounds = _Told(self, rounds) if rounds.are_told else _Agreed(self)
        self.rounds.begin()
        self.renumber()

    def new_store(self):
        return dist.TCPStore(*self.address, None, False, self.timeout, wait_for_workers=False)

    def next(self, because):
        self.rounds.next(because)
        self.renumber()

    def renumber(self):
        """What torch.distributed has noted of the members of the default group."""
        dist.distributed_c10d._world.pg_group_ranks[self.group] = {r: r for r in range(self.rounds.place.world)}


_job = None


def init(timeout=datetime.timedelta(minutes=5)):
    """Join the job, in place of torch.distributed.init_process_group("tutti"). `timeout`: of collectives and of
    meetings. RuntimeError: this PyTorch has no reconfigure(),
    or there is no launcher."""
    global _job
    if not hasattr(dist, "_reconfigure"):
        raise RuntimeError(f"tutti_torch.elastic needs PyTorch 2.13 or newer, and this is {torch.__version__}")
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RuntimeError(f"elastic.init: expected the environment of a launcher; {', '.join(missing)} is missing. "
                           "Start the program by `tutti run --max-restarts=N` (docs/pytorch.md)")
    _job = _Job(timeout)


def members():
    """(round, reason): how often the members have changed, and what the launcher or an error says of the last time."""
    place = _joined_job().rounds.place
    return place.round, place.reason


def _joined_job():
    if _job is None or not dist.is_initialized():
        raise RuntimeError("elastic: expected elastic.init() before")
    return _job


# ---- the state


def _copied(value):
    """A copy that later steps don't change: tensors within dicts and lists, and plain values."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return type(value)((key, _copied(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(each) for each in value)
    return copy.deepcopy(value)


class State:
    """What a program goes on from: objects with state_dict() and load_state_dict(), as modules, optimizers, schedulers,
    and plain values. Each is an attribute of its name. The random numbers of torch and of Python's random are part of
    it, and those of a rank stay its own."""

    def __init__(self, **parts):
        self.__dict__["_names"] = list(parts)
        self.__dict__["_kept"] = None  # of the last commit
        self.__dict__["_commits"], self.__dict__["_line"] = -1, -1
        for name, part in parts.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise ValueError(f"elastic.State: expected names of the program's own, got {name!r}")
            self.__dict__[name] = part

    def __setattr__(self, name, value):
        if name not in self._names:
            raise AttributeError(f"elastic.State has no {name!r}: name it in State(...)")
        self.__dict__[name] = value

    @property
    def commits(self):
        """How many steps the job has committed."""
        return max(self._commits, 0)

    def _save(self):
        parts = {}
        for name in self._names:
            part = self.__dict__[name]
            parts[name] = _copied(part.state_dict() if hasattr(part, "state_dict") else part)
        self.__dict__["_kept"] = {"parts": parts, "random": (torch.get_rng_state(), random.getstate())}

    def _load(self):
        for name, kept in self._kept["parts"].items():
            part = self.__dict__[name]
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(_copied(kept))
            else:
                self.__dict__[name] = _copied(kept)
        torch.set_rng_state(self._kept["random"][0])
        random.setstate(self._kept["random"][1])

    def commit(self):
        """Keep a copy of the state in this process's memory, after a step that all ranks have made. Collective.
        MembersChange, on all ranks: others want to join."""
        job = _joined_job()
        if self._commits < 0:
            raise RuntimeError("State.commit: expected to be called within the function that elastic.run() made")
        self._save()
        self.__dict__["_commits"] += 1
        wanted = torch.tensor([int(job.rounds.wanted())])
        dist.all_reduce(wanted, op=dist.ReduceOp.MAX)
        if wanted.item():
            raise MembersChange("other ranks want to join")

    def _sync(self):
        """Give all members the newest commit that one of them has; when a job begins, rank 0's state."""
        if self._kept is None:
            self._save()
        mine = torch.tensor([self._line, self._commits])
        all_of_them = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of_them, mine)
        held = [tuple(each.tolist()) for each in all_of_them]
        best = max(held)
        root = held.index(best)
        if best[1] < 0 or any(each != best for each in held):
            own = self._kept["random"]
            parts = [self._kept["parts"] if dist.get_rank() == root else None]
            dist.broadcast_object_list(parts, root)
            self.__dict__["_kept"] = {"parts": parts[0], "random": own}
        self._load()
        self.__dict__["_commits"], self.__dict__["_line"] = max(best[1], 0), _joined_job().rounds.place.round


def run(function):
    """Make a function of `function(state, ...)` that is called again, from the newest commit, after each change of the
    members. Errors that no change mends are raised as usual."""

    @functools.wraps(function)
    def elastic_function(state, *args, **options):
        job = _joined_job()
        if not isinstance(state, State):
            raise TypeError(f"elastic.run: expected an elastic.State as the first argument, got {type(state).__name__}")
        while True:
            try:
                state._sync()
                return function(state, *args, **options)
            except MembersChange as change:
                because = str(change)
            except (DistBackendError, RuntimeError) as error:
                because = _lost(error)
                if because is None:
                    raise
            job.next(because)

    return elastic_function


def _lost(error):
    """The text of an error that another membership mends; None: it is one of this rank alone."""
    while error is not None:
        found = re.search(r"TT_ERR_(PEER|ABORTED|TIMEOUT|NET): .*", str(error), re.DOTALL)
        if found:
            return found[0]
        error = error.__cause__ or error.__context__
    return None
