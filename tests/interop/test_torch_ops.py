"""The committed vectors of operators, optimizers, schedulers, models, weighted samplers and transforms are what the
PyTorch of this machine computes: the programs of tests/unit that read them hold Tutti to them. Models and transforms
only where there is torchvision. Skipped (77) where torch can't be
imported."""
import json
import os
import runpy
import sys
import tempfile
import traceback

try:
    import torch
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

VECTORS = os.path.join(os.environ["TT_SOURCE"], "tests", "vectors")
# make_torch_NAME.py makes torch-NAME.json
FAMILIES = ["ops", "optim", "index", "conv", "pointwise", "reduction", "text", "norm", "loss", "modules", "attention",
            "init", "gpt", "weighted"]
if torch.__version__.startswith("1."):
    FAMILIES.append("autocast")
else:
    print("autocast is left out: its 16-bit sums are rounded otherwise than in 1.13")
try:
    import torchvision  # noqa: F401
    FAMILIES += ["models", "transforms"]
except ImportError as error:
    print("models and transforms are left out: cannot import torchvision:", error)


def is_drawn_otherwise(family, case):
    """What PyTorch 2.15 draws in another way than 1.13: truncated normals, and one sample with replacement."""
    if family == "init":
        return case["call"].startswith("trunc_normal_")
    return family == "weighted" and case["replacement"] and case["n"] == 1


def comparable(family, vectors):
    if torch.__version__.startswith("1.") or "cases" not in vectors:
        return vectors
    return {**vectors, "cases": [case for case in vectors["cases"] if not is_drawn_otherwise(family, case)]}


def numbers_differ(want, got, where):
    """The same of a tensor that is stored byte by byte."""
    types = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "bool": torch.bool}
    a, b = (torch.frombuffer(bytearray.fromhex(x["hex"]), dtype=types[x["dtype"]]).double() for x in (want, got))
    same = a.shape == b.shape and want["shape"] == got["shape"] and torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    return [] if same else [where]


def half_differs(want, got, where):
    """Numbers of bf16 in between: a processor with products of bf16 rounds in other places than one that has none."""
    pairs = list(zip(want, got)) if isinstance(want, list) else [(want, got)]
    scale = max(abs(w) for w, _ in pairs)
    return ["%s: %.9g, here %.9g" % (where, w, g) for w, g in pairs if abs(w - g) > 2**-6 * scale]


def is_half(want, where):
    numbers = want if isinstance(want, list) else [want]
    return "/bf16/" in where and numbers and all(isinstance(number, float) for number in numbers)


def differences(want, got, where):
    """Places where the two differ by more than a rounding; machines add up in different orders."""
    if isinstance(want, dict) and "hex" in want:
        return numbers_differ(want, got, where)
    if isinstance(want, dict):
        if want.keys() != got.keys():
            return [where]
        compared = [k for k in want if k not in ("torch", "torchvision", "bits")]
        return [d for k in compared for d in differences(want[k], got[k], where + "/" + k)]
    if isinstance(want, list) and len(want) != len(got):
        return [where]
    if is_half(want, where):
        return half_differs(want, got, where)
    if isinstance(want, list):
        return [d for i, (w, g) in enumerate(zip(want, got)) for d in differences(w, g, "%s/%d" % (where, i))]
    if isinstance(want, float):
        return [] if abs(want - got) <= 1e-5 * (1 + abs(want)) else ["%s: %.9g, here %.9g" % (where, want, got)]
    return [] if want == got else [where]


def make(family, made):
    """In a process of its own, that has imported torch already."""
    script = os.path.join(VECTORS, "make_torch_%s.py" % family)
    child = os.fork()
    if not child:
        sys.argv, sys.path[0] = [script, made], VECTORS
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # and not by way of the folder's end
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(script + " failed")


with tempfile.TemporaryDirectory() as folder:
    found = []
    for family in FAMILIES:
        made = os.path.join(folder, family + ".json")
        make(family, made)
        with open(made) as here, open(os.path.join(VECTORS, "torch-%s.json" % family)) as committed:
            want, got = (comparable(family, json.load(file)) for file in (committed, here))
            found += differences(want, got, family)
for line in found[:10]:
    print(line)
sys.exit(1 if found else 0)
