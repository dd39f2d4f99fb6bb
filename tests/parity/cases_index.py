"""Views, joining, indexing, order, images of another size, batched products."""
import torch
import torch.nn.functional as F
from parity import Case

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def numbered(name, values):
    return {f"{name}{i}": value for i, value in enumerate(values)}


@case
def permute(choose):
    shape = choose.shape(1)
    order = list(range(len(shape)))
    choose.shuffle(order)
    return Case([choose.floats(shape)], lambda x: x.permute(order), **numbered("order", order))


@case
def expand(choose):
    shape = choose.shape()
    return Case([choose.floats(choose.broadcast_of(shape))], lambda x: x.expand(shape), ndim=len(shape),
                **numbered("size", shape))


@case
def slice(choose):
    shape = choose.shape(1)
    dim, step = choose.randrange(len(shape)), choose.randint(1, 4)
    start, end = (choose.randint(-shape[dim] - 2, shape[dim] + 2) for _ in range(2))
    return Case([choose.floats(shape)],
                lambda x: x.movedim(dim, 0)[start:end:step].movedim(0, dim), dim=dim, start=start, end=end, step=step)


@case
def select(choose):
    shape = choose.shape(1, 4, 9, 1)
    dim = choose.randrange(len(shape))
    index = choose.randrange(-shape[dim], shape[dim])
    return Case([choose.floats(shape)], lambda x: x.select(dim, index), dim=dim, index=index)


@case
def unsqueeze(choose):
    shape = choose.shape(0, 3)
    dim = choose.randrange(-len(shape) - 1, len(shape) + 1)
    return Case([choose.floats(shape)], lambda x: x.unsqueeze(dim), dim=dim)


@case
def cat(choose):
    shape = choose.shape(1)
    dim = choose.randrange(len(shape))
    shapes = [shape[:dim] + [choose.size()] + shape[dim + 1:] for _ in range(choose.randint(1, 4))]
    return Case([choose.floats(s) for s in shapes], lambda *x: torch.cat(x, dim), dim=dim)


@case
def stack(choose):
    shape = choose.shape(0, 3)
    dim = choose.randrange(-len(shape) - 1, len(shape) + 1)
    return Case([choose.floats(shape) for _ in range(choose.randint(1, 4))], lambda *x: torch.stack(x, dim), dim=dim)


@case
def index_select(choose):
    shape = choose.shape(1, 4, 9, 1)
    dim = choose.randrange(len(shape))
    index = choose.integers([choose.size(12)], 0, shape[dim])
    return Case([choose.floats(shape), index], lambda x, i: x.index_select(dim, i), dim=dim)


def index_within(choose, shape, dim):
    """An index that is no larger than x but in `dim`, where its size is any."""
    sizes = [choose.randint(1, size) for size in shape]
    sizes[dim] = choose.size(9, 1)
    return choose.integers(sizes, 0, shape[dim])


@case
def gather_dim(choose):
    shape = choose.shape(1, 3, 7, 1)
    dim = choose.randrange(len(shape))
    return Case([choose.floats(shape), index_within(choose, shape, dim)], lambda x, i: x.gather(dim, i), dim=dim)


@case
def scatter_add(choose):
    shape = choose.shape(1, 3, 7, 1)
    dim = choose.randrange(len(shape))
    index = index_within(choose, shape, dim)
    source = choose.floats(list(index.shape))  # PyTorch's gradients for a larger one fail
    return Case([choose.floats(shape), index, source], lambda x, i, s: x.scatter_add(dim, i, s), dim=dim)


@case
def scatter_dim(choose):
    """No place twice: which of two counts is open in PyTorch."""
    shape = choose.shape(1, 3, 7, 1)
    dim = choose.randrange(len(shape))
    sizes = [choose.randint(1, size) for size in shape]
    index = choose.floats(sizes[:dim] + [shape[dim]] + sizes[dim + 1:]).argsort(dim).narrow(dim, 0, sizes[dim])
    return Case([choose.floats(shape), index, choose.floats(sizes)], lambda x, i, s: x.scatter(dim, i, s), dim=dim)


@case
def scatter_value(choose):
    shape, value = choose.shape(1, 3, 7, 1), choose.uniform(-3, 3)
    dim = choose.randrange(len(shape))
    return Case([choose.floats(shape), index_within(choose, shape, dim)], lambda x, i: x.scatter(dim, i, value),
                dim=dim, value=value)


@case
def embedding_padding(choose):
    rows = choose.size(20, 1)
    padding = choose.randrange(-rows, rows)
    return Case([choose.floats([rows, choose.side(9, 1)]), choose.integers(choose.shape(0, 3), 0, rows)],
                lambda weight, i: F.embedding(i, weight, padding_idx=padding), padding=padding)


@case
def embedding(choose):
    rows = choose.size(20, 1)
    return Case([choose.floats([rows, choose.side(9, 1)]), choose.integers(choose.shape(0, 3), 0, rows)],
                lambda weight, i: F.embedding(i, weight))


def triangle(choose, operation):
    shape, diagonal = choose.shape(2), choose.randint(-4, 4)
    return Case([choose.floats(shape)], lambda x: operation(x, diagonal), diagonal=diagonal)


@case
def triu(choose):
    return triangle(choose, torch.triu)


@case
def tril(choose):
    return triangle(choose, torch.tril)


@case
def cumsum(choose):
    shape = choose.shape(1)
    dim = choose.randrange(len(shape))
    return Case([choose.floats(shape)], lambda x: x.cumsum(dim), dim=dim)


@case
def bmm(choose):
    batch, m, k, n = choose.size(5), *(choose.side(20) for _ in range(3))
    return Case([choose.floats([batch, m, k]), choose.floats([batch, k, n])], torch.bmm)


@case
def interpolate(choose):
    x = choose.floats([choose.randint(1, 3), choose.channels(4), *(choose.randint(1, 9) for _ in "hw")])
    height, width, bilinear = choose.randint(1, 15), choose.randint(1, 15), choose.randrange(2)
    corners = bilinear and choose.randrange(2)
    return Case([x], lambda x: F.interpolate(x, (height, width), mode="bilinear" if bilinear else "nearest",
                                             align_corners=bool(corners) if bilinear else None),
                height=height, width=width, bilinear=bilinear, align_corners=corners)


@case
def sort(choose):
    shape = choose.shape(1)
    dim, descending = choose.randrange(len(shape)), choose.randrange(2)
    return Case([choose.floats(shape)], lambda x: tuple(x.sort(dim, bool(descending))), dim=dim, descending=descending)


@case
def topk(choose):
    shape = choose.shape(1, 4, 9, 1)
    dim, smallest = choose.randrange(len(shape)), choose.randrange(2)
    k = choose.randint(1, shape[dim])
    return Case([choose.floats(shape)], lambda x: tuple(x.topk(k, dim, not smallest)), dim=dim, k=k, smallest=smallest)
