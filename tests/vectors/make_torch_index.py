"""Results and gradients of operators on shapes, places and order, as PyTorch computes them.
usage: make_torch_index.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/autograd/op_cases_index.h)"""
import json
import sys

import torch
import torch.nn.functional as F

from make_torch_ops import op


def split(x):
    a, _, c = x.split(2, 1)
    return a[:, :1] * c


def chunk(x):
    a, b, c = x.chunk(3, 0)
    return a * b + c


def unbind(x):
    a, b, _, d = x.unbind(-1)
    return d * (a + b)


VIEWS = [
    ("permute", lambda x: x.permute(2, 0, -2), [(2, 3, 4)]),
    ("permute empty", lambda x: x.permute(2, 0, -2), [(2, 0, 4)]),
    ("movedim", lambda x: x.movedim(0, -1), [(2, 3, 4, 2)]),
    ("expand", lambda x: x.expand(2, -1, 3), [(4, 1)]), ("expand a scalar", lambda x: x.expand(2, 2), [()]),
    ("squeeze", lambda x: x.squeeze(1), [(3, 1, 1)]), ("squeeze nothing", lambda x: x.squeeze(1), [(3, 2)]),
    ("squeeze all", torch.squeeze, [(1, 3, 1, 2)]),
    ("unsqueeze", lambda x: x.unsqueeze(1) * x.unsqueeze(-1), [(3, 4)]),
    ("slice", lambda x: x[:, 0:-1:2] + x[:, 1::2], [(3, 6)]),
    ("slice of images", lambda x: x[:, 0:-1:2] + x[:, 1::2], [(2, 6, 3, 2)]),
    ("slice nothing", lambda x: x[2:1], [(3, 2)]),
    ("select", lambda x: x.select(1, -1) * x.select(1, 0), [(2, 3, 4)]),
    ("select of one", lambda x: x.select(1, -1) * x.select(1, 0), [(2, 1, 3, 2)]),
    ("split", split, [(3, 5)]), ("chunk", chunk, [(6, 3)]), ("unbind", unbind, [(2, 3, 4)]),
]



def places(at, step, n, *shape):
    """As in op_cases_index.h."""
    return ((at + step * torch.arange(torch.Size(shape).numel())) % n).reshape(shape)


def cat(*x): return torch.cat(x, 1)


def index_select(x): return x.index_select(1, places(2, 3, x.shape[1], 6))


def attention(q, k, v, mask=None, scale=None):
    """In plain arithmetic: torch 1.13 has no public function for it."""
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def hidden(seen): return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))


def causal(q, k, v): return attention(q, k, v, hidden(torch.ones(q.shape[-2], k.shape[-2]).bool().tril()), 0.7)


def masked(q, k, v):
    t, s = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    return attention(q, k, v, hidden((t + 2 * s) % 3 != 0))


INDEXING = [
    ("cat", cat, [(3, 2), (3, 1), (3, 4)]), ("cat with nothing", cat, [(2, 2, 2), (2, 0, 2), (2, 1, 2)]),
    ("cat of images", cat, [(2, 3, 2, 2), (2, 1, 2, 2), (2, 2, 2, 2)]),
    ("cat twice", lambda x, y: torch.cat([x, y, x], -2), [(3, 2), (1, 2)]),
    ("stack", lambda x, y: torch.stack([x, y], 1), [(3, 4), (3, 4)]),
    ("stack last", lambda x, y: torch.stack([x, y], -1), [(3, 4), (3, 4)]),
    ("stack scalars", lambda x, y: torch.stack([x, y], -1), [(), ()]),
    ("index_select", index_select, [(2, 4, 3)]), ("index_select of images", index_select, [(2, 4, 3, 2)]),
    ("index_select rows", lambda x: x.index_select(0, places(1, 2, 3, 5)), [(3, 4)]),
    ("gather", lambda x: x.gather(1, places(1, 3, 4, 2, 5)), [(3, 4)]),
    ("gather of images", lambda x: x.gather(0, places(1, 1, 2, 3, 2, 3, 1)), [(2, 3, 4, 2)]),
    ("scatter", lambda x, src: x.scatter(0, places(0, 1, 4, 2, 3), src), [(4, 3), (2, 3)]),
    ("scatter_value", lambda x: x.scatter(1, places(0, 3, 4, 3, 2), 0.5), [(3, 4)]),
    ("scatter_add", lambda x, src: x.scatter_add(1, places(0, 1, 3, 2, 5), src), [(2, 3), (2, 5)]),
    ("embedding", lambda w: F.embedding(places(1, 2, 5, 2, 4), w), [(5, 3)]),
    ("bmm", torch.bmm, [(2, 3, 4), (2, 4, 2)]), ("bmm of nothing", torch.bmm, [(2, 3, 0), (2, 0, 2)]),
    ("matmul by a column", torch.matmul, [(3, 4), (4,)]), ("matmul of a row", torch.matmul, [(4,), (4, 3)]),
    ("matmul of a row and a column", torch.matmul, [(4,), (4,)]),
    ("matmul rows", torch.matmul, [(2, 2, 3, 4), (4, 2)]),
    ("matmul by a matrix on the left", torch.matmul, [(2, 3), (2, 3, 2)]),
    ("matmul of batches by a column", torch.matmul, [(2, 3, 4), (4,)]),
    ("matmul of a row by batches", torch.matmul, [(3,), (2, 3, 2)]),
    ("matmul of no batch", torch.matmul, [(0, 2, 3), (3, 2)]),
    ("matmul broadcast", torch.matmul, [(2, 1, 2, 3), (1, 2, 3, 2)]),
    ("matmul broadcast one", torch.matmul, [(2, 2, 2, 3), (1, 3, 1)]),
    ("attention scores", lambda q, k: q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1), [(2, 3, 2, 4), (2, 3, 2, 4)]),
    ("nearest", lambda x: F.interpolate(x, (5, 2)), [(2, 3, 3, 4)]),
    ("nearest of one", lambda x: F.interpolate(x, (5, 2)), [(1, 2, 1, 1)]),
    ("bilinear", lambda x: F.interpolate(x, (7, 2), mode="bilinear", align_corners=False), [(2, 3, 3, 5)]),
    ("bilinear aligned", lambda x: F.interpolate(x, (7, 2), mode="bilinear", align_corners=True), [(2, 3, 3, 5)]),
    ("bilinear to one", lambda x: F.interpolate(x, (1, 3), mode="bilinear", align_corners=True), [(2, 3, 3, 2)]),
    ("attention", attention, [(2, 3, 4), (2, 5, 4), (2, 5, 2)]),
    ("attention of heads", attention, [(2, 2, 3, 4)] * 3), ("attention of one", attention, [(1, 3), (1, 3), (1, 2)]),
    ("causal attention", causal, [(1, 2, 5, 3), (1, 2, 4, 3), (1, 2, 4, 2)]),
    ("masked attention", masked, [(2, 4, 3), (2, 5, 3), (2, 5, 2)]),
    ("biased attention", lambda q, k, v: attention(q, k, v, places(0, 2, 3, k.shape[-2]).float()),
     [(2, 4, 3), (2, 5, 3), (2, 5, 2)]),
    ("triu", lambda x: x.triu(1), [(2, 3, 4)]), ("tril", lambda x: x.tril(-1), [(4, 3)]),
    ("tril of images", lambda x: x.tril(-1), [(2, 3, 4, 3)]),
    ("cumsum", lambda x: x.cumsum(1), [(2, 4, 3)]), ("cumsum of images", lambda x: x.cumsum(1), [(2, 4, 3, 2)]),
    ("sort", lambda x: x.sort().values, [(3, 40)]), ("sort a scalar", lambda x: x.sort().values, [()]),
    ("sort nothing", lambda x: x.sort().values, [(3, 0)]), ("sort images", lambda x: x.sort().values, [(2, 3, 2, 5)]),
    ("sort descending", lambda x: x.sort(0, descending=True).values, [(5, 3)]),
    ("topk", lambda x: x.topk(2, 1).values, [(2, 5, 2)]),
    ("topk many", lambda x: x.topk(40, 1, largest=False).values, [(2, 70)]),
    ("argsort", lambda x: x.gather(1, x.argsort(1, descending=True)), [(3, 5)]),
    ("embedding of one", lambda w: F.embedding(places(1, 2, 5), w), [(5, 3)]),
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    out = {"torch": torch.__version__, "ops": [op(*c) for c in VIEWS + INDEXING]}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
