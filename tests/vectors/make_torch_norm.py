"""Results and gradients of normalisation as PyTorch computes them (f32, CPU). rms_norm, which 1.13 lacks, by its
formula.
usage: make_torch_norm.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/autograd/op_cases_norm.h)"""
import json, os, sys
import torch, torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_torch_ops import numbers, op


def batch(x, w, b): return F.batch_norm(x, None, None, w, b, True)


def given(x, w, b): return F.batch_norm(x, torch.tensor([0.25, -0.5, 1]), torch.tensor([0.5, 2, 1]), w, b)


def layer(x, w, b): return F.layer_norm(x, w.shape, w, b)


def group(x, w, b): return F.group_norm(x, 2, w, b)


CASES = [
    ("batch_norm", batch, [(3, 3, 4, 5), (3,), (3,)]), ("batch_norm of rows", batch, [(6, 3), (3,), (3,)]),
    ("batch_norm 3-d", batch, [(2, 3, 5), (3,), (3,)]),
    ("batch_norm wide", batch, [(2, 19, 3, 3), (19,), (19,)]),
    ("batch_norm plain", lambda x: F.batch_norm(x, None, None, training=True, eps=1e-3), [(2, 3, 4, 5)]),
    ("batch_norm given", given, [(2, 3, 4, 5), (3,), (3,)]),
    ("layer_norm", layer, [(4, 19), (19,), (19,)]), ("layer_norm of planes", layer, [(2, 3, 4, 5), (4, 5), (4, 5)]),
    ("layer_norm plain", lambda x: F.layer_norm(x, (5,), eps=1e-2), [(2, 3, 5)]),
    ("group_norm", group, [(2, 4, 3, 5), (4,), (4,)]), ("group_norm of rows", group, [(3, 8), (8,), (8,)]),
    ("rms_norm", lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w, [(2, 3, 7), (7,)]),
]


def running(momentum):
    """A layer's statistics after two steps of training, and what it makes of a third batch in evaluation."""
    layer = torch.nn.BatchNorm2d(3, momentum=momentum)
    torch.manual_seed(0)
    for step in range(2):
        layer(torch.rand(2, 3, 4, 5))
    layer.eval()
    y = layer(torch.rand(2, 3, 4, 5))
    return {"state": [[key, numbers(x)] for key, x in layer.state_dict().items()], "result": numbers(y)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "ops": [op(*c) for c in CASES], "running": running(0.3)}, f,
                  separators=(",", ":"))
        f.write("\n")
