"""Sums, products, losses and views."""
import torch
import torch.nn.functional as F
from parity import Case

CASES = {}


def case(function):
    """Register: a function that draws a Case is called as the operator is."""
    CASES[function.__name__] = function
    return function


def binary(operation):
    def draw(choose):
        shape = choose.shape()
        shapes = [shape, choose.broadcast_of(shape)]
        choose.shuffle(shapes)
        return Case([choose.floats(s) for s in shapes], operation)
    return draw


CASES["add"], CASES["sub"], CASES["mul"] = binary(torch.add), binary(torch.sub), binary(torch.mul)


@case
def scale(choose):
    factor = choose.uniform(-3, 3)
    return Case([choose.floats(choose.shape())], lambda x: x * factor, factor=factor)


@case
def relu(choose):
    return Case([choose.floats(choose.shape())], F.relu)


@case
def mean(choose):
    return Case([choose.floats(choose.shape(smallest=1))], torch.mean)


@case
def sum(choose):
    return Case([choose.floats(choose.shape())], torch.sum)


@case
def matmul(choose):
    m, k, n = (choose.side(40) for _ in range(3))
    return Case([choose.floats([m, k]), choose.floats([k, n])], torch.matmul)


@case
def matmul_vector(choose):
    """No long sum that is a result by itself: it may cancel."""
    k, batch = choose.side(40, 4), choose.shape(0, 2, 4, 1)
    m = 0 if choose.random() < 0.1 else choose.side(40, 4)
    shapes = choose.choice([([*batch, m, k], [k]), ([k], [*batch, k, m]), ([k % 9], [k % 9])])
    return Case([choose.floats(shape) for shape in shapes], torch.matmul)


@case
def linear(choose):
    c, k = choose.side(40, 1), choose.side(40, 1)
    bias = choose.floats([k]) if choose.random() < 0.7 else None
    return Case([choose.floats([*choose.shape(0, 2, 6), c]), choose.floats([k, c]), bias], F.linear)


@case
def log_softmax(choose):
    shape = choose.shape(1, 4, 40)
    dim = choose.randrange(-len(shape), len(shape))
    return Case([choose.floats(shape, -8, 8)], lambda x: F.log_softmax(x, dim), dim=dim)


def with_targets(choose, loss):
    rows, classes = choose.size(20, 1), choose.side(40, 1)
    return Case([choose.floats([rows, classes], -8, 8), choose.integers([rows], 0, classes)], loss)


@case
def nll_loss(choose):
    return with_targets(choose, F.nll_loss)


@case
def cross_entropy(choose):
    return with_targets(choose, F.cross_entropy)


@case
def mse_loss(choose):
    shape = choose.shape(smallest=1)
    return Case([choose.floats(shape), choose.floats(shape)], F.mse_loss)


@case
def transpose(choose):
    shape = choose.shape(1)
    a, b = (choose.randrange(-len(shape), len(shape)) for _ in range(2))
    return Case([choose.floats(shape)], lambda x: x.transpose(a, b), a=a, b=b)


@case
def narrow(choose):
    shape = choose.shape(1, 4, 9, 1)
    dim = choose.randrange(len(shape))
    start = choose.randint(0, shape[dim] - 1)
    length = choose.randint(0, shape[dim] - start)
    return Case([choose.floats(shape)], lambda x: x.narrow(dim, start, length), dim=dim, start=start, length=length)


@case
def flatten(choose):
    shape = choose.shape(1)
    start = choose.randrange(len(shape))
    return Case([choose.floats(shape)], lambda x: x.flatten(start), start_dim=start)
