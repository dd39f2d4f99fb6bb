"""bindings/torch, built for the PyTorch that runs this: features of torch.distributed beside gloo's
(torch_features.py). Skipped (77) where torch or its headers are missing, and under a sanitizer."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import torch_package  # noqa: E402

PROGRAM, FUTURES = HERE / "torch_features.py", HERE / "torch_futures.py"
AS_GLOO = HERE / "torch_as_gloo.py"


class Features(unittest.TestCase):
    def part(self, name, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            if " lacks " in line or "checks" in line:
                print(line)
        self.assertRegex(done.stdout, rf"{name}: [1-9]\d* checks|{name} lacks all")

    def test_groups_and_sharding(self):
        # PyTorch's own recorder, which it attaches to back ends of others, writes its files in a thread when a group
        # breaks; a process that ends meanwhile is aborted ("exception not rethrown").
        for name, done in torch_package.launch_cases(4, PROGRAM, {n: (n, {}) for n in ("groups", "sharding")}).items():
            with self.subTest(name):
                self.part(name, done)

    def test_training(self):
        self.part("training", torch_package.launch(2, PROGRAM, "training"))

    def test_futures(self):
        self.part("futures", torch_package.launch(2, FUTURES, "futures"))

    def test_gloo_s_name(self):
        for name, world, value, said in (("works", 2, "1", 1), ("without", 1, "", 0), ("refused", 1, "yes", 0)):
            with self.subTest(name):
                done = torch_package.launch(world, AS_GLOO, name, TUTTI_TORCH_AS_GLOO=value)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stderr.count("TUTTI_TORCH_AS_GLOO=1: "), said, done.stderr)


if __name__ == "__main__":
    torch_package.main()
