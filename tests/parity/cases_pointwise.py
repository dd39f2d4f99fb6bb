"""Element by element, choices, activations, reductions, softmax."""
import operators_def
import torch
import torch.nn.functional as F
from cases_core import binary
from parity import Case

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def unary(operation, low, high):
    def draw(choose):
        return Case([choose.floats(choose.shape(), low, high)], operation)
    return draw


CASES.update({"maximum": binary(torch.maximum), "minimum": binary(torch.minimum)})
CASES.update({name: unary(function, low, high) for name, function, low, high, _, _ in operators_def.unary()})


@case
def div(choose):
    shape = choose.shape()
    return Case([choose.floats(shape), choose.floats(choose.broadcast_of(shape), 0.2, 3)], torch.div)


@case
def add_scalar(choose):
    number = choose.uniform(-3, 3)
    return Case([choose.floats(choose.shape())], lambda x: x + number, number=number)


@case
def pow(choose):
    exponent = choose.choice([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 2.7])
    whole = exponent == int(exponent) and exponent >= 0
    return Case([choose.floats(choose.shape(), -3 if whole else 0.1, 3)], lambda x: x ** exponent, exponent=exponent)


@case
def pow_tensor(choose):
    """Powers of numbers above 0, or whole ones of any, 0 among them: NaN is another test's."""
    shape = choose.shape()
    x, z = choose.floats(choose.broadcast_of(shape), 0.1, 3), choose.floats(shape, -3, 3)
    if choose.random() < 0.5:
        x, z = x.round() - 1, z.round().abs()
    return Case([x, z], torch.pow)


@case
def clamp(choose):
    low, high = choose.uniform(-2, 0), choose.uniform(-0.5, 2)
    return Case([choose.floats(choose.shape())], lambda x: x.clamp(low, high), min=low, max=high)


def mask(choose, shape):
    return choose.integers(shape, 0, 2).bool()


@case
def where(choose):
    shape = choose.shape()
    return Case([mask(choose, choose.broadcast_of(shape)), choose.floats(shape),
                 choose.floats(choose.broadcast_of(shape))], torch.where)


@case
def masked_fill(choose):
    shape, value = choose.shape(), choose.uniform(-9, 9)
    return Case([choose.floats(shape), mask(choose, choose.broadcast_of(shape))],
                lambda x, m: x.masked_fill(m, value), value=value)


@case
def leaky_relu(choose):
    slope = choose.uniform(0, 0.5)
    return Case([choose.floats(choose.shape())], lambda x: F.leaky_relu(x, slope), negative_slope=slope)


@case
def gelu(choose):
    tanh = choose.randrange(2)
    return Case([choose.floats(choose.shape(), -8, 8)], lambda x: F.gelu(x, approximate="tanh" if tanh else "none"),
                tanh=tanh)


@case
def softmax(choose):
    shape = choose.shape(1, 4, 40)
    dim = choose.randrange(-len(shape), len(shape))
    return Case([choose.floats(shape)], lambda x: F.softmax(x, dim), dim=dim)  # not saturated: that is ill-conditioned


def bits_of(dims):
    bits = 0
    for d in dims:
        bits |= 1 << d
    return bits


def reduced(choose, operation, smallest=0, **numbers):
    """Along some dimensions: at least one."""
    shape = choose.shape(1, 4, 9, smallest)
    dims = [d for d in range(len(shape)) if choose.random() < 0.5] or [choose.randrange(len(shape))]
    keepdim = choose.randrange(2)
    return Case([choose.floats(shape)], lambda x: operation(x, dims, bool(keepdim)),
                dims=bits_of(dims), keepdim=keepdim, **numbers)


@case
def sum_dim(choose):
    return reduced(choose, lambda x, dims, keep: x.sum(dims, keep))


@case
def mean_dim(choose):
    return reduced(choose, lambda x, dims, keep: x.mean(dims, keep), 1)


@case
def var(choose):
    correction = choose.randrange(2)
    return reduced(choose, lambda x, dims, keep: x.var(dims, unbiased=bool(correction), keepdim=keep), 2,
                   correction=correction)


@case
def norm(choose):
    p = choose.choice([0.0, 1.0, 2.0, 3.0, float("inf")])
    return reduced(choose, lambda x, dims, keep: torch.linalg.vector_norm(x, p, dims, keep), 1, p=p)


def extreme(choose, operation):
    shape = choose.shape(1, 4, 9, 1)
    dim = choose.randrange(len(shape))
    return Case([choose.floats(shape)], lambda x: operation(x, dim), dim=dim)


@case
def max(choose):
    return extreme(choose, lambda x, dim: tuple(torch.max(x, dim)))


@case
def min(choose):
    return extreme(choose, lambda x, dim: tuple(torch.min(x, dim)))


def ties(choose, operation):
    """Few different numbers, so that several are the largest."""
    drawn = reduced(choose, operation, 1)
    drawn.inputs[0] = drawn.inputs[0].round() if choose.random() < 0.5 else drawn.inputs[0]
    return drawn


@case
def amax(choose):
    return ties(choose, lambda x, dims, keep: x.amax(dims, keep))


@case
def amin(choose):
    return ties(choose, lambda x, dims, keep: x.amin(dims, keep))
