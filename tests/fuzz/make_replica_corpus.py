"""Writes the seeds of fuzz_replica into corpus/replica: make_replica_corpus.py (see fuzz_replica.c for the form of an
input)."""
import os
import struct

TWO, THREE, NEW, TICK, SETTLE, WRITE, READ, CHANGE = range(8)
COMMAND, BARRIER, CONFIGURATION = 1, 2, 3
SPARE, VOTER = 2, 1
TRUE, FALSE = 1, 2


def u64s(*values):
    return struct.pack("<%dQ" % len(values), *values)


def text(value):
    return u64s(len(value)) + value


def told(who, words):
    return bytes([who]) + struct.pack("<H", len(words)) + words


def add(key=b"/n", client=9, number=1):
    return u64s(client, number) + b"\x04" + text(key) + u64s(1)


def configuration(*servers):
    encoded = b"\x01" + u64s(len(servers))
    for member, id, role in servers:
        encoded += u64s(id) + b"%d/%d\0" % (member, id) + bytes([role])
    return encoded + bytes(-len(encoded) % 8)


ALL = [(0, 1, VOTER), (1, 2, VOTER), (2, 3, VOTER)]
WITHOUT = [ALL[0], ALL[2]]


def append(term, index, before, commit, *entries):
    return bytes([1]) + u64s(term, index, before, commit, len(entries)) + b"".join(
        u64s(at) + bytes([kind]) + text(words) for at, kind, words in entries)


def result(term, rejected, last):
    return bytes([2]) + u64s(term, rejected, last)


def ask(term, id, index, at, early):
    return bytes([3]) + u64s(term, id, index, at) + bytes([0, early])


def vote(term, granted, early):
    return bytes([4]) + u64s(term) + bytes([granted, TRUE if early else FALSE])


def state(**keys):
    table = u64s(len(keys)) + b"".join(
        text(k.encode()) + b"\x01" + text(v.encode()) + u64s(0) for k, v in sorted(keys.items()))
    recent = u64s(1) + text(u64s(9)) + b"\x01" + text(u64s(3) + b"\0" + text(u64s(4))) + u64s(0)
    return table + recent + u64s(0)


def snapshot(term, index, at, conf_index, servers, data):
    return bytes([5]) + u64s(term, index, at, conf_index, len(servers)) + b"".join(
        bytes([member]) + u64s(id) + bytes([role]) for member, id, role in servers) + text(data)


def writes(term, first, n, commit=0, before=None):
    return append(term, first - 1, term if before is None else before, commit,
                  *[(term, COMMAND, add(number=first + i)) for i in range(n)])


waits = bytes([SETTLE, SETTLE])
elected = waits + bytes([TICK]) + told(TWO, vote(2, 1, True)) + told(TWO, vote(2, 1, False))
led = elected + bytes([READ]) + told(TWO, result(2, 0, 2)) + told(THREE, result(2, 0, 2))
first = append(2, 0, 0, 1, (1, CONFIGURATION, configuration(*ALL)), (2, COMMAND, add()))

founder = {
    "follows": told(TWO, writes(2, 2, 3, 3, 1)) + told(TWO, append(2, 4, 2, 4)) + bytes([TICK]),
    "other_leader": told(TWO, writes(2, 2, 3, 1, 1)) + told(THREE, writes(3, 3, 2, 4, 2)),
    "same_again": told(TWO, writes(2, 2, 3, 1, 1)) + told(TWO, append(3, 1, 1, 1, (3, COMMAND, add()))) +
            told(TWO, append(4, 1, 1, 1, (2, COMMAND, add()))),
    "compacted": told(TWO, writes(2, 2, 9, 10, 1)) + told(TWO, append(2, 0, 0, 10, (1, COMMAND, add()))) +
            told(TWO, writes(2, 5, 9, 13)),
    "back": told(TWO, writes(2, 2, 3, 4, 1)) + told(THREE, append(3, 1, 1, 1, (3, COMMAND, add()))),
    "changed": told(TWO, append(2, 1, 1, 1, (2, CONFIGURATION, configuration(*WITHOUT)))) +
            told(THREE, append(3, 1, 1, 1, (3, COMMAND, add()))),
    "changed_late": told(TWO, writes(2, 2, 9, 10, 1)) +
            told(TWO, append(2, 10, 2, 10, (2, CONFIGURATION, configuration(*WITHOUT)))) +
            told(THREE, append(3, 10, 2, 10, (3, COMMAND, add()))),
    "votes": told(TWO, ask(2, 2, 1, 1, 1)) + told(TWO, ask(2, 2, 1, 1, 0)) + told(THREE, ask(2, 3, 1, 1, 0)),
    "snapshot": told(TWO, snapshot(2, 20, 2, 5, ALL, state(a="b"))) + told(TWO, writes(2, 21, 3, 23)),
    "snapshot_back": told(TWO, writes(2, 2, 6, 7, 1)) + told(TWO, snapshot(3, 4, 3, 1, ALL, state(a="b"))),
    "leads": led + bytes([WRITE, WRITE]) + told(TWO, result(2, 0, 4)) + bytes([READ, TICK]) +
            told(THREE, result(2, 2, 1)) + told(THREE, result(2, 0, 5)),
    "leads_no_more": led + bytes([WRITE]) + told(THREE, append(3, 1, 1, 1, (3, COMMAND, add()))),
    "two_lead": led + told(THREE, append(2, 1, 1, 1)),
    "takes_in": led + bytes([CHANGE]) + told(THREE, result(2, 0, 3)) + bytes([CHANGE]) + told(THREE, result(2, 0, 4)) +
            told(NEW, result(2, 4, 0)) + bytes([CHANGE, TICK]) + told(NEW, result(2, 0, 4)) +
            told(THREE, result(2, 0, 5)),
    "silent": led + bytes([WRITE] * 8) + waits + bytes([TICK]) + elected,
    "timeout_now": told(TWO, append(2, 1, 1, 1)) + told(TWO, bytes([6]) + u64s(2, 1, 1)),
}
taken_in = {
    "first": told(TWO, first) + told(TWO, append(2, 2, 2, 2)),
    "snapshot_first": told(TWO, snapshot(2, 20, 2, 5, ALL, state(a="b", n="7"))) + told(TWO, writes(2, 21, 3, 23)),
    "spare": told(TWO, append(2, 0, 0, 1, (1, CONFIGURATION, configuration((0, 1, SPARE), *ALL[1:])))) + bytes([TICK]),
}
lies = {
    "huge_term": told(TWO, append((1 << 64) - 1, 1, 1, 1)),
    "no_configuration": told(TWO, append(2, 1, 1, 1, (2, CONFIGURATION, b"\x01" + u64s(1 << 40)))),
    "no_write": told(TWO, append(2, 1, 1, 2, (2, COMMAND, b"words"))),
    "no_snapshot": told(TWO, snapshot(2, 0, 0, 0, ALL, b"")),
    "other_candidate": told(TWO, ask(2, 3, 1, 1, 0)),
    "vote_ahead": waits + bytes([TICK]) + told(TWO, vote(9, 1, True)),
}
read = {
    "hello": b"\x02\x01" + u64s(5, 0) + text(b"a:1,b:2,c:3"),
    "place": b"a:1,b:2,[::1]:3",
    "five": b"a,b,c,d,e",
    "entry": add(),
    "state": state(a="b", n="7"),
    "state_queue": u64s(1) + text(b"/q") + b"\0" + u64s(2) + text(b"x") + text(b"y") + u64s(0, 0),
    "state_no_answer": u64s(0, 1) + text(u64s(9)) + b"\0" + u64s(0, 0),
}

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "replica")
os.makedirs(folder, exist_ok=True)
inputs = {name: b"\1" + data for name, data in {**founder, **lies}.items()}
inputs.update({name: b"\2" + data for name, data in taken_in.items()})
inputs.update({name: b"\0" + data for name, data in read.items()})
for name, data in inputs.items():
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
