"""Results and gradients of losses, as PyTorch computes them (f32, CPU).
usage: make_torch_loss.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/autograd/op_cases_loss.h)"""
import json
import sys

import torch
import torch.nn.functional as F

from make_torch_ops import op


def targets(x, ignored=None):
    t = torch.arange(x.shape[0]) * 3 % x.shape[1]
    if ignored is not None:
        t[1::3] = ignored
    return t


def image_targets(x):
    t = torch.arange(x.numel() // x.shape[1]) * 3 % x.shape[1]
    t[1::3] = -100
    return t.reshape(x.shape[0], *x.shape[2:])


def weights(x): return torch.arange(x.shape[1]).float() * 0.3 + 0.5


def half(x): return x * 0.45 + 0.5


def pair(name, f, shape=(4, 5)): return (name, f, [shape, shape])


def rows(name, f, shape=(7, 5)): return (name, f, [shape])


def bce(x, z, **options): return F.binary_cross_entropy_with_logits(4 * x, half(z), **options)


CASES = [
    rows("nll_loss sum", lambda x: F.nll_loss(x, targets(x), reduction="sum"), (4, 5)),
    rows("nll_loss weight", lambda x: F.nll_loss(x, targets(x, -100), weights(x))),
    rows("nll_loss none", lambda x: F.nll_loss(x, targets(x, 2), ignore_index=2, reduction="none")),
    rows("cross_entropy ignore", lambda x: F.cross_entropy(x, targets(x, -100))),
    rows("cross_entropy smooth", lambda x: F.cross_entropy(x, targets(x), label_smoothing=0.1), (4, 19)),
    rows("cross_entropy all",
         lambda x: F.cross_entropy(x, targets(x, 1), weights(x), ignore_index=1, label_smoothing=0.3)),
    rows("cross_entropy none", lambda x: F.cross_entropy(x, targets(x, 1), weights(x), ignore_index=1,
                                                         label_smoothing=0.3, reduction="none")),
    rows("cross_entropy images", lambda x: F.cross_entropy(x, image_targets(x), weights(x)), (2, 3, 4, 5)),
    rows("cross_entropy images none", lambda x: F.cross_entropy(x, image_targets(x), reduction="none"), (2, 3, 4, 5)),
    rows("nll_loss images", lambda x: F.nll_loss(x, image_targets(x)), (2, 3, 4, 5)),
    pair("mse_loss sum", lambda x, z: F.mse_loss(x, z, reduction="sum")),
    pair("mse_loss none", lambda x, z: F.mse_loss(x, z, reduction="none")), pair("l1_loss", F.l1_loss),
    pair("l1_loss none", lambda x, z: F.l1_loss(x, z, reduction="none")), pair("smooth_l1_loss", F.smooth_l1_loss),
    pair("smooth_l1_loss half", lambda x, z: F.smooth_l1_loss(x, z, reduction="sum", beta=0.4)),
    pair("bce_with_logits", bce),
    pair("bce_with_logits weights", lambda x, z: bce(x, z, weight=weights(x), pos_weight=3 * weights(x))),
    pair("kl_div", lambda x, z: F.kl_div(x, half(z), reduction="mean")),
    pair("kl_div batchmean", lambda x, z: F.kl_div(x, half(z), reduction="batchmean")),
    pair("kl_div log_target", lambda x, z: F.kl_div(x, z, reduction="none", log_target=True)),
]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as f:
        json.dump({"torch": torch.__version__, "ops": [op(*c) for c in CASES]}, f, separators=(",", ":"))
        f.write("\n")
