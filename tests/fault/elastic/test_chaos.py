#!/usr/bin/env python3
"""Training that loses ranks at random moments: workers killed and frozen, launchers killed and started again, links cut
and mended, on one host and on four machines (network name spaces) around a router. The job ends well whatever comes;
each example is trained on once an epoch; ranks agree on every bit, and where each lost rank was replaced before another
step the result is that of a run that nobody disturbed. TT_CHAOS_FAULTS: how many; TT_CHAOS_SEED: which;
TT_CHAOS_ONLY: names of some kinds ("kill_worker,cut_link")."""
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / folder) for folder in ("support", "security")]
import lab  # noqa: E402
from patience import DEADLINE, free_port  # noqa: E402
from processes import processes_below  # noqa: E402

TUTTI = os.environ["TUTTI"]
WORKER = [os.path.join(os.environ["TT_PROGRAMS"], "test_elastic"), "worker"]
TRAINER = os.path.join(os.environ["TT_PROGRAMS"], "audited_trainer")  # mnist_trainer, with an audit
FAULTS = int(os.environ.get("TT_CHAOS_FAULTS", "4"))
SEED = int(os.environ.get("TT_CHAOS_SEED", random.randrange(1 << 30)))
SANITIZED = bool(os.environ.get("TT_SANITIZED"))  # which makes a step of mnist_trainer take too long
ONLY = os.environ.get("TT_CHAOS_ONLY")
SAMPLES, PIXELS, PACE_MS = 96, 784, 10
HEARTBEAT_S = 10 if SANITIZED else 1.5


WORKERS = ("test_elastic", "audited_trainer")


def workers_below(pid):
    found = []
    for one in processes_below(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{one}/comm").read_text(encoding="ascii").strip() in WORKERS:
                found.append(one)
    return found


def write_digits(folder, samples, holdout=0, noise=0.1):
    """Images of ten classes that differ in where they are bright; some labels are wrong, so that there is always
    something to learn."""
    draw = random.Random(5)
    bright = [int.from_bytes(bytes(128 * (draw.random() < 0.2) for _ in range(PIXELS)), "big")
              for _ in range(10)]
    dark = int.from_bytes(PIXELS * b"\x7f", "big")
    images, labels = bytearray(), bytearray()
    for i in range(samples + holdout):
        images += (int.from_bytes(draw.randbytes(PIXELS), "big") & dark | bright[i % 10]).to_bytes(PIXELS, "big")
        labels.append(i % 10 if draw.random() >= noise else draw.randrange(10))
    (folder / "images").write_bytes(struct.pack(">4I", 0x803, samples + holdout, 28, 28) + images)
    (folder / "labels").write_bytes(struct.pack(">2I", 0x801, samples + holdout) + labels)


def percentile(sorted_times, part):
    return sorted_times[int(part * (len(sorted_times) - 1))]


class Audit:
    """What the workers noted before each step: COMMIT ROUND RANK EPOCH: INDICES. A step was made in the last round in
    which it was tried."""

    def __init__(self, path):
        self.path, self.at, self.round, self.commit, self.epoch = path, 0, -1, 0, 0

    def lines(self):
        with open(self.path, encoding="ascii") as f:
            for line in f:
                head, _, indices = line.partition(":")
                yield (*map(int, head.split()), [int(i) for i in indices.split()])

    def look(self):
        """(the last round, the last step). A later round begins at most a step before."""
        with contextlib.suppress(OSError), open(self.path, "rb") as f:
            f.seek(self.at)
            data = f.read()
            end = data.rfind(b"\n") + 1
            self.at += end
            for line in data[:end].splitlines():
                commit, number, _, epoch = map(int, line.partition(b":")[0].split())
                if number > self.round and commit < self.commit - 1:
                    raise AssertionError(f"round {number} begins with step {commit}, after {self.commit} (seed {SEED})")
                self.round, self.commit = max(self.round, number), max(self.commit, commit)
                self.epoch = max(self.epoch, epoch)
        return self.round, self.commit

    def ranks_of_steps(self):
        """By step: how many ranks made it."""
        last, ranks = {}, collections.Counter()
        for commit, number, *_ in self.lines():
            if number > last.get(commit, -1):
                last[commit], ranks[commit] = number, 0
            ranks[commit] += number == last[commit]
        return ranks

    def assert_each_once(self, test, may_repeat):
        """may_repeat: worlds that don't divide what is left of an epoch fill up with what they have had."""
        last, times, rounds = {}, collections.Counter(), collections.defaultdict(set)
        for commit, number, *_ in self.lines():
            last[commit] = max(last.get(commit, 0), number)
        epochs = 0
        for commit, number, _, epoch, indices in self.lines():
            epochs = max(epochs, epoch + 1)
            if number == last[commit]:
                rounds[epoch].add(number)
                times.update((epoch, i) for i in indices)
        for epoch in range(epochs):
            seen = [times[epoch, i] for i in range(test.samples)]
            test.assertGreater(min(seen), 0, f"epoch {epoch} lacks {seen.index(0) if 0 in seen else ''} (seed {SEED})")
            if not may_repeat:
                test.assertEqual(max(seen), 1, f"epoch {epoch} (seed {SEED})")
            test.assertLessEqual(sum(seen), test.samples + 16 * len(rounds[epoch]), f"epoch {epoch} (seed {SEED})")


class Chaos(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.audit = Audit(self.folder / "audit")
        self.launchers, self.times = {}, []
        self.samples = SAMPLES
        self.env = dict(os.environ, OMP_NUM_THREADS="1")
        for name, value in (("PACE_MS", PACE_MS), ("HEARTBEAT_MS", int(1000 * HEARTBEAT_S))):
            self.env["A_" + name] = self.env["E_" + name] = str(value)
        self.env["E_QUIET"] = "1"
        self.elastic, self.plain = [*WORKER, "elastic"], [*WORKER, "plain"]

    def train(self, samples=SAMPLES, holdout=0, noise=0.1, lr=0.0001, batch=4, epochs=1000000):
        """Run mnist_trainer, where that doesn't take too long, or the test's own, until told_end()."""
        self.samples, self.env["E_EPOCHS"] = samples, str(epochs)
        if SANITIZED:
            return
        write_digits(self.folder, samples, holdout, noise)
        self.plain = [TRAINER, f"--images={self.folder}/images", f"--labels={self.folder}/labels",
                      f"--holdout={holdout}", f"--batch-size={batch}", f"--epochs={epochs}", f"--lr={lr}",
                      "--momentum=0.9", "--save-every=0"]
        self.elastic = [*self.plain, "--elastic"]

    def let_end(self, end=None):
        """Returns after which epoch. It is so far ahead that nobody passes it before it is told."""
        self.audit.look()
        end = end or self.audit.epoch + 40
        (self.folder / "new").write_text(str(end), encoding="ascii")
        (self.folder / "new").rename(self.folder / "end")
        return end

    def start(self, node, argv, starter=subprocess.Popen):
        log = open(self.folder / f"log.{node}", "ab")  # noqa: SIM115 it is the launcher's
        with log:
            # A group of this session: the kernel wakes what is frozen in one without an outer parent, by SIGHUP.
            self.launchers[node] = starter([TUTTI, "run", "--grace-period=5", *argv, *self.elastic],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                           env=self.env, process_group=0)

    def logs(self):
        return f"seed {SEED}\n" + "".join(f"---- {path.name}\n{path.read_text(errors='replace')[-6000:]}"
                                          for path in sorted((*self.folder.glob("log.*"),
                                                              *self.folder.glob("error.*"))))

    def is_over(self):
        return self.launchers[0].poll() is not None

    def assert_goes_on(self, since, commit, what):
        if not self.wait_for_step(since, commit, what):
            self.fail(f"the job is over after: {what}\n{self.logs()}")

    def wait_for_step(self, since, commit, what):
        """A step after `commit` in a round after `since`. False: the job is over."""
        deadline = time.monotonic() + DEADLINE
        while self.audit.look()[0] <= since or self.audit.commit <= commit:
            if self.is_over():
                return False
            if time.monotonic() > deadline:
                self.fail(f"no step after: {what}\n{self.logs()}")
            time.sleep(0.005)
        return True

    def play(self, faults):
        """One fault after the other, each when training goes on after the one before.

        A fault is a function. It returns since when no step can be made, if so, and what it has done; or None."""
        faults = [fault for fault in faults if not ONLY or fault.__name__ in ONLY.split(",")]
        for n in range(FAULTS):
            done = None
            while not done:
                until = time.monotonic() + self.random.uniform(0.05, 0.5)
                self.assert_goes_on(-1, self.audit.look()[1], "")
                while time.monotonic() < until:
                    time.sleep(0.01)
                since, commit = self.audit.look()
                done = self.random.choice(faults)()
            begun, what = done
            self.assert_goes_on(since if begun else -1, commit, what)
            if begun:
                self.times.append((time.monotonic() - begun, what))
            if FAULTS > 20:
                print(f"{n + 1}: {what}" + (f": {self.times[-1][0]:.3f} s" if begun else ""), file=sys.stderr,
                      flush=True)

    def end(self):
        for node, launcher in self.launchers.items():
            code = self.wait_for_end_of(launcher)
            missed = node and code == 1 and "did not come within" in (self.folder / f"log.{node}").read_text()[-2000:]
            if not missed:  # the job ended while the node was cut off
                self.assertEqual(code, 0, self.logs())
        finals = {path.read_bytes() for path in self.folder.glob("final.*")}
        self.assertEqual(len(finals), 1, self.logs())
        self.assert_nothing_left()
        self.tell_times()
        return finals.pop()

    def wait_for_end_of(self, launcher):
        """However long it takes, if only steps are made."""
        commit, deadline = self.audit.look()[1], time.monotonic() + DEADLINE
        while launcher.poll() is None:
            if self.audit.look()[1] > commit:
                commit, deadline = self.audit.commit, time.monotonic() + DEADLINE
            if time.monotonic() > deadline:
                self.fail(f"node {list(self.launchers.values()).index(launcher)} does not end\n{self.logs()}")
            time.sleep(0.02)
        return launcher.returncode

    def assert_nothing_left(self):
        """No process of the job lives on; those of a launcher that was killed get a moment."""
        deadline = time.monotonic() + DEADLINE
        while left := self.of_the_job():
            self.assertLess(time.monotonic(), deadline, f"left: {left}\n{self.logs()}")
            time.sleep(0.05)

    def of_the_job(self):
        found = []
        for one in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(one / "cwd") == str(self.folder):
                    found.append((one.name, (one / "cmdline").read_bytes()[:200]))
        return found

    def tell_times(self):
        kinds = collections.defaultdict(list)
        for seconds, what in self.times:
            kinds[re.sub(r" \d+| for .*", "", what)].append(seconds)
            kinds["all"].append(seconds)
        print(f"seed {SEED}: from a fault to the next step", file=sys.stderr)
        for what, times in kinds.items():
            times.sort()
            print(f"  {what}: {len(times)}, median {percentile(times, 0.5):.3f} s, 95th percentile "
                  f"{percentile(times, 0.95):.3f} s, longest {times[-1]:.3f} s", file=sys.stderr)

    # ---- faults

    def signal_worker(self, number, what):
        workers = workers_below(self.launchers[self.random.choice(list(self.launchers))].pid)
        if not workers:
            return None
        begun = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(workers), number)
        return begun, f"a worker {what}"

    def kill_worker(self):
        return self.signal_worker(signal.SIGKILL, "killed")

    def freeze_worker(self):
        return self.signal_worker(signal.SIGSTOP, "frozen")

    def kill_launcher_of(self, node, begin):
        begun = time.monotonic()
        self.launchers[node].kill()
        self.launchers[node].wait()
        begin(node)
        return begun, f"launcher {node} killed, and started again"

    # ---- one host

    def undisturbed(self, world, epochs):
        with tempfile.TemporaryDirectory() as folder:
            plain = [*self.plain, *([f"--epochs={epochs}"] if TRAINER in self.plain else [])]
            env = dict(self.env, E_PACE_MS="0", A_PACE_MS="0", E_EPOCHS=str(epochs))
            done = subprocess.run([TUTTI, "run", f"--nproc-per-node={world}", *plain], cwd=folder, env=env,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return (pathlib.Path(folder) / "final.0").read_bytes(), done.stdout

    def test_replaced_ranks_change_no_bit(self):
        self.train()
        self.start(0, ["--nproc-per-node=3", "--max-restarts=100000"])
        self.stack.callback(self.launchers[0].kill)
        self.play([self.kill_worker, self.kill_worker, self.freeze_worker])
        epochs = self.let_end()
        self.assertEqual(self.end(), self.undisturbed(3, epochs)[0], self.logs())
        self.audit.assert_each_once(self, may_repeat=False)

    def test_a_call_that_fails_though_nobody_is_lost(self):
        """All wait for the next round, in which all go on; it counts as a restart, as a job could do nothing else."""
        epochs = 3
        self.env.update(E_FAULTS="nap:1:0:7", E_TIMEOUT_MS="1000", E_EPOCHS=str(epochs))
        self.start(0, ["--nproc-per-node=2", "--max-restarts=1"])
        self.stack.callback(self.launchers[0].kill)
        self.assertEqual(self.end(), self.undisturbed(2, epochs)[0], self.logs())
        self.assertEqual(self.audit.look()[0], 1)
        self.audit.assert_each_once(self, may_repeat=False)

    # ---- several launchers on one host

    def test_launchers_come_and_go(self):
        self.train()
        port = free_port()
        flags = ["--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{port}", "--max-restarts=100000",
                 f"--rdzv-conf=last_call_timeout=1,heartbeat={HEARTBEAT_S}"]
        for node in range(3):
            self.start(node, flags)
            self.stack.callback(lambda n=node: n in self.launchers and self.launchers[n].kill())
            while node == 0 and not self.serves(port):
                time.sleep(0.01)

        def kill_launcher():
            return self.kill_launcher_of(self.random.choice(list(self.launchers)), lambda n: self.start(n, flags))

        self.play([self.kill_worker, self.freeze_worker, kill_launcher])
        self.let_end()
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def test_loss_with_other_numbers_of_ranks(self):
        """Nodes are lost, the others make some steps without them, then they come back: what was learned is the
        same."""
        if SANITIZED:
            self.skipTest("mnist_trainer takes too long")
        faults = max(FAULTS // 2, 2)
        epochs = 3
        self.train(samples=900 * faults, holdout=600, noise=0.3, lr=0.003, batch=8, epochs=epochs)
        port = free_port()
        flags = ["--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{port}",
                 f"--rdzv-conf=last_call_timeout=2,heartbeat={HEARTBEAT_S}"]
        for node in range(4):
            self.start(node, flags)
            self.stack.callback(lambda n=node: n in self.launchers and self.launchers[n].kill())
            while node == 0 and not self.serves(port):
                time.sleep(0.01)
        while faults and self.lose_nodes_for_a_while(flags):
            faults -= 1
        self.let_end(epochs)  # without a pause
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)
        ranks = collections.Counter(self.audit.ranks_of_steps().values())
        self.assertGreater(sum(ranks[n] for n in (1, 2, 3)), ranks[4] // 20, f"{ranks}\n{self.logs()}")
        texts = self.undisturbed(4, epochs)[1], "".join(path.read_text() for path in self.folder.glob("log.*"))
        expected, loss = (float(re.search(r"Epoch 3, .*held-out loss ([\d.]+)", text)[1]) for text in texts)
        print(f"seed {SEED}: held-out loss {loss}, undisturbed {expected}; steps with so many ranks: "
              f"{dict(ranks)}", file=sys.stderr)
        self.assertLess(abs(loss - expected), 0.02 * expected, self.logs())

    def lose_nodes_for_a_while(self, flags):
        """False: the training ended meanwhile."""
        lost = self.random.sample([1, 2, 3], self.random.choice([1, 2]))
        if not self.wait_for_step(-1, self.audit.look()[1] + self.random.randrange(10, 40), "the start"):
            return False
        since = self.audit.look()
        for node in lost:
            self.launchers[node].kill()
            self.launchers[node].wait()
        goes_on = self.wait_for_step(since[0], since[1] + self.random.randrange(5, 20), f"nodes {lost} lost")
        since = self.audit.look()
        for node in lost if goes_on else ():
            self.start(node, flags)
        if goes_on and self.wait_for_step(since[0], since[1], f"nodes {lost} started again"):
            return True
        for node in lost:  # there is no job for them
            self.launchers[node].kill()
            self.launchers.pop(node).wait()
        return False

    def start_three(self):
        """The first serves the store."""
        self.env["E_EPOCHS"] = "1000000"
        port = free_port()
        flags = ["--nnodes=1:3", f"--rdzv-endpoint=127.0.0.1:{port}",
                 f"--rdzv-conf=last_call_timeout=2,heartbeat={HEARTBEAT_S}"]
        for node in range(3):
            self.start(node, flags)
            self.stack.callback(lambda n=node: n in self.launchers and self.launchers[n].kill())
            while node == 0 and not self.serves(port):
                time.sleep(0.01)
        return flags

    def wait_for(self, round_number, commit):
        """A step after `commit` is made in that round, or a later one."""
        deadline = time.monotonic() + DEADLINE
        while self.audit.look()[0] < round_number or self.audit.commit <= commit:
            self.assertLess(time.monotonic(), deadline,
                            f"no step after {commit} in round {round_number}\n{self.logs()}")
            time.sleep(0.005)

    def test_who_serves_the_store_is_lost_and_no_state(self):
        flags = self.start_three()
        self.wait_for(0, 20)
        while not all(workers_below(self.launchers[node].pid) for node in (1, 2)):
            time.sleep(0.01)
        workers = [workers_below(self.launchers[node].pid) for node in (1, 2)]
        self.launchers[0].kill()
        self.launchers[0].wait()
        before = self.audit.look()
        self.wait_for(before[0] + 1, before[1])
        self.assertEqual([workers_below(self.launchers[node].pid) for node in (1, 2)], workers, self.logs())
        first = min(commit for commit, number, *_ in self.audit.lines() if number > before[0])
        self.assertGreaterEqual(first, before[1], self.logs())
        self.start(0, flags)
        self.wait_for(before[0] + 2, before[1])
        self.assertEqual([workers_below(self.launchers[node].pid) for node in (1, 2)], workers, self.logs())
        self.let_end()
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def test_a_node_is_lost_while_others_join_it(self):
        """Those that go on wait for its rank, in a round that follows others, and hear that it won't come."""
        flags = self.start_three()
        self.wait_for(0, 20)
        self.launchers[2].kill()
        self.launchers[2].wait()
        self.wait_for(self.audit.look()[0] + 1, self.audit.commit)
        workers = [workers_below(self.launchers[node].pid) for node in (0, 1)]
        self.elastic = ["sh", "-c", "touch born; exec sleep 1000"]
        self.start(2, flags)
        deadline = time.monotonic() + DEADLINE
        while not (self.folder / "born").exists():
            self.assertLess(time.monotonic(), deadline, self.logs())
            time.sleep(0.005)
        before = self.audit.look()
        self.launchers[2].kill()
        self.launchers.pop(2).wait()
        self.wait_for(before[0] + 1, before[1])
        self.assertEqual([workers_below(self.launchers[node].pid) for node in (0, 1)], workers, self.logs())
        self.let_end()
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def test_ranks_that_missed_rounds_come_back(self):
        """A launcher is frozen; the job goes on without its rank, which then takes what the others have."""
        self.start_three()
        self.wait_for(0, 20)
        while not workers_below(self.launchers[2].pid):
            time.sleep(0.01)
        worker, before = workers_below(self.launchers[2].pid), self.audit.look()
        self.launchers[2].send_signal(signal.SIGSTOP)
        self.wait_for(before[0] + 1, before[1] + 30)
        since = self.audit.look()[0]
        self.launchers[2].send_signal(signal.SIGCONT)
        self.wait_for(since + 1, before[1] + 30)
        self.assertEqual(workers_below(self.launchers[2].pid), worker, self.logs())
        self.let_end()
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    @staticmethod
    def serves(port):
        return f":{port:04X} 00000000:0000 0A" in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii")

    # ---- four machines

    def test_machines(self):
        reason = lab.why_not()
        if reason:
            self.skipTest(reason)
        self.train()
        router, *hosts = (self.machine(name) for name in ("router", "a", "b", "c", "d"))
        for i, host in enumerate(hosts):
            router.ip(f"link add to{i} type veth peer name eth0 netns {host.holder.pid}",
                      f"addr add 10.77.{i}.254/24 dev to{i}", f"link set to{i} up")
            host.ip(f"addr add 10.77.{i}.1/24 dev eth0", "link set eth0 up", f"route add default via 10.77.{i}.254")
        self.assertEqual(router.run(["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]).returncode, 0)
        secret = self.folder / "secret"
        secret.write_text("0123456789abcdef" * 4, encoding="ascii")
        secret.chmod(0o600)
        flags = ["--nnodes=1:4", "--rdzv-endpoint=10.77.0.1:29400", "--max-restarts=100000", f"--secret-file={secret}",
                 f"--rdzv-conf=last_call_timeout=1,heartbeat={HEARTBEAT_S},rejoin=20"]

        def begin(node):
            self.start(node, flags, hosts[node].start_as)

        for node in range(4):
            begin(node)
            self.stack.callback(lambda n=node: self.launchers[n].kill())

        def kill_launcher():
            return self.kill_launcher_of(self.random.choice([1, 2, 3]), begin)

        def kill_store_host():
            """All that runs there, at once."""
            begun = time.monotonic()
            for pid in (self.launchers[0].pid, *processes_below(self.launchers[0].pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.launchers[0].wait()
            begin(0)
            return begun, "the host of the store killed, and started again"

        def cut_link():
            """Shorter or longer than the heartbeat. One that was too long costs the node its place until it is back."""
            node, seconds = self.random.choice([1, 2, 3]), self.random.uniform(0.1, 4)
            since, begun, goes_on = self.audit.look()[0], time.monotonic(), None
            router.ip(f"link set to{node} down")
            while time.monotonic() < begun + seconds:
                if goes_on is None and self.audit.look()[0] > since:
                    goes_on = time.monotonic()
                time.sleep(0.01)
            router.ip(f"link set to{node} up")
            what = f"a link cut for {seconds:.1f} s"
            if goes_on is None:
                return None, what
            self.times.append((goes_on - begun, what))
            return None, what

        self.play([self.kill_worker, self.freeze_worker, kill_launcher, kill_store_host, cut_link])
        self.let_end()
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def machine(self, name):
        machine = lab.Machine(name)
        self.stack.callback(machine.holder.communicate)
        machine.start_as = lambda argv, **how: subprocess.Popen(machine.argv(argv), **how)
        return machine


if __name__ == "__main__":
    unittest.main(verbosity=1)
