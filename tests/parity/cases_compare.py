"""Comparisons, tests, places of elements, the largest of all."""
import torch
import torch.nn.functional as F
from cases_pointwise import bits_of
from parity import Case

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def few_values(choose, shape):
    """Of which many are equal, and 0."""
    return (choose.floats(shape) * 2).round() / 2


def of_any_type(choose, shape):
    """Floats, integers or bools, many of them 0."""
    x = few_values(choose, shape)
    return x.to(choose.choice([torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool]))


def compared(operation):
    def draw(choose):
        shape = choose.shape()
        shapes = [shape, choose.broadcast_of(shape)]
        choose.shuffle(shapes)
        x, y = (few_values(choose, s) for s in shapes)
        if choose.random() < 0.3:
            dtype = choose.choice([torch.int32, torch.int64, torch.int8, torch.bool])
            x, y = x.to(dtype), y.to(dtype)
        return Case([x, y], operation, wants=[False, False])
    return draw


def compared_with_number(operation):
    def draw(choose):
        number = choose.randint(-4, 4) / 2
        return Case([few_values(choose, choose.shape())], lambda x: operation(x, number), wants=[False], number=number)
    return draw


for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    CASES[name] = compared(getattr(torch, name))
    CASES[name + "_scalar"] = compared_with_number(getattr(torch, name))


def tested(operation):
    def draw(choose):
        shape = choose.shape()
        dims = [d for d in range(len(shape)) if choose.random() < 0.4]
        keepdim = choose.randrange(2) if dims else 0

        def run(x):
            x = x.bool()
            for d in reversed(dims):  # 1.13 knows one dimension alone
                x = operation(x, d, bool(keepdim))
            return x if dims else operation(x)
        return Case([of_any_type(choose, shape)], run, wants=[False], dims=bits_of(dims), keepdim=keepdim)
    return draw


CASES["any"], CASES["all"] = tested(torch.any), tested(torch.all)


@case
def argmax(choose):
    shape = choose.shape(1, 4, 9, 1)
    dim = choose.randrange(-len(shape), len(shape))
    return Case([choose.floats(shape)], lambda x: x.argmax(dim), wants=[False], dim=dim)


@case
def argsort(choose):
    """Equal ones stay in order."""
    shape = choose.shape(1)
    dim, descending = choose.randrange(len(shape)), choose.randrange(2)
    return Case([few_values(choose, shape)],
                lambda x: x.sort(dim=dim, descending=bool(descending), stable=True).indices, wants=[False], dim=dim,
                descending=descending)


@case
def one_hot(choose):
    classes = choose.size(12, 1)
    return Case([choose.integers(choose.shape(0, 3), 0, classes)], lambda x: F.one_hot(x, classes), classes=classes)


def extreme_of_all(operation):
    """Those that are equal share the gradient."""
    def draw(choose):
        shape = choose.shape(0, 4, 9, 1)
        return Case([few_values(choose, shape) if choose.randrange(2) else choose.floats(shape)], operation)
    return draw


CASES["max_all"], CASES["min_all"] = extreme_of_all(torch.max), extreme_of_all(torch.min)
