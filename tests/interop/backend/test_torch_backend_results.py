"""Every call of torch.distributed on the back end tutti, built for the PyTorch that runs this, beside gloo and beside
its definition, on 1 to 4 ranks: torch_results.py, torch_cases.py. Skipped (77) where torch or its headers are not
installed, and under a sanitizer."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_package  # noqa: E402
from long_form import gate  # noqa: E402


class Results(unittest.TestCase):
    def test_every_call_on_1_to_4_ranks(self):
        for world in gate((1, 3), (1, 2, 3, 4)):
            with self.subTest(world=world):
                done = torch_package.launch(world, pathlib.Path(__file__).resolve().parent / "torch_results.py")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    torch_package.main()
