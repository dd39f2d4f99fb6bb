#!/usr/bin/env python3
"""Training that loses ranks at random moments: workers killed and frozen, launchers killed and started again, links cut
and mended, on one host and on four machines (network name spaces) around a router. The job ends well whatever comes;
each example is trained on once an epoch; ranks agree on every bit, and where each lost rank was replaced before another
step the result is that of a run that nobody disturbed. TT_CHAOS_FAULTS: how many; TT_CHAOS_SEED: which."""
import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / folder) for folder in ("support", "security")]
import lab  # noqa: E402
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
WORKER = [os.path.join(os.environ["TT_PROGRAMS"], "test_elastic"), "worker"]
FAULTS = int(os.environ.get("TT_CHAOS_FAULTS", "8"))
SEED = int(os.environ.get("TT_CHAOS_SEED", random.randrange(1 << 30)))
SAMPLES, PACE_MS, EPOCHS_PER_FAULT = 96, 10, 10
HEARTBEAT_S = 10 if os.environ.get("TT_SANITIZED") else 1.5


def processes_below(pid):
    """The ids of a process's descendants."""
    children = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text(encoding="ascii", errors="replace")
            children[int(text.rsplit(")", 1)[1].split()[1])].append(int(text.split(" ", 1)[0]))
    found = [pid]
    for one in found:
        found += children[one]
    return found[1:]


def workers_below(pid):
    found = []
    for one in processes_below(pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{one}/comm").read_text(encoding="ascii") == "test_elastic\n":
                found.append(one)
    return found


class Audit:
    """What the workers noted before each step: COMMIT ROUND RANK EPOCH: INDICES. A step was made in the last round in
    which it was tried."""

    def __init__(self, path):
        self.path, self.at, self.round, self.commit = path, 0, -1, 0

    def lines(self):
        with open(self.path, encoding="ascii") as f:
            for line in f:
                head, _, indices = line.partition(":")
                yield (*map(int, head.split()), [int(i) for i in indices.split()])

    def look(self):
        """(round, commit) of the last line."""
        with contextlib.suppress(OSError), open(self.path, "rb") as f:
            f.seek(self.at)
            data = f.read()
            end = data.rfind(b"\n") + 1
            self.at += end
            for line in data[:end].splitlines():
                commit, number = map(int, line.split(b" ", 2)[:2])
                self.round, self.commit = max(self.round, number), max(self.commit, commit)
        return self.round, self.commit

    def assert_each_once(self, test, may_repeat):
        """may_repeat: worlds that don't divide what is left of an epoch fill up with what they have had."""
        last, times, worlds = {}, collections.Counter(), collections.defaultdict(set)
        for commit, number, rank, _, _ in self.lines():
            last[commit] = max(last.get(commit, 0), number)
            worlds[number].add(rank)
        epochs = 0
        for commit, number, _, epoch, indices in self.lines():
            epochs = max(epochs, epoch + 1)
            if number == last[commit]:
                times.update((epoch, i) for i in indices)
        for epoch in range(epochs):
            seen = [times[epoch, i] for i in range(SAMPLES)]
            test.assertGreater(min(seen), 0, f"epoch {epoch} lacks {seen.index(0) if 0 in seen else ''} (seed {SEED})")
            if not may_repeat:
                test.assertEqual(max(seen), 1, f"epoch {epoch} (seed {SEED})")
            test.assertLessEqual(sum(seen), SAMPLES + 16 * len({last[c] for c in last}), f"epoch {epoch} (seed {SEED})")


class Chaos(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.audit = Audit(self.folder / "audit")
        self.launchers, self.times = {}, []
        self.env = dict(os.environ, E_EPOCHS=str(EPOCHS_PER_FAULT * FAULTS), E_PACE_MS=str(PACE_MS), E_QUIET="1",
                        E_HEARTBEAT_MS=str(int(1000 * HEARTBEAT_S)))

    def start(self, node, argv, starter=subprocess.Popen):
        log = open(self.folder / f"log.{node}", "ab")  # noqa: SIM115 it is the launcher's
        with log:
            # A group of this session: the kernel wakes what is frozen in one without an outer parent, by SIGHUP.
            self.launchers[node] = starter([TUTTI, "run", "--grace-period=5", *argv, *WORKER, "elastic"],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                           env=self.env, process_group=0)

    def logs(self):
        return f"seed {SEED}\n" + "".join(f"---- {path.name}\n{path.read_text(errors='replace')[-6000:]}"
                                          for path in sorted(self.folder.glob("log.*")))

    def assert_goes_on(self, since, what):
        """A step of a later round comes."""
        begun, deadline = time.monotonic(), time.monotonic() + DEADLINE
        while self.audit.look()[0] <= since:
            if self.launchers[0].poll() is not None:
                return False
            self.assertLess(time.monotonic(), deadline, f"no step after: {what}\n{self.logs()}")
            time.sleep(0.005)
        self.times.append((time.monotonic() - begun, what))
        return True

    def play(self, faults):
        """One fault after the other, each when training goes on after the one before. Returns how many there were."""
        for n in range(FAULTS):
            commit = self.audit.look()[1]
            until = time.monotonic() + self.random.uniform(0.05, 0.5)
            while (time.monotonic() < until or self.audit.look()[1] <= commit) and self.launchers[0].poll() is None:
                time.sleep(0.01)
            fault, since = self.random.choice(faults), self.audit.look()[0]
            what = fault()
            if self.launchers[0].poll() is not None or (what and not self.assert_goes_on(since, what)):
                return n
        return FAULTS

    def end(self):
        for node, launcher in self.launchers.items():
            try:
                code = launcher.wait(DEADLINE + 2 * EPOCHS_PER_FAULT * FAULTS * SAMPLES * PACE_MS / 4000)
            except subprocess.TimeoutExpired:
                self.fail(f"node {node} does not end\n{self.logs()}")
            missed = node and code == 1 and "did not come within" in (self.folder / f"log.{node}").read_text()[-2000:]
            if not missed:  # the job ended while the node was cut off
                self.assertEqual(code, 0, self.logs())
        finals = {path.read_bytes() for path in self.folder.glob("final.*")}
        self.assertEqual(len(finals), 1, self.logs())
        times = sorted(seconds for seconds, _ in self.times)
        if times:
            slowest = max(self.times)
            print(f"seed {SEED}: {len(times)} faults; to the next step: median {times[len(times) // 2]:.3f} s, 95th "
                  f"percentile {times[int(0.95 * (len(times) - 1))]:.3f} s, longest {slowest[0]:.3f} s ({slowest[1]})",
                  file=sys.stderr)
        return finals.pop()

    # ---- faults

    def kill_worker(self):
        workers = workers_below(self.launchers[self.random.choice(list(self.launchers))].pid)
        if not workers:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(workers), signal.SIGKILL)
        return "a worker killed"

    def freeze_worker(self):
        workers = workers_below(self.launchers[self.random.choice(list(self.launchers))].pid)
        if not workers:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.random.choice(workers), signal.SIGSTOP)
        return "a worker frozen"

    # ---- one host

    def undisturbed(self, world):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TUTTI, "run", f"--nproc-per-node={world}", *WORKER, "plain"], cwd=folder,
                                  env=dict(self.env, E_PACE_MS="0"), capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return (pathlib.Path(folder) / "final.0").read_bytes()

    def test_replaced_ranks_change_no_bit(self):
        self.start(0, ["--nproc-per-node=3", "--max-restarts=100000"])
        self.stack.callback(self.launchers[0].kill)
        faults = self.play([self.kill_worker, self.kill_worker, self.freeze_worker])
        self.assertGreater(faults, FAULTS // 3, self.logs())
        self.assertEqual(self.end(), self.undisturbed(3), self.logs())
        self.audit.assert_each_once(self, may_repeat=False)

    def test_a_call_that_fails_though_nobody_is_lost(self):
        """All wait for the next round, in which all go on; it counts as a restart, as a job could do nothing else."""
        self.env.update(E_FAULTS="nap:1:0:7", E_TIMEOUT_MS="1000", E_EPOCHS="3")
        self.start(0, ["--nproc-per-node=2", "--max-restarts=1"])
        self.stack.callback(self.launchers[0].kill)
        self.assertEqual(self.end(), self.undisturbed(2), self.logs())
        self.assertEqual(self.audit.look()[0], 1)
        self.audit.assert_each_once(self, may_repeat=False)

    # ---- several launchers on one host

    def test_launchers_come_and_go(self):
        port = free_port()
        flags = ["--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{port}", "--max-restarts=100000",
                 f"--rdzv-conf=last_call_timeout=1,heartbeat={HEARTBEAT_S}"]
        for node in range(3):
            self.start(node, flags)
            self.stack.callback(lambda n=node: self.launchers[n].kill())
            while node == 0 and not self.serves(port):
                time.sleep(0.01)

        def kill_launcher():
            node = self.random.choice(list(self.launchers))
            self.launchers[node].kill()
            self.launchers[node].wait()
            self.start(node, flags)
            return f"launcher {node} killed, and started again"

        self.assertGreater(self.play([self.kill_worker, self.freeze_worker, kill_launcher]), FAULTS // 3, self.logs())
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def start_three(self):
        """The first serves the store."""
        self.env["E_EPOCHS"] = "80" if HEARTBEAT_S < 5 else "400"  # a silence must fit in
        port = free_port()
        flags = ["--nnodes=1:3", f"--rdzv-endpoint=127.0.0.1:{port}",
                 f"--rdzv-conf=last_call_timeout=2,heartbeat={HEARTBEAT_S}"]
        for node in range(3):
            self.start(node, flags)
            self.stack.callback(lambda n=node: self.launchers[n].kill())
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
            node = self.random.choice(list(self.launchers))
            self.launchers[node].kill()
            self.launchers[node].wait()
            begin(node)
            return f"launcher {node} killed, and started again"

        def cut_link():
            node = self.random.choice([1, 2, 3])
            router.ip(f"link set to{node} down")
            time.sleep(self.random.uniform(0.1, 4))
            router.ip(f"link set to{node} up")
            return None  # a short cut is no fault

        faults = self.play([self.kill_worker, self.freeze_worker, kill_launcher, cut_link])
        self.assertGreater(faults, FAULTS // 3, self.logs())
        self.end()
        self.audit.assert_each_once(self, may_repeat=True)

    def machine(self, name):
        machine = lab.Machine(name)
        self.stack.callback(machine.holder.communicate)
        machine.start_as = lambda argv, **how: subprocess.Popen(machine.argv(argv), **how)
        return machine


if __name__ == "__main__":
    unittest.main(verbosity=1)
