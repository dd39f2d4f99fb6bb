"""The examples of RPC (examples/rpc_*.c) beside their twins in PyTorch (rpc_twins.py) on TensorPipe and, where the
bindings can be built, on Tutti: the same losses. Skipped (77) where torch can't be imported, or has no RPC."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import torch_package  # noqa: E402: skips without torch
from patience import DEADLINE  # noqa: E402
from torch.distributed import rpc  # noqa: E402

TWINS = pathlib.Path(__file__).with_name("rpc_twins.py")
TUTTI = os.environ["TUTTI"]
RANKS, APART = 3, 1e-5  # of the twins

# NAME: ranks, flags
EXAMPLES = {
    "parameter_server": (3, ["--data", "digits", "--batches", "8"]),
    "batch_server": (3, ["--data", "digits", "--batches", "8"]),
    "reinforce": (3, ["--episodes", "6"]),
    "rnn": (2, ["--data", "text", "--batches", "8"]),
    "pipeline": (3, ["--data", "digits", "--batches", "8"]),
}


def backends():
    """TUTTI is for PyTorch 2, and no sanitizer's runtime comes before Python."""
    can_load = torch_package.VERSION >= (2, 0) and "TT_SANITIZED" not in os.environ
    return ["TENSORPIPE"] + (["TUTTI"] if can_load and not torch_package.build() else [])


def losses(out):
    """{what stands before a loss: the loss}"""
    return {what: float(loss) for what, loss in re.findall(r"^(.*)\bloss (-?[\d.]+)$", out, re.M)}


def run_example(name, folder):
    ranks, flags = EXAMPLES[name]
    done = subprocess.run([TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}",
                           os.path.join(os.environ["TT_BUILD"], "examples", f"rpc_{name}"), *flags], cwd=folder,
                          capture_output=True, text=True, timeout=DEADLINE, check=False,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return losses(done.stdout)


class Examples(unittest.TestCase):
    def compare(self, case, twin, example):
        self.assertEqual(twin.returncode, 0, twin.stdout + twin.stderr)
        theirs = losses(twin.stdout)
        self.assertEqual(theirs.keys(), example.keys())
        apart = max(abs(theirs[what] - loss) for what, loss in example.items())
        print(f"{case}: {len(example)} losses, {apart:.1e} apart at most")
        self.assertLessEqual(apart, APART)

    def test_losses(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([TUTTI, "data", "digits", "digits", "--train=600", "--test=10"], cwd=folder, check=True,
                           capture_output=True)
            pathlib.Path(folder, "text").write_bytes(pathlib.Path(os.environ["TT_SOURCE"], "LICENSE").read_bytes())
            cases = {f"{name} on {backend}": (name, {"TT_RPC_BACKEND": backend, "TT_TWIN_DATA": folder})
                     for backend in backends() for name in EXAMPLES}
            examples = {name: run_example(name, folder) for name in EXAMPLES}
            for case, twin in torch_package.launch_cases(RANKS, TWINS, cases).items():
                with self.subTest(case):
                    self.compare(case, twin, examples[cases[case][0]])


if __name__ == "__main__":
    if not rpc.is_available():
        print("skipped: this PyTorch has no RPC")
        sys.exit(77)
    unittest.main(verbosity=1)
