"""Recurrent modules, their cells, attention with its projections, a transformer's layer."""
import torch
import torch.nn.functional as F
from parity import Case

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def joined(tensors):
    """All results in one, so that each has its part of the gradient."""
    return torch.cat([x.flatten() for x in tensors])


def recurrent(kind, gates):
    """An RNN, LSTM or GRU with all options; parameters in PyTorch's order."""
    def draw(choose):
        layers, directions = choose.randint(1, 3), choose.randint(1, 2)
        bias, first, relu = choose.randrange(4) > 0, choose.randrange(2), kind == "rnn" and choose.randrange(2)
        steps, batch, inner, hidden = choose.randint(1, 7), choose.randint(1, 5), choose.channels(6), choose.channels(8)
        bound = max(inner, hidden, 2) ** -0.5  # not saturated: that is ill-conditioned
        parameters = []
        for layer in range(layers):
            for _ in range(directions):
                sizes = [inner if layer == 0 else hidden * directions, hidden]
                parameters += [choose.floats([gates * hidden, n], -bound, bound) for n in sizes]
                parameters += [choose.floats([gates * hidden], -bound, bound) for n in sizes] if bias else []
        states = 2 if kind == "lstm" else 1
        state = [choose.floats([layers * directions, batch, hidden], -1, 1) for _ in range(states)]
        function = getattr(torch, kind if kind != "rnn" else "rnn_relu" if relu else "rnn_tanh")

        def run(x, *rest):
            hx = tuple(rest[:states])
            found = function(x, hx if states == 2 else hx[0], list(rest[states:]), bias, layers, 0.0, True,
                             directions == 2, bool(first))
            return joined(found)
        x = choose.floats([batch, steps, inner] if first else [steps, batch, inner], -1, 1)
        return Case([x, *state, *parameters], run, plain=1 + states, states=states, input=inner, hidden=hidden,
                    layers=layers, bidirectional=directions - 1, no_bias=int(not bias), batch_first=first,
                    relu=int(relu))
    return draw


CASES["rnn"], CASES["lstm"], CASES["gru"] = recurrent("rnn", 1), recurrent("lstm", 4), recurrent("gru", 3)


def cell(kind, gates):
    def draw(choose):
        batch, inner, hidden = choose.randint(1, 9), choose.channels(6), choose.channels(8)
        relu = kind == "rnn" and choose.randrange(2)
        bound = max(inner, hidden, 2) ** -0.5
        parameters = [choose.floats([gates * hidden, n], -bound, bound) for n in (inner, hidden)]
        parameters += [choose.floats([gates * hidden], -bound, bound) for _ in range(2)]
        states = 2 if kind == "lstm" else 1
        state = [choose.floats([batch, hidden], -1, 1) for _ in range(states)]
        function = getattr(torch, (kind if kind != "rnn" else "rnn_relu" if relu else "rnn_tanh") + "_cell")

        def run(x, *rest):
            found = function(x, tuple(rest[:2]) if states == 2 else rest[0], *rest[states:])
            return joined(found if states == 2 else [found])
        return Case([choose.floats([batch, inner], -1, 1), *state, *parameters], run, plain=1 + states, states=states,
                    input=inner, hidden=hidden, relu=int(relu))
    return draw


CASES["rnn_cell"], CASES["lstm_cell"], CASES["gru_cell"] = cell("rnn", 1), cell("lstm", 4), cell("gru", 3)


def attention_parameters(choose, width):
    bound = width ** -0.5
    return [choose.floats(shape, -bound, bound)
            for shape in ([3 * width, width], [3 * width], [width, width], [width])]


def masks(choose, batch, queries, keys):
    """Of padding and of pairs, bools, true what is hidden; the first key is seen by all."""
    padding = choose.floats([batch, keys]) > 1 if choose.randrange(2) else None
    pairs = choose.floats([queries, keys]) > 0.5 if choose.randrange(2) else None
    for mask in (padding, pairs):
        if mask is not None:
            mask[..., 0] = False
    return padding, pairs


@case
def multihead_attention(choose):
    heads, batch = choose.randint(1, 4), choose.randint(1, 4)
    width, queries, keys = heads * choose.channels(8), choose.randint(1, 20), choose.randint(1, 20)
    weights = choose.randrange(2)
    inputs = [choose.floats([n, batch, width]) for n in (queries, keys, keys)]

    def run(q, k, v, padding, pairs, in_weight, in_bias, out_weight, out_bias):
        out, shares = F.multi_head_attention_forward(
            q, k, v, width, heads, in_weight, in_bias, None, None, False, 0.0, out_weight, out_bias,
            key_padding_mask=padding, attn_mask=pairs)
        return (out, shares) if weights else out
    return Case([*inputs, *masks(choose, batch, queries, keys), *attention_parameters(choose, width)], run, plain=5,
                width=width, heads=heads, weights=weights)


@case
def transformer_encoder_layer(choose):
    heads, batch = choose.randint(1, 4), choose.randint(1, 4)
    width, inner, steps = heads * (3 + choose.channels(6)), choose.channels(12), choose.randint(1, 20)
    norm_first, gelu = choose.randrange(2), choose.randrange(2)
    shapes = [[inner, width], [inner], [width, inner], [width]]
    parameters = [*attention_parameters(choose, width), *(choose.floats(shape, -0.5, 0.5) for shape in shapes),
                  *(choose.floats([width], 0.2, 2) for _ in range(4))]

    def run(x, padding, pairs, *p):
        def attend(x):
            return F.multi_head_attention_forward(x, x, x, width, heads, p[0], p[1], None, None, False, 0.0, p[2],
                                                  p[3], key_padding_mask=padding, attn_mask=pairs)[0]

        def feed(x):
            return F.linear((F.gelu if gelu else F.relu)(F.linear(x, p[4], p[5])), p[6], p[7])

        def norm(x, weight, bias):
            return F.layer_norm(x, [width], weight, bias, 1e-2)
        if norm_first:
            x = x + attend(norm(x, p[8], p[9]))
            return x + feed(norm(x, p[10], p[11]))
        x = norm(x + attend(x), p[8], p[9])
        return norm(x + feed(x), p[10], p[11])
    return Case([choose.floats([steps, batch, width]), *masks(choose, batch, steps, steps), *parameters], run, plain=3,
                width=width, heads=heads, inner=inner, norm_first=norm_first, gelu=gelu)
