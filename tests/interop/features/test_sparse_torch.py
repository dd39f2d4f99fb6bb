"""Embeddings with sparse gradients beside PyTorch's, with the PyTorch that runs this: the same losses, parameters and
states.
TT_PARITY=docs/parity.md: put what was found into its table, in place of what this PyTorch's version had there. Skipped
(77) where torch can't be imported."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

try:
    import torch_parity
    from sparse_features import FEATURES
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

SECTION = torch_parity.Section("## Sparse gradients of embeddings", """
Made by `TT_PARITY=docs/parity.md tests/interop/features/test_sparse_torch.py`, run by ctest: 50 steps beside
`torch.nn.Embedding(sparse=True)` from the same seed; on several ranks beside DistributedDataParallel over gloo, each
rank reading rows of its own. How far the losses, and the parameters and states of the optimizer at the end, are apart
at most.

| optimizer | PyTorch | ranks | losses | parameters and states |
| --- | --- | ---: | ---: | ---: |""")


# Rows are of numbers up to 4, of which two neighbours are 5e-7 apart: PyTorch multiplies and adds in two roundings,
# Tutti in one.
SGD = (torch_parity.LOSSES, 3e-6)


def allowed(name, _):
    return SGD if name.startswith("SGD") else (torch_parity.LOSSES, torch_parity.PARAMETERS)


class Features(unittest.TestCase):
    def test_all(self):
        torch_parity.compare(self, SECTION, "sparse_features", FEATURES, (1, 2, 3), allowed)


if __name__ == "__main__":
    unittest.main(verbosity=1)
