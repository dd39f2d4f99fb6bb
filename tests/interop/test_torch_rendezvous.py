"""Our agent and PyTorch's rendezvous handler, of 1.13 or current, in one rendezvous: the state in the store is read and
written by both, rounds become complete in all mixtures, nodes come late, leave and die."""

import base64
import json
import os
import pickle
import random
import select
import subprocess
import sys
import time
import unittest
from datetime import datetime, timedelta, timezone

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import forked  # noqa: E402

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous as theirs
except ImportError as error:
    print(f"skipped: PyTorch can't be imported ({error}); ./dev setup --interop installs it")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
STATE, NODE = (os.path.join(os.environ["TT_PROGRAMS"], name) for name in ("torch_state", "torch_node"))
PEER = os.path.join(HERE, "torch_peer.py")
PATIENCE = 0.3 * float(os.environ["TT_TIMEOUT"])
OLD = torch.__version__.startswith("1.")
EPOCH = datetime(1970, 1, 1)
LAST_CALL = 5  # seconds: time to come for those who look once a second


def now():
    return datetime.utcnow() if OLD else datetime.now(timezone.utc)


def micros(moment):
    return (moment.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


class Node:
    """A process that takes orders and says what happened, in lines of JSON."""

    def __init__(self, *command):
        env = dict(os.environ, PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR")
        start = forked.popen if command == (PEER,) else subprocess.Popen
        self.process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.pending = b""

    def order(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def next(self):
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not more:
                raise AssertionError(f"nothing came from {self.process.args}, after {self.pending}")
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def expect(self, kind):
        """The next event but for notes about waiting."""
        said = {"event": "waits"}
        while said["event"] == "waits":
            said = self.next()
        if said["event"] != kind:
            raise AssertionError(f"expected {kind}, got {said} from {self.process.args}")
        return said

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class States(unittest.TestCase):
    """What PyTorch pickles is what we read, and what we write is what PyTorch unpickles."""

    def recode(self, text):
        return subprocess.run([STATE], input=text, capture_output=True, timeout=PATIENCE)

    def show(self, state):
        """As torch_state does."""
        deadline = micros(state.deadline) if state.deadline else -1
        times = {m.tzinfo is not None for m in [state.deadline, *state.last_heartbeats.values()] if m}
        lines = [f"round {state.round} {'complete' if state.complete else 'open'} "
                 f"{'closed' if state.closed else '-'} deadline {deadline} times {1 + times.pop() if times else 0}"]
        redundant = getattr(state, "redundancy_list", set())
        for node in {*state.participants, *state.wait_list, *redundant, *state.last_heartbeats}:
            lines.append(f"{node.fqdn if OLD else node.addr} {node.pid} {node.local_id} "
                         f"{'p' * (node in state.participants)}{'w' * (node in state.wait_list)}"
                         f"{'r' * (node in redundant)} rank {state.participants.get(node, 0)} beat "
                         f"{micros(state.last_heartbeats[node]) if node in state.last_heartbeats else -1}")
        return lines[:1] + sorted(lines[1:])

    def check(self, state, protocol=None):
        said = self.recode(base64.b64encode(pickle.dumps(state, protocol=protocol)))
        self.assertEqual(said.returncode, 0, said.stderr)
        *lines, written = said.stdout.decode().splitlines()
        self.assertEqual(lines[:1] + sorted(lines[1:]), self.show(state))
        again = pickle.loads(base64.b64decode(written, validate=True))
        self.assertEqual(self.show(again), self.show(state))
        for name in ("round", "complete", "deadline", "closed", "participants", "wait_list", "last_heartbeats"):
            self.assertEqual(getattr(again, name), getattr(state, name), name)
        again.participants = {}
        self.assertEqual(self.recode(base64.b64encode(pickle.dumps(again))).returncode, 0)  # with both names

    def test_empty(self):
        self.check(theirs._RendezvousState())
        said = self.recode(b"Y2FuaW1hZGFt")
        self.assertTrue(said.stdout.startswith(b"round 0 open - deadline -1 times 0\n"), said.stdout)

    def test_nodes(self):
        state = theirs._RendezvousState()
        nodes = [theirs._NodeDesc(name, pid, i) for i, (name, pid) in
                 enumerate([("a", 1), ("node-1.example", 255), ("ä" * 100, 256), ("b", 65536), ("c", 2**31 + 5)])]
        state.round, state.complete, state.closed, state.deadline = 70000, True, True, now()
        state.participants = {nodes[0]: 1, nodes[1]: 300, nodes[2]: 0}
        state.wait_list = {nodes[3]}
        if not OLD:
            state.redundancy_list = {nodes[4], nodes[0]}
        state.last_heartbeats = {node: now() for node in nodes}
        for protocol in (None, 4, 5):
            self.check(state, protocol)

    def test_times(self):
        zone = None if OLD else timezone.utc
        for moment in (datetime(1970, 1, 1, tzinfo=zone), datetime(2000, 2, 29, 23, 59, 59, 999999, tzinfo=zone),
                       datetime(2100, 3, 1, 0, 0, 0, 1, tzinfo=zone), datetime(2024, 12, 31, tzinfo=zone), now()):
            state = theirs._RendezvousState()
            state.deadline = moment
            self.check(state)

    def test_refused(self):
        class Reduced:
            def __reduce__(self):
                return os.system, ("true",)

        good = pickle.dumps(theirs._RendezvousState())
        other = theirs._RendezvousState()
        other.something = 1
        bare = theirs._RendezvousState()
        del bare.wait_list
        for text, says in ((b"?", b"base64"), (base64.b64encode(good)[:-4], b"cut short"),
                           (base64.b64encode(pickle.dumps(Reduced())), b"posix.system"),
                           (base64.b64encode(pickle.dumps(other)), b"something"),
                           (base64.b64encode(pickle.dumps(bare)), b"missing"),
                           (base64.b64encode(pickle.dumps(7)), b"expected a _RendezvousState"),
                           (base64.b64encode(pickle.dumps(theirs._RendezvousState(), protocol=2)), b"protocol")):
            said = self.recode(text)
            self.assertEqual(said.returncode, 1, text)
            self.assertIn(says, said.stderr)


class Steps(unittest.TestCase):
    """From a random state the next step of ours is PyTorch's: what is to be done, and the state after it."""

    OPERATIONS = {"join": theirs._RendezvousJoinOp, "leave": theirs._RendezvousExitOp,
                  "close": theirs._RendezvousCloseOp, "beat": theirs._RendezvousKeepAliveOp}
    VERDICTS = {"FINISH": "finished", "SYNC": "wait", "ERROR_CLOSED": "closed", "ERROR_TIMEOUT": "late"}

    def setUp(self):
        self.process = subprocess.Popen([STATE, "steps"] + ["naive"] * OLD, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.process.communicate)
        self.seed = int(os.environ.get("TT_STORM_SEED", random.randrange(1 << 30)))
        self.random = random.Random(self.seed)

    def draw_state(self, nodes, moment):
        draw, state = self.random, theirs._RendezvousState()
        state.round, state.closed, state.complete = draw.randrange(5), draw.random() < 0.1, draw.random() < 0.5
        taking_part = draw.sample(nodes, draw.randrange(len(nodes) + 1))
        state.participants = {node: rank if state.complete else 0 for rank, node in enumerate(sorted(taking_part))}
        others = [node for node in nodes if node not in state.participants]
        state.wait_list = set(draw.sample(others, draw.randrange(len(others) + 1)))
        if not OLD and draw.random() < 0.5:
            others = [node for node in others if node not in state.wait_list]
            state.redundancy_list = set(draw.sample(others, draw.randrange(len(others) + 1)))
        known = {*state.participants, *state.wait_list, *getattr(state, "redundancy_list", ())}
        for node in known:
            state.last_heartbeats[node] = moment - timedelta(microseconds=draw.randrange(24_000_000))
        if not state.complete and draw.random() < 0.8:
            state.deadline = moment + timedelta(microseconds=draw.randrange(-5_000_000, 5_000_000))
        return state

    def their_step(self, operation, state, node, settings, moment, late_ms):
        """(verdict, does the clock begin anew), by their code, with a clock that stands."""
        class Clock(datetime):
            utcnow = staticmethod(lambda: moment)
            now = staticmethod(lambda zone=None: moment)

        class Monotonic:
            monotonic = staticmethod(lambda: 1000 + late_ms / 1000)

        class Holder:
            _state, _settings = state, settings

        kept = theirs.datetime, theirs.time
        theirs.datetime, theirs.time = Clock, Monotonic
        try:
            if operation == "sanitize":
                theirs._BackendRendezvousStateHolder._sanitize(Holder)
                return "finished", False
            executor = theirs._DistributedRendezvousOpExecutor(node, None, settings)
            executor._state = state
            executor._record = lambda *args, **more: None
            try:
                action = self.OPERATIONS[operation]()(theirs._RendezvousContext(node, state, settings), 1000).name
            except getattr(theirs, "RendezvousGracefulExitError", ()):
                return "unneeded", False
            if action in self.VERDICTS:
                return self.VERDICTS[action], False
            getattr(executor, "_" + action.lower())()
            return "write", action == "REMOVE_FROM_REDUNDANCY_LIST"
        finally:
            theirs.datetime, theirs.time = kept

    def our_step(self, operation, state, node, settings, moment, late_ms):
        text = base64.b64encode(pickle.dumps(state)).decode()
        seconds = settings.timeout.last_call, settings.keep_alive_interval
        last_call, keep_alive = (int(s.total_seconds() * 1000) for s in seconds)
        self.process.stdin.write(f"{operation} {settings.min_nodes} {settings.max_nodes} {last_call} {keep_alive} "
                                 f"{settings.keep_alive_max_attempt} {micros(moment)} {late_ms} "
                                 f"{node.fqdn if OLD else node.addr} {node.pid} {node.local_id} {text}\n")
        self.process.stdin.flush()
        verdict, restarts, text = self.process.stdout.readline().split()
        return (verdict, restarts == "1"), pickle.loads(base64.b64decode(text))

    def is_comparable(self, operation, state, node, settings):
        """1.13 knows no redundant nodes, and stumbles over a missing deadline."""
        if not OLD or operation != "join" or node in state.wait_list:
            return True
        enough = len(state.participants) >= settings.min_nodes
        full = len(state.participants) >= settings.max_nodes
        return not (full if state.complete else enough and (state.deadline is None or full))

    def test_steps(self):
        moment = now().replace(microsecond=123456)
        seen = set()
        for case in range(1500):
            draw = self.random
            low = draw.randrange(1, 4)
            high = draw.randrange(low, 5)
            pids = range(draw.randrange(1, 6))
            nodes = [theirs._NodeDesc(draw.choice("abc"), pid, draw.randrange(2)) for pid in pids]
            settings = theirs.RendezvousSettings(
                "job", low, high, theirs.RendezvousTimeout(last_call=timedelta(seconds=draw.randrange(1, 9))),
                keep_alive_interval=timedelta(seconds=draw.randrange(1, 9)), keep_alive_max_attempt=3)
            state, node = self.draw_state(nodes, moment), draw.choice(nodes)
            operation = draw.choice([*self.OPERATIONS, "join", "join", "join", "sanitize"])
            late_ms = draw.choice((-1000, -1, 1, 4000, 6000))
            if not self.is_comparable(operation, state, node, settings):
                continue
            given = pickle.dumps(state)
            ours, after = self.our_step(operation, state, node, settings, moment, late_ms)
            expected = self.their_step(operation, state, node, settings, moment, late_ms)
            say = f"seed {self.seed} case {case}: {operation} of {node} from {pickle.loads(given).__dict__}"
            self.assertEqual(ours, expected, say)
            if ours[0] in ("write", "finished") and (operation == "sanitize" or ours[0] == "write"):
                self.assertEqual(States.show(self, after), States.show(self, state), say)
            seen.add((operation, ours))
        self.assertGreater(len(seen), 12)  # of all kinds


class Rendezvous(unittest.TestCase):
    def setUp(self):
        self.serve()

    def serve(self):
        """A store of PyTorch's, for one job."""
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.port = str(self.store.port)

    def node(self, *command):
        node = Node(*command)
        self.addCleanup(node.close)
        return node

    def peer(self):
        peer = self.node(PEER)
        peer.expect("ready")
        return peer

    def ours(self, low, high, address, last_call=60, keep_alive=5, workers=1, role="default"):
        return self.node(NODE, "127.0.0.1", self.port, "job", str(low), str(high),
                         address, str(workers), role, str(int(1000 * last_call)), str(int(1000 * keep_alive)),
                         "naive" if OLD else "aware")

    def theirs(self, low, high, address, last_call=60, keep_alive=5, peer=None):
        peer = peer or self.peer()
        peer.order(f"new 127.0.0.1 {self.port} job {low} {high} {address} {last_call} {keep_alive}")
        peer.order("join")
        return peer

    def end(self, ours, others):
        for node in others:
            node.order("barrier")
        for node in ours:
            node.order("finish")
        for node in others:
            node.expect("ended")
        for node in ours:
            node.expect("over")
        for node in others:
            node.order("close")
            self.assertTrue(node.expect("closed")["good"])

    def test_two(self):
        """Either is the first; the addresses of the first are told."""
        for rank in (0, 1):
            ours = self.ours(2, 2, "127.0.0.1" if rank == 0 else "localhost", workers=3, role="a")
            other = self.theirs(2, 2, "localhost" if rank == 0 else "127.0.0.1")
            order = [ours, other] if rank == 0 else [other, ours]
            other.order("ranks 2 b")
            seen = dict(zip(order, self.begun_and_ranked(order, other)))
            self.assertEqual((seen[ours]["world"], seen[ours]["role_rank"], seen[ours]["role_world"]), (5, 0, 3))
            self.assertEqual(seen[ours]["rank"], 0 if rank == 0 else 2)
            self.assertEqual((seen[other]["rank"], seen[other]["world"]), (3 if rank == 0 else 0, 5))
            self.assertEqual(seen[other]["role_world"], 2)
            self.end([ours], [other])
            self.serve()

    def begun_and_ranked(self, order, other):
        """PyTorch's part of the numbers comes after its begin."""
        heard = {}
        for node in order:
            if node is other:
                begin = node.expect("begin")
                heard[node] = {**begin, **node.expect("ranks"), "event": "begin"}
        for node in order:
            if node is not other:
                heard[node] = node.expect("begin")
        masters = {(said["master"], said["port"]) for said in heard.values()}
        self.assertEqual(len(masters), 1, masters)
        self.assertEqual(masters.pop()[0], "from.1.13" if OLD and order[0] is other else "127.0.0.1")
        return [heard[node] for node in order]

    def start_all(self, kinds, low, high, **more):
        """PyTorch's processes are there before the first node begins, whose last call a busy machine may miss."""
        peers = [{"peer": self.peer()} if kind == "theirs" else {} for kind in kinds]
        return [getattr(self, kind)(low, high, f"127.0.0.{i + 1}", **more, **peers[i]) for i, kind in enumerate(kinds)]

    def settle(self, nodes):
        """Read what all say of a round; PyTorch's are told to exchange their numbers, without which ours don't
        begin."""
        for node in nodes:
            if node.process.args[-1] == PEER:
                node.order("ranks 1 default")
        said = []
        for i, node in enumerate(nodes):
            said.append(node.expect("begin"))
            if node.process.args[-1] == PEER:
                ranks = node.expect("ranks")
                self.assertEqual((ranks["rank"], ranks["world"]), (i, len(nodes)))
            else:
                self.assertEqual((said[i]["rank"], said[i]["world"]), (i, len(nodes)))
        self.assertEqual([s["node"] for s in said], list(range(len(nodes))))
        self.assertEqual({s["nodes"] for s in said}, {len(nodes)})
        self.assertEqual(len({s["round"] for s in said}), 1)
        return said

    def test_four(self):
        nodes = self.start_all(["ours", "theirs", "theirs", "ours"], 4, 4)
        self.settle(nodes)
        self.end([nodes[0], nodes[3]], nodes[1:3])

    def test_ours_alone(self):
        nodes = self.start_all(["ours", "ours", "ours"], 3, 3)
        self.settle(nodes)
        self.end(nodes, [])

    def test_last_call(self):
        """Two of up to four are enough, when the last call has passed."""
        for kinds in (["ours", "theirs"], ["theirs", "ours"]):
            nodes = self.start_all(kinds, 2, 4, last_call=1)
            self.settle(nodes)
            self.end([node for node in nodes if "torch_node" in node.process.args[0]],
                     [node for node in nodes if "torch_node" not in node.process.args[0]])
            self.serve()

    def test_late(self):
        """One that comes late makes all begin again: one of PyTorch's, and one of ours."""
        first, second = self.start_all(["ours", "theirs"], 2, 4, last_call=LAST_CALL)
        before = self.settle([first, second])
        third = self.theirs(2, 4, "127.0.0.3", last_call=LAST_CALL)
        self.assertIn("wants to join", first.expect("changed")["text"])
        self.wait_for_waiting(second)
        first.order("again")
        second.order("join")
        after = self.settle([first, second, third])
        self.assertGreater(after[0]["round"], before[0]["round"])
        if not OLD:
            self.assertEqual((after[0]["master"], after[0]["port"]), (before[0]["master"], before[0]["port"]))
        fourth = self.ours(2, 4, "127.0.0.4", last_call=LAST_CALL)
        first.expect("changed")
        self.wait_for_waiting(second)
        self.wait_for_waiting(third)
        first.order("again")
        second.order("join")
        third.order("join")
        self.settle([first, second, third, fourth])
        self.end([first, fourth], [second, third])

    def wait_for_waiting(self, peer):
        count = 0
        while not count:
            peer.order("waiting")
            count = peer.expect("waiting")["count"]

    def test_death(self):
        """A node that dies is found missing; the rest goes on without."""
        first, second, third = self.start_all(["ours", "theirs", "ours"], 2, 3, last_call=LAST_CALL, keep_alive=1)
        self.settle([first, second, third])
        third.kill()
        self.assertIn("left", first.expect("changed")["text"])
        first.order("again")
        self.wait_for_waiting(second)
        second.order("join")
        self.settle([first, second])
        second.kill()
        first.expect("changed")
        first.order("again")
        again = self.ours(2, 3, "127.0.0.9", last_call=LAST_CALL, keep_alive=1)
        self.settle([first, again])
        self.end([first, again], [])

    def test_no_place(self):
        """A third node of two waits to the end, or for a place."""
        first, second = self.start_all(["ours", "theirs"], 2, 2, keep_alive=1)
        self.settle([first, second])
        third = self.ours(2, 2, "127.0.0.3", keep_alive=1)
        self.assertIn("waiting for other nodes", third.next()["text"])
        if OLD:  # whose nodes know of no list for such, and whose state loses ours
            return
        second.order("close")
        second.expect("closed")
        self.assertEqual(third.expect("over")["text"],
                         "the job has ended; all its places were taken by other nodes")
        self.assertIn("ended the job", first.expect("ended")["text"])
        late = self.ours(2, 2, "127.0.0.5")
        self.assertIn("its job has ended", late.expect("failed")["text"])

    def test_failure_ends_the_barrier(self):
        first, second = self.start_all(["ours", "ours"], 2, 2)
        self.settle([first, second])
        first.order("finish")
        second.order("fail")
        said = first.next()
        if said["event"] == "ended":  # it has heard that before its own end
            self.assertIn("another node has ended the job", said["text"])
            first.expect("over")
        else:
            self.assertEqual(said["event"], "over", said)
            if not OLD:  # where a failed agent takes part in the barrier
                self.assertIn("another node has ended the job", said["text"])
        second.expect("over")

    def test_leave(self):
        first, second = self.start_all(["ours", "ours"], 1, 2)
        self.settle([first, second])
        second.order("leave")
        second.expect("over")
        self.assertIn("left", first.expect("changed")["text"])


if __name__ == "__main__":
    unittest.main()
