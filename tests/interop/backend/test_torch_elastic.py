"""bindings/torch, built for the PyTorch that runs this: tutti_torch.elastic, by its example (examples/torch). A rank is
killed, ended and frozen in the midst of training; the others go on without it and with a newcomer, with the losses of a
run that lost nobody. TT_STORM_CASES: so many random losses, with TT_STORM_SEED. Skipped (77) where torch or its headers
are missing, and under a sanitizer."""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import torch_package  # noqa: E402
from long_form import gate  # noqa: E402
from patience import DEADLINE, STRICT  # noqa: E402

EXAMPLE = HERE.parents[2] / "examples/torch/elastic_train.py"
WORLD = 4


def losses(said):
    found = re.search(r"^losses (.*)$", said, re.MULTILINE)
    return [float(loss) for loss in found[1].split()] if found else None


class Job:
    """Ranks that this program starts, in place of a launcher, and the store where they meet."""

    def __init__(self, test, *arguments):
        from torch.distributed import TCPStore
        self.store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        self.arguments = arguments
        self.ranks = {}
        test.addCleanup(self.end)
        for rank in range(WORLD):
            self.start(rank)

    def start(self, rank):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port), "WORLD_SIZE": str(WORLD),
                  "TORCHELASTIC_USE_AGENT_STORE": "True"}
        self.ranks[rank] = subprocess.Popen([sys.executable, str(EXAMPLE), *self.arguments], text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                            env=torch_package.environment(**shared, RANK=str(rank)))

    def until(self, rank, pattern):
        """What the rank says until a line matches, that one included."""
        said = ""
        for line in self.ranks[rank].stdout:
            said += line
            if re.search(pattern, line):
                return said
        raise AssertionError(f"rank {rank} ended without {pattern!r}:\n{said}")

    def wait(self):
        """{rank: (exit code, what else it said)}."""
        said = {rank: each.communicate(timeout=DEADLINE)[0] for rank, each in self.ranks.items()}
        return {rank: (self.ranks[rank].returncode, text) for rank, text in said.items()}

    def end(self):
        for rank in self.ranks.values():
            rank.kill()
            rank.communicate()


class Elastic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.undisturbed = torch_package.launch(WORLD, EXAMPLE)
        if "needs PyTorch 2.13 or newer" in cls.undisturbed.stderr:
            raise unittest.SkipTest("this PyTorch has no reconfigure()")
        assert cls.undisturbed.returncode == 0, cls.undisturbed.stderr
        cls.losses = losses(cls.undisturbed.stdout)

    def expect_losses(self, said):
        got = losses(said)
        self.assertIsNotNone(got, said)
        for ours, right in zip(got, self.losses):  # on another number of ranks the sums have another order
            self.assertAlmostEqual(ours, right, delta=2e-4)

    def test_tutti_run_replaces_a_lost_rank(self):
        for number in gate((9,), (9, 15)):
            job = subprocess.run([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={WORLD}",
                                  "--max-restarts=3", sys.executable, EXAMPLE, "--lose=20", f"--signal={number}"],
                                 capture_output=True, text=True, timeout=DEADLINE, env=torch_package.environment(),
                                 check=False)
            self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
            self.assertRegex(job.stdout, r"4 ranks go on at step 20: rank 1 \(pid \d+\) (was killed|ended)")
            self.assertEqual(losses(job.stdout), self.losses)  # to the last digit

    def test_the_others_go_on(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            job = Job(self, "--lose=20", f"--signal={number}")
            ended = job.wait()
            self.assertEqual([code for code, _ in ended.values()], [0, -number, 0, 0], ended)
            said = ended[0][1]
            self.assertRegex(said, r"3 ranks go on at step 20: TT_ERR_PEER: rank 1 \(pid \d+\)")
            self.expect_losses(said)

    def test_a_newcomer_joins(self):
        job = Job(self, "--lose=20", "--steps=200000")
        self.assertIn("3 ranks go on at step 20", job.until(0, "ranks go on"))
        self.assertEqual(job.ranks[1].wait(DEADLINE), -signal.SIGKILL)
        job.ranks[1].communicate()
        job.start(1)
        self.assertIn("4 ranks go on", job.until(0, "ranks go on"))
        job.ranks[0].kill()  # it can be lost, too: the next one is rank 0 then
        self.assertIn("3 ranks go on", job.until(2, "ranks go on"))

    def test_a_frozen_rank_comes_back(self):
        job = Job(self, "--lose=20", f"--signal={int(signal.SIGSTOP)}", "--steps=200000")
        self.assertRegex(job.until(0, "ranks go on"), r"3 ranks go on at step 20: .*rank 1 .* is frozen")
        job.ranks[1].send_signal(signal.SIGCONT)
        self.assertIn("4 ranks go on", job.until(0, "ranks go on"))

    def test_what_is_wrong_is_said(self):
        for program, said in (("elastic.init()", "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT is missing"),
                              ("elastic.members()", "expected elastic.init() before"),
                              ("elastic.State(commit=1)", "got 'commit'"),
                              ("elastic.State(a=1).b = 2", "elastic.State has no 'b'"),
                              ("elastic.State(a=1).commit()", "expected elastic.init() before"),
                              ("elastic.run(print)(1)", "expected elastic.init() before")):
            done = subprocess.run([sys.executable, "-c", f"import tutti_torch.elastic as elastic; {program}"],
                                  capture_output=True, text=True, timeout=DEADLINE,
                                  env=self.bare(), check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    @staticmethod
    def bare():
        """Without a launcher's variables."""
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        return {name: value for name, value in torch_package.environment().items() if name not in names}

    def test_random_losses(self):
        """Kill to next step: under a second, but for a frozen rank, which the heartbeat finds."""
        cases, seed = int(os.environ.get("TT_STORM_CASES", gate(2, 20))), os.environ.get("TT_STORM_SEED", "17")
        draws, times = random.Random(seed), []
        for _ in range(cases):
            number, step = draws.choice((signal.SIGKILL, signal.SIGTERM)), draws.randrange(150)
            ended = Job(self, f"--lose={step}", f"--signal={int(number)}", "--times").wait()
            said = ended[0][1]
            with self.subTest(seed=seed, number=number, step=step):
                self.assertEqual([code for code, _ in ended.values()], [0, -number, 0, 0], ended)
                self.expect_losses(said)
                lost = float(re.search(r"is lost at (\S+)", ended[1][1])[1])
                times.append(float(re.search(rf"^step {step + 1} on 3 ranks at (\S+)", said, re.MULTILINE)[1]) - lost)
        times.sort()
        late = times[int(0.95 * (len(times) - 1))]
        print(f"{cases} losses (seed {seed}): to the next step median {times[len(times) // 2]:.3f} s, "
              f"95th percentile {late:.3f} s")
        if STRICT:
            self.assertLess(late, 1)


if __name__ == "__main__":
    torch_package.main()
