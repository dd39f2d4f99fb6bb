"""bindings/torch, built for the PyTorch that runs this: its collectives give gloo's results, DistributedDataParallel
gloo's losses, and a rank that differs or dies is named on all others with the line of its script. Skipped (77) where
torch or its headers are not installed, and under a sanitizer."""
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

try:
    import torch
    from patience import DEADLINE
except ImportError as missing:
    print("skipped: cannot import torch:", missing)
    sys.exit(77)

BUILD = pathlib.Path(os.environ["TT_BUILD"])
PACKAGE = BUILD / "bindings" / f"torch-{torch.__version__}"


def build():
    """Returns why it can't be built for lack of headers; None: it is built."""
    found = subprocess.run([sys.executable, "-I", ROOT / "bindings/torch/find_torch.py"], capture_output=True,
                           text=True, check=False)
    if found.returncode:
        return found.stderr.strip()
    configure = ["cmake", "-S", ROOT / "bindings/torch", "-B", PACKAGE, "-G", "Ninja", f"-DTUTTI_BUILD={BUILD}",
                 f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", PACKAGE, "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return None


def launch(world, *arguments):
    return subprocess.run([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={world}", sys.executable,
                           str(HERE / "torch_backend.py"), *arguments], capture_output=True, text=True,
                          timeout=DEADLINE, check=False,
                          env=dict(os.environ, PYTHONPATH=str(PACKAGE), OMP_NUM_THREADS="1"))


class BackEnd(unittest.TestCase):
    def test_gloo_s_results(self):
        for world in (1, 2, 3, 4):
            with self.subTest(world=world):
                done = launch(world)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_rank_that_differs_is_named(self):
        done = launch(3, "mismatch")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 3, done.stdout)
        for line in lines:
            self.assertRegex(line, r"TT_ERR_MISMATCH: .*rank 0 called all_reduce\(f32 x 4, sum\) at "
                             r"torch_backend\.py:\d+ while ranks 1-2 called all_reduce\(f32 x \d, sum\)")

    def test_a_rank_that_dies_is_named(self):
        done = launch(3, "death")
        errors = [line for line in done.stdout.splitlines() if "TT_ERR" in line]
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(errors and all("TT_ERR_PEER: rank 0 (" in line for line in errors), done.stdout + done.stderr)
        self.assertNotIn("no error", done.stdout)


if __name__ == "__main__":
    if "TT_SANITIZED" in os.environ:
        print("skipped: Python does not load a sanitizer's runtime before the library that needs it")
        sys.exit(77)
    lacking = build()
    if lacking:
        print("skipped:", lacking)
        sys.exit(77)
    unittest.main(verbosity=1)
