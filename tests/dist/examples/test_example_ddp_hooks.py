"""ddp_hooks: with each hook two ranks learn digits as well as without one, within a point; of digits that are drawn,
and in the long form of MNIST's test set where it is here. What a hook remembers is saved and loaded."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from long_form import LONG  # noqa: E402

TUTTI, BUILD, SOURCE = os.environ["TUTTI"], os.environ["TT_BUILD"], os.environ["TT_SOURCE"]
DEADLINE = 0.9 * float(os.environ["TT_TIMEOUT"])
SANITIZED = bool(os.environ.get("TT_SANITIZED"))
PLACES = [os.environ.get("TT_MNIST", ""), os.path.join(SOURCE, "..", "shared", "data", "mnist")]
NAMES = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
FOUND = [p for p in PLACES if p and all(os.path.exists(os.path.join(p, n)) for n in NAMES)]
MNIST = [f"--{name}={os.path.join(FOUND[0], file)}" for name, file in zip(("images", "labels"), NAMES)
         if FOUND and LONG]


def run(*flags, ranks=2):
    return subprocess.run([TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}",
                           os.path.join(BUILD, "examples", "ddp_hooks"), *flags],
                          capture_output=True, text=True, timeout=DEADLINE, check=False)


def accuracy(hook, *flags):
    done = run("--hook", hook, *flags)
    assert done.returncode == 0, done.stderr
    lines = re.findall(rf"^{hook}, epoch \d+: held-out accuracy ([\d.]+) %", done.stdout, flags=re.M)
    return float(lines[-1])


class Hooks(unittest.TestCase):
    def test_all_learn_alike(self):
        flags = ["--epochs=1", "--hidden=32"] if SANITIZED else MNIST
        without = accuracy("none", *flags)
        print(f"{'MNIST' if flags == MNIST and MNIST else 'drawn digits'}: none {without} %")
        if flags == MNIST and MNIST:
            self.assertGreaterEqual(without, 92)
        for hook in ("all_reduce", "f16", "bf16", "int8", "top_k", "powersgd", "own"):
            with self.subTest(hook=hook):
                found = accuracy(hook, *flags)
                print(hook, found)
                self.assertGreaterEqual(found, without - (10 if SANITIZED else 1))

    def test_state_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = os.path.join(folder, "hook")
            for hook in ("int8", "top_k", "powersgd"):
                flags = ("--hook", hook, "--epochs=1", "--hidden=32")
                self.assertEqual(run(*flags, "--save", prefix).returncode, 0)
                self.assertEqual(sorted(os.listdir(folder)), ["hook.0.safetensors", "hook.1.safetensors"])
                self.assertEqual(run(*flags, "--load", prefix).returncode, 0)
                self.assertEqual(run(*flags, "--load", prefix, ranks=1).returncode, 0)
            os.remove(os.path.join(folder, "hook.1.safetensors"))
            done = run(*flags, "--load", prefix)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("rank 1 begins without a state", done.stderr)

    def test_an_unknown_hook_is_named(self):
        done = run("--hook", "f8")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('there is none named "f8"', done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
