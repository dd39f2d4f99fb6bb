"""Writes corpus/torch_state: states as PyTorch's agents pickle them, and hostile ones. No torch needed."""
import base64
import pathlib
import pickle
import sys
import types
from datetime import datetime, timezone

TO = pathlib.Path(__file__).parent / "corpus" / "torch_state"
MODULE = types.ModuleType("torch.distributed.elastic.rendezvous.dynamic_rendezvous")


def known(cls):
    """The class is pickled under the name that PyTorch's has."""
    cls.__module__, cls.__qualname__ = MODULE.__name__, cls.__name__
    setattr(MODULE, cls.__name__, cls)
    return cls


@known
class _NodeDesc:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __hash__(self):
        return hash(self.__dict__.get("pid"))

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


@known
class _RendezvousState:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


for depth in range(1, 5):  # pickle looks the classes up
    sys.modules[".".join(MODULE.__name__.split(".")[:depth])] = types.ModuleType("package")
sys.modules[MODULE.__name__] = MODULE
NOW = datetime(2026, 11, 23, 7, 50, 21, 31381)


def state(name, times, **more):
    nodes = [_NodeDesc(**{name: f"h{i}", "pid": 70000 * i, "local_id": 0}) for i in range(4)]
    return _RendezvousState(**{
        "round": 3, "complete": False, "deadline": times, "closed": False, "participants": {nodes[0]: 0, nodes[1]: 1},
        "wait_list": {nodes[2]}, **({"redundancy_list": {nodes[3]}} if name == "addr" else {}),
        "last_heartbeats": {node: times for node in nodes}, **more})


def pickled(value, protocol=4):
    return b"\0" + pickle.dumps(value, protocol=protocol)


NEW, OLD = state("addr", NOW.replace(tzinfo=timezone.utc)), state("fqdn", NOW)
EMPTY = dict(participants={}, wait_list=set(), last_heartbeats={}, deadline=None)
GOOD = pickled(NEW)
FILES = {
    "new": GOOD,
    "old": pickled(OLD),
    "protocol-5": pickled(NEW, 5),
    "protocol-2": pickled(NEW, 2),
    "text": b"\1" + base64.b64encode(GOOD[1:]),
    "text-old": b"\1" + base64.b64encode(pickled(OLD)[1:]),
    "text-padding": b"\1" + base64.b64encode(GOOD[1:])[:-3],
    "text-none": b"\1Y2FuaW1hZGFt",
    "empty": pickled(state("addr", None, **EMPTY)),
    "complete": pickled(state("addr", NOW.replace(tzinfo=timezone.utc), complete=True, deadline=None)),
    "closed": pickled(state("fqdn", NOW, closed=True)),
    "mixed-times": pickled(state("addr", NOW, deadline=NOW.replace(tzinfo=timezone.utc))),
    "unknown": pickled(state("addr", None, something=1, **EMPTY)),
    "missing": pickled(_RendezvousState(round=1)),
    "large-int": pickled(state("addr", None, **{**EMPTY, "round": 1 << 70})),
    "self": b"\0\x80\x04}\x94(h\0h\0u.",
    "deep": b"\0\x80\x04" + b")" + b"\x85" * 200 + b".",
    "marks": b"\0\x80\x04" + b"(" * 100 + b"}u.",
    "short": GOOD[:80],
    "code": b"\0\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
    "node-is-state": pickled(_NodeDesc(addr="a", pid=1, local_id=2)),
    "month-0": b"\0\x80\x04\x8c\x08datetime\x8c\x08datetime\x93C\x0a\x07\xea\0\x01\0\0\0\0\0\0\x85R.",
}

if __name__ == "__main__":
    TO.mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (TO / name).write_bytes(data)
