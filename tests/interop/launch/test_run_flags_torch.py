"""tutti run and tutti launch give workers what the current torchrun and torch.distributed.launch give them: with the
same flags the same arguments and the same variables, but for what the launcher chooses itself."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TUTTI = os.environ["TUTTI"]
PYTHON = os.path.join(os.environ["TT_SOURCE"], "build", "peers", "torch", "bin", "python3")
TIMEOUT = 0.3 * float(os.environ["TT_TIMEOUT"])

SHOW = """
import json, os, sys
names = [n for n in os.environ if n.endswith("RANK") or n.endswith("WORLD_SIZE") or
         n.startswith(("TORCH", "ROLE_", "CUDA", "HIP_", "MASTER_", "OMP"))]
line = json.dumps([sys.argv[1:], __name__, {n: os.environ[n] for n in names}])
with open(os.path.join(os.environ["OUT"], os.environ["RANK"]), "w") as file:
    file.write(line)
"""

# Chosen by each launcher: the store's address and port; where error files lie; NCCL's variable has two names.
CHOSEN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID"}

RUN = ([TUTTI, "run"], [PYTHON, "-m", "torch.distributed.run"])
LAUNCH = ([TUTTI, "launch"], [PYTHON, "-m", "torch.distributed.launch"])


class Flags(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.script = os.path.join(self.folder.name, "show.py")
        with open(self.script, "w") as file:
            file.write(SHOW)

    def show(self, launcher, args, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "PET_"))}
        env.update(PYTHON_EXEC=PYTHON, PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
        env.update(PYTHONPATH=self.folder.name, **more)
        with tempfile.TemporaryDirectory() as out:
            said = subprocess.run([*launcher, *args], env=dict(env, OUT=out), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TIMEOUT)
            shown = {}
            for rank in sorted(os.listdir(out)):
                with open(os.path.join(out, rank)) as file:
                    args, name, variables = json.load(file)
                shown[rank] = args, name, {n: v for n, v in variables.items() if n not in CHOSEN}
        return said, shown

    def compare(self, launchers, *args, ranks=2, **more):
        shown = []
        for launcher in launchers:
            said, seen = self.show(launcher, args, **more)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(len(seen), ranks)
            shown.append(seen)
        self.maxDiff = None
        self.assertEqual(shown[0], shown[1])
        return shown[0]

    def test_run(self):
        self.compare(RUN, "--nproc-per-node=2", "--role=trainer", "--max_restarts", "0", self.script, "a", "--nnodes=3")
        self.compare(RUN, "--nproc_per_n=2", "--start-m", "spawn", "--monitor-i=0.2", "-m", "show", "-m", "x")
        self.compare(RUN, "--run-path", "--standal", "--nproc_per_no", "2", self.script, "a")

    def test_variables(self):
        self.compare(RUN, self.script, PET_NPROC_PER_NODE="3", PET_ROLE="x", PET_STANDALONE="1",
        PET_MONITOR_INTERVAL="1",
                     PET_SIGNALS_TO_HANDLE="SIGTERM,SIGUSR1", PET_SHUTDOWN_TIMEOUT="3", ranks=3)

    def test_devices(self):
        self.compare(RUN, "--nproc-per-node=2", "--virtual_local_rank", self.script, CUDA_VISIBLE_DEVICES="4, 7,1")
        self.compare(RUN, "--nproc-per-node=2", "--virtual-local-rank", self.script, CUDA_VISIBLE_DEVICES="4,7",
                     HIP_VISIBLE_DEVICES="3,2")

    def test_launch(self):
        seen = self.compare(LAUNCH, "--nproc_per_node=2", "--node_rank=0", self.script, "a")
        self.assertEqual(seen["1"][0], ["--local-rank=1", "a"])
        self.compare(LAUNCH, "--use_env", "--nproc_per_node=2", self.script, "a")
        self.compare(LAUNCH, "--nproc-per-node=2", "-m", "show", "a")
        for launcher in LAUNCH:
            said, seen = self.show(launcher, ["--no_python", "true"])
            self.assertNotEqual(said.returncode, 0)

    def test_page(self):
        """The page about torchrun's flags has a line for each, and its table no others."""
        said = subprocess.run([*RUN[1], "--help"], capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
        theirs = set(re.findall(r"(?m)^  (?:-\w(?: \w+)?, )?(--[a-z][a-z_-]*)", said)) - {"--help"}
        with open(os.path.join(os.environ["TT_SOURCE"], "docs", "launch", "torchrun.md")) as page:
            ours = {re.findall("`(--[a-z-]+)`", line)[0] for line in page if re.match(r"\| `-", line)}
        self.assertGreater(len(theirs), 25)
        self.assertEqual(ours, {flag.replace("_", "-") for flag in theirs})

    def test_refused(self):
        """What torchrun takes for wrong is wrong here, and starts nothing."""
        for flags in (["--nproc-per-node=unknown"], ["--local-ranks-filter=a"], ["--no-python", "-m"], ["--log"]):
            for launcher in RUN:
                said, seen = self.show(launcher, [*flags, self.script])
                self.assertNotEqual(said.returncode, 0, flags)
                self.assertEqual(seen, {})


if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: ./dev setup --torch fetches PyTorch")
        sys.exit(77)
    unittest.main()
