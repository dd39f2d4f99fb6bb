"""Views of other kinds, copies, conversions, operators in place."""
import torch
import torch.nn.functional as F
from cases_index import numbered
from parity import Case

CASES = {}
# In the order of parity_copies.h.
CONVERSIONS = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
               torch.uint8, torch.bool)


def case(function):
    CASES[function.__name__] = function
    return function


def regrouped(choose, shape):
    """Another shape of as many elements, and the same with one size open."""
    count = 1
    for size in shape:
        count *= size
    if not count:
        new = [choose.randint(1, 4), 0]
        return new, new
    new = [1] * choose.randint(1, 4)
    for factor in (f for size in shape for f in factors(size)):
        new[choose.randrange(len(new))] *= factor
    asked = list(new)
    if choose.randrange(2):
        asked[choose.randrange(len(new))] = -1
    return new, asked


def factors(n):
    found, f = [], 2
    while n > 1:
        while n % f == 0:
            found.append(f)
            n //= f
        f += 1
    return found


@case
def view(choose):
    shape = choose.shape()
    new, asked = regrouped(choose, shape)
    return Case([choose.floats(shape)], lambda x: x.view(new), ndim=len(new), **numbered("size", asked))


@case
def reshape(choose):
    return view(choose)


@case
def movedim(choose):
    shape = choose.shape(1)
    source, destination = (choose.randrange(-len(shape), len(shape)) for _ in range(2))
    return Case([choose.floats(shape)], lambda x: x.movedim(source, destination), source=source,
                destination=destination)


def with_ones(choose, least):
    return [1 if choose.random() < 0.4 else size for size in choose.shape(least)]


@case
def squeeze(choose):
    shape = with_ones(choose, 1)
    dim = choose.randrange(-len(shape), len(shape))
    return Case([choose.floats(shape)], lambda x: x.squeeze(dim), dim=dim)


@case
def squeeze_all(choose):
    return Case([choose.floats(with_ones(choose, 0))], torch.squeeze)


@case
def split(choose):
    """The pieces joined in the opposite order, so that each has its part of the gradient."""
    shape = choose.shape(1)
    dim = choose.randrange(len(shape))
    size = choose.randint(max(1, shape[dim] // 8), shape[dim] + 2)
    count = len(torch.empty(shape).split(size, dim))
    return Case([choose.floats(shape)], lambda x: torch.cat(x.split(size, dim)[::-1], dim), dim=dim, size=size,
                count=count)


@case
def chunk(choose):
    shape = choose.shape(1)
    dim = choose.randrange(len(shape))
    count = len(torch.empty(shape).chunk(choose.randint(1, 8), dim))
    return Case([choose.floats(shape)], lambda x: torch.cat(x.chunk(count, dim)[::-1], dim), dim=dim, count=count)


@case
def unbind(choose):
    shape = [min(size, 20) for size in choose.shape(1, 4, 9, 1)]
    dim = choose.randrange(len(shape))
    return Case([choose.floats(shape)], lambda x: torch.stack(x.unbind(dim)[::-1]), dim=dim, count=shape[dim])


@case
def contiguous(choose):
    return Case([choose.floats(choose.shape())], lambda x: x * 1)


@case
def clone(choose):
    return Case([choose.floats(choose.shape())], torch.clone)


@case
def to_memory_format(choose):
    last = choose.randrange(2)
    shape = choose.shape(4, 4) if last else choose.shape()
    return Case([choose.floats(shape)], lambda x: x * 1, channels_last=last)


@case
def to(choose):
    """There and back."""
    number = choose.randrange(len(CONVERSIONS))
    dtype = CONVERSIONS[number]
    low, high = (0, 250) if dtype == torch.uint8 else (-120, 120)
    x = choose.floats(choose.shape(), low, high)
    x = x * (x > 0) if dtype == torch.bool else x
    return Case([x], lambda x: x.to(dtype).to(x.dtype), wants=[dtype.is_floating_point], dtype=number)


@case
def copy(choose):
    shape = choose.shape()
    return Case([choose.floats(shape), choose.floats(shape)], lambda x, y: x.clone().copy_(y), wants=[False, False])


def changed(operation, low=-2.0):
    """A copy of the first input, in its order of memory, changed by the second."""
    def draw(choose):
        shape = choose.shape()
        return Case([choose.floats(shape), choose.floats(choose.broadcast_of(shape), low, 3)],
                    lambda x, y: operation(x.clone(), y))
    return draw


CASES["add_"], CASES["sub_"] = changed(torch.Tensor.add_), changed(torch.Tensor.sub_)
CASES["mul_"], CASES["div_"] = changed(torch.Tensor.mul_), changed(torch.Tensor.div_, 0.2)


@case
def scale_(choose):
    factor = choose.uniform(-3, 3)
    return Case([choose.floats(choose.shape())], lambda x: x.clone().mul_(factor), factor=factor)


@case
def relu_(choose):
    return Case([choose.floats(choose.shape())], lambda x: F.relu_(x.clone()))


@case
def fill_(choose):
    value = choose.uniform(-3, 3)
    return Case([choose.floats(choose.shape())], lambda x: x.clone().fill_(value), value=value)


@case
def zero_(choose):
    return Case([choose.floats(choose.shape())], lambda x: x.clone().zero_())
