"""Convolutions and pooling."""
import torch.nn.functional as F
from parity import Case

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def pair(choose, least, most):
    return [choose.randint(least, most) for _ in range(2)]


def named(**pairs):
    """stride=[2, 1] as stride_h=2, stride_w=1."""
    return {f"{name}_{axis}": value for name, values in pairs.items() for axis, value in zip("hw", values)}


def image(choose, kernel, padding, dilation, channels):
    """A size that has room for at least one window."""
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation)]
    return choose.floats([choose.randint(1, 3), channels, *(choose.randint(low, low + 9) for low in least)])


@case
def conv2d(choose):
    groups = choose.choice([1, 1, 1, 2, 3])
    inner, outer = choose.channels(5), choose.channels(5)
    if choose.random() < 0.2:
        groups, inner = 1 + choose.channels(5), 1  # depthwise
    kernel, stride, padding, dilation = pair(choose, 1, 4), pair(choose, 1, 3), pair(choose, 0, 3), pair(choose, 1, 2)
    x = image(choose, kernel, padding, dilation, groups * inner)
    weight = choose.floats([groups * outer, inner, *kernel], -1, 1)
    bias = choose.floats([groups * outer]) if choose.random() < 0.6 else None
    return Case([x, weight, bias], lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups), groups=groups,
                **named(stride=stride, padding=padding, dilation=dilation))


def window(choose, dilates):
    kernel, stride = pair(choose, 1, 4), pair(choose, 1, 3)
    padding = [choose.randint(0, size // 2) for size in kernel]
    dilation = pair(choose, 1, 2) if dilates else [1, 1]
    return kernel, stride, padding, dilation


@case
def max_pool2d(choose):
    kernel, stride, padding, dilation = window(choose, True)
    x, ceil = image(choose, kernel, [0, 0], dilation, choose.channels(5)), choose.randrange(2)  # no window is empty
    return Case([x], lambda x: F.max_pool2d(x, kernel, stride, padding, dilation, bool(ceil)), ceil=ceil,
                **named(kernel=kernel, stride=stride, padding=padding, dilation=dilation))


@case
def avg_pool2d(choose):
    kernel, stride, padding, dilation = window(choose, False)
    x, ceil = image(choose, kernel, padding, dilation, choose.channels(5)), choose.randrange(2)
    exclude, divisor = choose.randrange(2), choose.choice([0, 0, 0, 5])
    return Case([x], lambda x: F.avg_pool2d(x, kernel, stride, padding, bool(ceil), not exclude, divisor or None),
                ceil=ceil, exclude_padding=exclude, divisor=divisor,
                **named(kernel=kernel, stride=stride, padding=padding))


@case
def adaptive_avg_pool2d(choose):
    size = pair(choose, 1, 7)
    x = choose.floats([choose.randint(1, 3), choose.channels(5), *pair(choose, 1, 12)])
    return Case([x], lambda x: F.adaptive_avg_pool2d(x, size), height=size[0], width=size[1])
