"""The committed vectors of operators, optimizers and schedulers are what the PyTorch of this machine computes:
tests/unit/test_ops*.c, test_optim*.c and test_scheduler_torch.c hold Tutti to them. Skipped (77) where torch can't be
imported."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

VECTORS = os.path.join(os.environ["TT_SOURCE"], "tests", "vectors")
# make_torch_NAME.py makes torch-NAME.json
FAMILIES = ["ops", "optim", "index", "conv", "pointwise", "reduction", "text", "norm", "loss"]


def differences(want, got, where):
    """Places where the two differ by more than a rounding; machines add up in different orders."""
    if isinstance(want, dict):
        if want.keys() != got.keys():
            return [where]
        return [d for k in want if k not in ("torch", "bits") for d in differences(want[k], got[k], where + "/" + k)]
    if isinstance(want, list):
        if len(want) != len(got):
            return [where]
        return [d for i, (w, g) in enumerate(zip(want, got)) for d in differences(w, g, "%s/%d" % (where, i))]
    if isinstance(want, float):
        return [] if abs(want - got) <= 1e-6 * (1 + abs(want)) else ["%s: %.9g, here %.9g" % (where, want, got)]
    return [] if want == got else [where]


with tempfile.TemporaryDirectory() as folder:
    found = []
    for family in FAMILIES:
        made = os.path.join(folder, family + ".json")
        subprocess.run([sys.executable, os.path.join(VECTORS, "make_torch_%s.py" % family), made], check=True)
        with open(made) as here, open(os.path.join(VECTORS, "torch-%s.json" % family)) as committed:
            found += differences(json.load(committed), json.load(here), family)
for line in found[:10]:
    print(line)
sys.exit(1 if found else 0)
