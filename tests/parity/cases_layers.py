"""Normalisation, attention, losses, products and convolutions of other kinds."""
import math

import torch
import torch.nn.functional as F
from cases_conv import named, pair
from parity import Case

CASES = {}
REDUCTIONS = ("mean", "sum", "none", "batchmean")


def case(function):
    CASES[function.__name__] = function
    return function


def affine(choose, shape):
    """Weight and bias, or none."""
    if choose.random() < 0.3:
        return [None, None]
    return [choose.floats(shape, 0.2, 2), choose.floats(shape)]


def images(choose, channels):
    return choose.floats([choose.randint(1, 4), channels, *(choose.randint(1, 7) for _ in range(choose.randint(1, 2)))])


@case
def batch_norm(choose):
    channels = choose.channels(6)
    x = images(choose, channels)
    x = torch.cat([x, x * 0.7 + 0.1])  # at least two elements a channel
    return Case([x, *affine(choose, [channels])], lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=1e-3),
                eps=1e-3)


@case
def batch_norm_running(choose):
    channels, momentum = choose.channels(6), choose.choice([0.1, 0.01, 1.0])
    x = images(choose, channels)
    x = torch.cat([x, x * 0.7 + 0.1])
    mean, var = choose.floats([channels]), choose.floats([channels], 0.3, 3)

    def run(x, w, b, mean, var):
        mean, var = mean.clone(), var.clone()
        return F.batch_norm(x, mean, var, w, b, True, momentum, 1e-3), mean, var
    return Case([x, *affine(choose, [channels]), mean, var], run, wants=[True, True, True, False, False], eps=1e-3,
                momentum=momentum)


@case
def batch_norm_eval(choose):
    channels = choose.channels(6)
    mean, var = choose.floats([channels]), choose.floats([channels], 0.3, 3)
    return Case([images(choose, channels), *affine(choose, [channels]), mean, var],
                lambda x, w, b, mean, var: F.batch_norm(x, mean.detach(), var.detach(), w, b),
                wants=[True, True, True, False, False])


def gentle_eps(last, eps):
    """Of few elements the variance may be next to nothing: then eps has to keep the gradients from growing without
    bounds, and PyTorch's error with them."""
    return eps if math.prod(last) > 12 else 1e-2


@case
def layer_norm(choose):
    shape = [*choose.shape(0, 2, 6, 1), *(choose.randint(2, 20) for _ in range(choose.randint(1, 2)))]
    if choose.random() < 0.15:
        shape[-1] = choose.randint(64, 800)
    dims = choose.randint(1, min(2, len(shape)))
    last = shape[-dims:]
    eps = gentle_eps(last, 1e-5)
    return Case([choose.floats(shape), *affine(choose, last)], lambda x, w, b: F.layer_norm(x, last, w, b, eps),
                dims=dims, eps=eps)


@case
def rms_norm(choose):
    shape = [*choose.shape(0, 2, 6), choose.side(40, 1)]
    dims = choose.randint(1, min(2, len(shape))) if 0 not in shape else 1
    last = shape[-dims:]
    eps = gentle_eps(last, 0.0)

    def run(x, w):
        square = (x * x).mean(list(range(-dims, 0)), keepdim=True)
        y = x * torch.rsqrt(square + (eps or torch.finfo(torch.float32).eps))
        return y if w is None else y * w
    return Case([choose.floats(shape), affine(choose, last)[0]], run, dims=dims, eps=eps)


@case
def group_norm(choose):
    groups, each = choose.randint(1, 4), choose.channels(4)
    x = choose.floats([choose.randint(1, 3), groups * each, choose.randint(2, 7), choose.randint(1, 7)])
    return Case([x, *affine(choose, [groups * each])], lambda x, w, b: F.group_norm(x, groups, w, b), groups=groups)


@case
def matmul_batched(choose):
    batch = choose.shape(1, 2, 4, 1)
    m, k, n = (choose.side(12, 1) for _ in range(3))
    return Case([choose.floats([*choose.broadcast_of(batch), m, k]), choose.floats([*batch, k, n])], torch.matmul)


def fused(scale, causal):
    """PyTorch's own operator, where it has one: what it does with special values (special.py)."""
    if not hasattr(F, "scaled_dot_product_attention"):
        return None
    return lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, is_causal=bool(causal), scale=scale)


@case
def attention(choose):
    batch = [choose.randint(1, 3) for _ in range(choose.randint(1, 2))]
    t, s, e, v = (choose.randint(1, 40) for _ in "tsev")
    causal = choose.randrange(2)
    mask = None if causal or choose.random() < 0.5 else choose.floats([t, s])
    scale = choose.choice([0.0, 0.3])

    def run(q, k, v, mask):
        scores = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(e))
        if causal:
            scores = scores.masked_fill(torch.ones(t, s).triu(1).bool(), float("-inf"))
        return (scores if mask is None else scores + mask).softmax(-1) @ v
    inputs = [choose.floats([*batch, *size], -1, 1) for size in ((t, e), (s, e), (s, v))]
    found = Case([*inputs, mask], run, wants=[True, True, True, False], causal=causal, scale=scale)
    found.fused = fused(scale or None, causal)
    return found


@case
def attention_masks(choose):
    """Masks of both kinds that broadcast, along with causal; no row sees nothing, which PyTorch answers by NaN."""
    batch = [choose.randint(1, 3) for _ in range(choose.randint(1, 2))]
    t, s, e, v = (choose.side(40, 1) for _ in "tsev")
    shape = [*(choose.choice([1, n]) for n in batch), choose.choice([1, t]), s][-choose.randint(2, len(batch) + 2):]
    causal, bools = choose.randrange(2), choose.randrange(2)
    mask = choose.floats(shape)
    if bools:
        mask = mask > choose.uniform(-1.9, 1)
        mask[..., 0] = True

    def run(q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / math.sqrt(e)
        scores = scores.masked_fill(~mask, float("-inf")) if bools else scores + mask
        if causal:
            scores = scores.masked_fill(torch.ones(t, s).triu(1).bool(), float("-inf"))
        return scores.softmax(-1) @ v
    inputs = [choose.floats([*batch, *size], -1, 1) for size in ((t, e), (s, e), (s, v))]
    found = Case([*inputs, mask], run, wants=[True, True, True, False], causal=causal)
    found.fused = None if causal else fused(None, False)
    return found


@case
def conv1d(choose):
    groups, inner, outer = choose.choice([1, 1, 2]), choose.channels(4), choose.channels(4)
    kernel, stride = choose.randint(1, 5), choose.randint(1, 3)
    padding, dilation = choose.randint(0, 3), choose.randint(1, 2)
    length = max(1, dilation * (kernel - 1) + 1 - 2 * padding) + choose.randrange(12)
    inputs = [choose.floats([choose.randint(1, 3), groups * inner, length]),
              choose.floats([groups * outer, inner, kernel]), choose.floats([groups * outer])]
    return Case(inputs, lambda x, w, b: F.conv1d(x, w, b, stride, padding, dilation, groups), stride=stride,
                padding=padding, dilation=dilation, groups=groups)


@case
def conv_transpose2d(choose):
    groups, inner, outer = choose.choice([1, 1, 2]), choose.channels(4), choose.channels(4)
    kernel, stride, dilation = pair(choose, 1, 4), pair(choose, 1, 3), pair(choose, 1, 2)
    size = pair(choose, 2, 7)
    reach = [(n - 1) * s + d * (k - 1) for n, s, d, k in zip(size, stride, dilation, kernel)]
    padding = [choose.randint(0, min(2, most // 2)) for most in reach]
    more = [choose.randrange(max(s, d)) for s, d in zip(stride, dilation)]
    bias = choose.floats([groups * outer]) if choose.random() < 0.6 else None
    inputs = [choose.floats([choose.randint(1, 3), groups * inner, *size]),
              choose.floats([groups * inner, outer, *kernel]), bias]
    return Case(inputs, lambda x, w, b: F.conv_transpose2d(x, w, b, stride, padding, more, groups, dilation),
                groups=groups, **named(stride=stride, padding=padding, dilation=dilation, output_padding=more))


def classes(choose):
    """Logits, targets some of which are to be ignored, weights."""
    rows, count = choose.randint(2, 12), choose.randint(2, 15)
    more = [choose.randint(1, 4)] if choose.random() < 0.3 else []
    targets = choose.integers([rows, *more], 0, count)
    ignore = choose.choice([-100, int(targets.flatten()[0])])
    if ignore >= 0 and bool((targets == ignore).all()):
        ignore = -100
    weight = choose.floats([count], 0.2, 2) if choose.random() < 0.5 else None
    return choose.floats([rows, count, *more], -5, 5), targets, weight, ignore, choose.randrange(3)


@case
def nll_loss_options(choose):
    x, targets, weight, ignore, reduction = classes(choose)
    return Case([x, targets, weight], lambda x, t, w: F.nll_loss(x, t, w, ignore_index=ignore,
                                                                 reduction=REDUCTIONS[reduction]),
                wants=[True, False, False], ignore=ignore, reduction=reduction)


@case
def cross_entropy_options(choose):
    x, targets, weight, ignore, reduction = classes(choose)
    smoothing = choose.choice([0.0, 0.1, 0.4])
    return Case([x, targets, weight], lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=ignore,
                                                                      reduction=REDUCTIONS[reduction],
                                                                      label_smoothing=smoothing),
                wants=[True, False, False], ignore=ignore, smoothing=smoothing, reduction=reduction)


def of_two(choose, operation, low=-2.0, high=2.0, reductions=3, **numbers):
    reduction = choose.randrange(reductions)
    shape = choose.shape(1 if reduction == 3 else 0, 3, 9, 1)
    return Case([choose.floats(shape), choose.floats(shape, low, high)],
                lambda x, y: operation(x, y, reduction=REDUCTIONS[reduction]), reduction=reduction, **numbers)


@case
def mse_loss_options(choose):
    return of_two(choose, F.mse_loss)


@case
def l1_loss(choose):
    return of_two(choose, F.l1_loss)


@case
def smooth_l1_loss(choose):
    beta = choose.choice([0.3, 1.0, 2.0])
    return of_two(choose, lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=beta), beta=beta)


@case
def bce_with_logits(choose):
    shape, reduction = choose.shape(1, 3, 9, 1), choose.randrange(3)
    of_ones = choose.floats(shape[-1:], 0.3, 3) if choose.random() < 0.5 else None
    weight = choose.floats(choose.broadcast_of(shape), 0.3, 3) if choose.random() < 0.5 else None
    return Case([choose.floats(shape, -6, 6), choose.floats(shape, 0, 1), of_ones, weight],
                lambda x, y, p, w: F.binary_cross_entropy_with_logits(x, y, weight=w, pos_weight=p,
                                                                      reduction=REDUCTIONS[reduction]),
                wants=[True, False, False, False], reduction=reduction)


@case
def kl_div(choose):
    log_target = choose.randrange(2)
    low, high = (-3, 0) if log_target else (0.01, 1)
    return of_two(choose, lambda x, y, reduction: F.kl_div(x, y, reduction=reduction, log_target=bool(log_target)), low,
                  high, 4, log_target=log_target)
