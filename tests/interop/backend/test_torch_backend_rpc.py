"""The back end TUTTI of torch.distributed.rpc (torch_rpc_agent.py), beyond PyTorch's own tests of RPC
(test_torch_rpc_cases.py). Skipped (77) where torch or its headers are not installed, or has no RPC, and under a
sanitizer."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_package  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("torch_rpc_agent.py")


class Agent(unittest.TestCase):
    def test_calls(self):
        cases = {name: (name, {}) for name in ("tensors", "refused", "taken", "errors", "late", "left")}
        for name, done in torch_package.launch_cases(2, PROGRAM, cases).items():
            with self.subTest(name):
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count(f"{name} done"), 2, done.stdout)

    def test_a_killed_worker_is_named(self):
        done = torch_package.launch(2, PROGRAM, "killed")
        self.assertIn("killed done", done.stdout, done.stdout + done.stderr)


if __name__ == "__main__":
    if torch_package.VERSION < (2, 0):
        print("skipped: the back end TUTTI of RPC is for PyTorch 2")
        sys.exit(77)
    torch_package.main()
