"""The back end for PyTorch: tensors in memory that ranks share, DistributedDataParallel's buckets among them. Skipped
(77) where torch or its headers are not installed, and under a sanitizer."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_package  # noqa: E402
from long_form import gate  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("torch_symmetric.py")


class Symmetric(unittest.TestCase):
    def test_tensors_and_buckets(self):
        for world in gate((3,), (2, 3)):
            with self.subTest(world=world):
                done = torch_package.launch(world, PROGRAM)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    torch_package.main()
