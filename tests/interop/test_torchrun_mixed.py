"""tutti run and torchrun, of PyTorch 1.13 or current, are the two nodes of one job: either serves the rendezvous'
store, either is node 0, workers fail and are started again on both, nodes come, and one is killed."""

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import forked  # noqa: E402

try:
    import torch
except ImportError as error:
    print(f"skipped: PyTorch can't be imported ({error}); ./dev setup --interop installs it")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, "torch_worker.py")
PATIENCE = 0.3 * float(os.environ["TT_TIMEOUT"])
OLD = torch.__version__.startswith("1.")
TUTTI_FIRST, TUTTI_SECOND = "127.0.0.1", "zz.last"  # names before and after that of torchrun's node


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Launcher:
    """One that runs, and what it says."""

    def __init__(self, who, command):
        self.said = tempfile.TemporaryFile("w+")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "PET_"))}
        env.update(PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1", WHO=who, PYTHONWARNINGS="ignore",
                   TORCH_CPP_LOG_LEVEL="ERROR")
        start = subprocess.Popen if who == "tutti" else forked.popen
        self.process = start(command, env=env, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said,
                             start_new_session=True)

    def text(self):
        self.said.seek(0)
        return self.said.read()

    def wait(self, patience=PATIENCE):
        return self.process.wait(patience)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.said.close()


class Mixed(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.port = free_port()

    def start(self, who, command):
        launcher = Launcher(who, command)
        self.addCleanup(launcher.close)
        return launcher

    def tutti(self, *what, address=TUTTI_FIRST, host=True, nodes="2", restarts=0, conf=""):
        conf = f"protocol={'torch1' if OLD else 'torch'},is_host={'1' if host else '0'},last_call_timeout=2{conf}"
        return self.start("tutti", [os.environ["TUTTI"], "run", "--rdzv-backend=c10d", "--rdzv-id=mixed",
                                    f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--rdzv-conf={conf}",
                                    "--store-auth=none", f"--nnodes={nodes}", f"--local-addr={address}",
                                    "--nproc-per-node=2", f"--max-restarts={restarts}", "--role=a", WORKER,
                                    self.folder.name, *what])

    def torchrun(self, *what, host=False, nodes="2", restarts=0, conf=""):
        program = [os.path.join(HERE, "torchrun_old.py")] if OLD else ["-m", "torch.distributed.run",
                                                                      "--local_addr=localhost"]
        conf = f"is_host={'1' if host else '0'},last_call_timeout=2{conf}"
        return self.start("torchrun", [*program, "--rdzv_backend=c10d", "--rdzv_id=mixed",
                                       f"--rdzv_endpoint=127.0.0.1:{self.port}", f"--rdzv_conf={conf}",
                                       f"--nnodes={nodes}", "--nproc_per_node=1", f"--max_restarts={restarts}",
                                       "--role=b", "--monitor_interval=0.2", WORKER, self.folder.name, *what])

    def told(self, world, turn):
        """What the workers of a turn were told, by rank."""
        found = {}
        for rank in range(world):
            with open(os.path.join(self.folder.name, f"world-{world}-turn-{turn}-rank-{rank}")) as file:
                found[rank] = json.load(file)
        return found

    def wait_for(self, pattern, launchers):
        """Until some worker has written a file of that name."""
        deadline = time.monotonic() + PATIENCE
        while not glob.glob(os.path.join(self.folder.name, pattern)):
            if time.monotonic() > deadline or any(one.process.poll() is not None for one in launchers):
                self.fail(f"no {pattern}: " + "\n----\n".join(one.text() for one in launchers))
            time.sleep(0.05)

    def good(self, *launchers):
        for one in launchers:
            try:
                code = one.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                code = "none"
            self.assertEqual(code, 0, "\n----\n".join(f"{other.process.args}\n{other.text()}" for other in launchers))

    def check_ranks(self, world, turn, tutti_first):
        """Three workers, two of them ours, know of each other."""
        told = self.told(world, turn)
        ours = [0, 1] if tutti_first else [1, 2]
        for rank, of in told.items():
            where = rank in ours
            self.assertEqual(of["WHO"], "tutti" if where else "torchrun")
            self.assertEqual((of["WORLD_SIZE"], of["GROUP_WORLD_SIZE"]), ("3", "2"))
            self.assertEqual(of["GROUP_RANK"], "0" if where == tutti_first else "1")
            self.assertEqual((of["ROLE_NAME"], of["ROLE_WORLD_SIZE"]), ("a", "2") if where else ("b", "1"))
            self.assertEqual(of["ROLE_RANK"], str(ours.index(rank)) if where else "0")
            self.assertEqual(of["LOCAL_RANK"], of["ROLE_RANK"])
            self.assertEqual(of["LOCAL_WORLD_SIZE"], of["ROLE_WORLD_SIZE"])
            self.assertEqual(of["TORCHELASTIC_RUN_ID"], "mixed")
        for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE"):
            self.assertEqual(len({of[name] for of in told.values()}), 1, name)
        return told

    def test_tutti_serves(self):
        """Our store has the rendezvous; the workers meet in torchrun's."""
        nodes = self.tutti("sum", address=TUTTI_SECOND), self.torchrun("sum")
        self.good(*nodes)
        self.check_ranks(3, 0, tutti_first=False)
        said = "".join(one.text() for one in nodes)
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3: 6", said)

    def test_torchrun_serves(self):
        """PyTorch's store has the rendezvous; the workers meet in ours."""
        nodes = self.torchrun("sum", host=True), self.tutti("sum", host=False)
        self.good(*nodes)
        told = self.check_ranks(3, 0, tutti_first=True)
        self.assertEqual(told[0]["MASTER_ADDR"], TUTTI_FIRST)
        said = "".join(one.text() for one in nodes)
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3: 6", said)

    def fail_once(self, who):
        nodes = self.tutti("fail", who, restarts=2), self.torchrun("fail", who, restarts=2)
        self.good(*nodes)
        self.check_ranks(3, 0, tutti_first=True)
        told = self.check_ranks(3, 1, tutti_first=True)
        for of in told.values():  # who sees another node begin again counts no restart
            self.assertEqual(of["TORCHELASTIC_RESTART_COUNT"], "1" if of["WHO"] == who else "0")
        return nodes

    def test_our_failure(self):
        ours, _ = self.fail_once("tutti")
        self.assertIn("| ValueError: not this time\n", ours.text())

    def test_their_failure(self):
        ours, _ = self.fail_once("torchrun")
        self.assertIn(": all workers begin again", ours.text())

    def test_no_restart_left(self):
        """A node that gives up ends the job of the other."""
        if OLD:
            self.skipTest("an agent of 1.13 that gives up waits five minutes for the others first")
        ours, others = self.tutti("always", "torchrun", host=True), self.torchrun("always", "torchrun")
        self.assertEqual(others.wait(), 1, others.text())
        self.assertEqual(ours.wait(), 1, ours.text())
        self.assertIn("another node has ended the job", ours.text())

    def test_joining(self):
        """One of PyTorch's, alone at first, is joined by ours."""
        others = self.torchrun("world", "3", nodes="1:2", host=True)
        self.wait_for("world-1-turn-0-rank-0", [others])
        ours = self.tutti("world", "3", nodes="1:2", host=False)
        self.good(ours, others)
        self.check_ranks(3, 0, tutti_first=OLD)  # agents of 2.x stay with the address that agent 0 told first

    def test_signals(self):
        """A launcher that is told to end goes, and the other goes on alone; one that waits ends at once."""
        first = self.tutti("after", "2", "4", nodes="1:2")
        self.wait_for("world-2-turn-0-rank-1", [first])
        second = self.tutti("after", "2", "4", nodes="1:2", host=False, address="127.0.0.2")
        for rank in range(4):
            self.wait_for(f"world-4-turn-0-rank-{rank}", [first, second])
        second.process.terminate()
        self.assertEqual(second.wait(), 128 + signal.SIGTERM, second.text())
        self.good(first)
        self.assertIn("a node has left: all workers begin again", first.text())
        self.port = free_port()
        alone = self.tutti("after", "2", "4")
        deadline = time.monotonic() + PATIENCE
        while "waiting for other nodes: 1 of at least 2 is here" not in alone.text():
            self.assertLess(time.monotonic(), deadline, alone.text())
            time.sleep(0.05)
        alone.process.send_signal(signal.SIGINT)
        self.assertEqual(alone.wait(), 128 + signal.SIGINT, alone.text())

    def test_no_store(self):
        """Nobody serves the rendezvous."""
        alone = self.tutti("sum", host=False, conf=",join_timeout=1")
        self.assertEqual(alone.wait(), 1, alone.text())
        self.assertIn(f"127.0.0.1:{self.port}", alone.text())
        lonely = self.tutti("sum", conf=",join_timeout=1")
        self.assertEqual(lonely.wait(), 1, lonely.text())
        says = 'the rendezvous "mixed" was not complete within 1 s: 0 other nodes came, expected 1 at'
        self.assertIn(says, lonely.text())

    def test_growing_and_shrinking(self):
        """One of ours, alone at first, is joined, and goes on alone when the other is killed."""
        conf = "" if OLD else ",keep_alive_interval=1"  # 1.13 always takes 5 s
        ours = self.tutti("after", "2", "3", nodes="1:2", conf=conf)
        self.wait_for("world-2-turn-0-rank-1", [ours])
        others = self.torchrun("after", "2", "3", nodes="1:2", conf=conf)
        for rank in range(3):
            self.wait_for(f"world-3-turn-0-rank-{rank}", [ours, others])
        for of in self.check_ranks(3, 0, tutti_first=True).values():
            self.assertEqual(of["TORCHELASTIC_RESTART_COUNT"], "0")
        others.close()
        self.good(ours)
        self.assertIn("another node wants to join: all workers begin again", ours.text())
        self.assertIn("a node has left: all workers begin again", ours.text())


if __name__ == "__main__":
    try:
        socket.gethostbyname(socket.getfqdn())
    except OSError:
        print(f"skipped: torchrun needs a name of this host that can be resolved, not {socket.getfqdn()}")
        sys.exit(77)
    unittest.main()
