"""Results and gradients of convolutions and pooling, and initial weights of their layers, as PyTorch computes them
(f32, CPU).
usage: make_torch_conv.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/autograd/op_cases_conv.h)"""
import json, os, sys
import torch, torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_torch_ops import numbers, op

CASES = [
    ("conv2d", F.conv2d, [(2, 3, 5, 4), (4, 3, 3, 2), (4,)]),
    ("conv2d without bias", F.conv2d, [(2, 3, 4, 5), (2, 3, 2, 3)]),
    ("conv2d of one channel", lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 1, 4, 5), (3, 1, 3, 3), (3,)]),
    ("conv2d to one channel", F.conv2d, [(1, 3, 4, 4), (1, 3, 2, 2), (1,)]),
    ("conv2d of one element", F.conv2d, [(1, 1, 1, 1), (1, 1, 1, 1), (1,)]),
    ("conv2d 1 x 1", F.conv2d, [(2, 5, 3, 3), (4, 5, 1, 1), (4,)]),
    ("conv2d padded", lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 3, 4, 5), (4, 3, 3, 3), (4,)]),
    ("conv2d strided", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), [(2, 2, 6, 5), (3, 2, 3, 3), (3,)]),
    ("conv2d oblong", lambda x, w: F.conv2d(x, w, None, (2, 1), (0, 2), (1, 2)), [(2, 2, 6, 5), (3, 2, 3, 2)]),
    ("conv2d dilated", lambda x, w, b: F.conv2d(x, w, b, dilation=2, padding=2), [(1, 2, 6, 6), (2, 2, 3, 3), (2,)]),
    ("conv2d groups", lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2), [(2, 4, 4, 4), (6, 2, 3, 3), (6,)]),
    ("conv2d depthwise", lambda x, w, b: F.conv2d(x, w, b, stride=2, groups=3), [(2, 3, 5, 5), (3, 1, 2, 2), (3,)]),
    ("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), [(2, 3, 7), (4, 3, 3), (4,)]),
    ("conv1d groups", lambda x, w, b: F.conv1d(x, w, b, dilation=2, groups=2), [(2, 4, 6), (6, 2, 2), (6,)]),
    ("conv_transpose2d", F.conv_transpose2d, [(2, 3, 4, 3), (3, 4, 2, 3), (4,)]),
    ("conv_transpose2d strided", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
     [(2, 3, 4, 3), (3, 2, 3, 3), (2,)]),
    ("conv_transpose2d groups", lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), 0, 0, 2, (1, 2)),
     [(1, 4, 3, 4), (4, 3, 2, 2)]),
    ("max_pool2d", lambda x: F.max_pool2d(x, 2), [(2, 3, 4, 5)]),
    ("max_pool2d overlapping", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), [(2, 3, 6, 5)]),
    ("max_pool2d dilated", lambda x: F.max_pool2d(x, (2, 3), 1, (1, 0), (2, 1)), [(2, 3, 5, 6)]),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), [(2, 3, 4, 5)]),
    ("avg_pool2d padded", lambda x: F.avg_pool2d(x, 3, 2, 1, True), [(2, 3, 6, 5)]),
    ("avg_pool2d inside", lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1, True, False), [(2, 3, 6, 5)]),
    ("avg_pool2d divided", lambda x: F.avg_pool2d(x, 2, divisor_override=3), [(1, 2, 4, 4)]),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), [(2, 3, 4, 5)]),
    ("adaptive_avg_pool2d uneven", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), [(2, 3, 5, 3)]),
]

MODULES = [("Conv2d", lambda: torch.nn.Conv2d(4, 6, (3, 2), groups=2)),
           ("ConvTranspose2d", lambda: torch.nn.ConvTranspose2d(4, 6, 3, groups=2))]


def module(name, make):
    """The state_dict of a layer that is made right after torch.manual_seed(0)."""
    torch.manual_seed(0)
    return {"name": name, "state": [[key, numbers(x)] for key, x in make().state_dict().items()]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "ops": [op(*c) for c in CASES],
                   "modules": [module(*m) for m in MODULES]}, f, separators=(",", ":"))
        f.write("\n")
