"""Pipelines beside the unsplit model in the PyTorch that runs this: the same losses and parameters over 50 steps, with
micro-batches of different sizes. TT_PARITY=docs/parity.md: put what was found into its table, in place of what this
PyTorch's version had there. Skipped (77) where torch can't be imported."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch
    import torch_parity
    from pipeline_features import FEATURES, train
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Pipelines", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_pipeline_torch.py`, run by ctest: 50 steps of SGD with
momentum on batches of 14 examples in 6 micro-batches, beside the unsplit model in PyTorch, from the same seed. How far
the losses, and the parameters at the end, are apart at most.

| schedule | PyTorch | ranks | losses | parameters |
| --- | --- | ---: | ---: | ---: |""")


class Pipelines(unittest.TestCase):
    def test_all(self):
        torch.set_num_threads(1)
        wanted = {}
        for name in FEATURES:
            losses, parameters = train(name)
            wanted[name] = {"loss": losses, **parameters}
        for world in (2, 3):
            with tempfile.TemporaryDirectory() as folder:
                torch_parity.train(world, torch_parity.program("pipeline_features"), folder)
                for name, theirs in wanted.items():
                    ours = {}
                    for what in ("losses", "state"):
                        ours.update(torch_parity.read(pathlib.Path(folder, f"tutti.{what}.{name}")))
                    with self.subTest(name=name, world=world):
                        SECTION.check(self, name, world, torch_parity.apart(ours, theirs))
        SECTION.write()


if __name__ == "__main__":
    unittest.main(verbosity=1)
