"""Writes torch-modules.json beside itself: for modules of PyTorch, made from a seed, their state dict bit by bit, and
the results and gradients of one forward and backward. Inputs and the gradients of outputs follow from their shapes:
values() here and in tests/unit/nn/module_vectors.h. Run with torch 1.13 on an AVX2+ machine."""
import json
import os
import sys

import torch
from torch import nn

torch.set_num_threads(1)
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}


def values(shape, step, dtype):
    """Numbers of -1..1 in steps of 1/64, which every float type holds."""
    n = int(torch.Size(shape).numel())
    return (((torch.arange(n) * step) % 128 - 64).to(torch.float64) / 64).to(dtype).reshape(shape)


def stored(x):
    x = x.detach().contiguous()
    return {"shape": list(x.shape), "dtype": NAMES[x.dtype], "hex": x.numpy().tobytes().hex()}


def run(module, inputs, call):
    out = flat(call(module, *inputs))
    loss = sum((y * values(y.shape, 37 + 2 * i, y.dtype)).sum() for i, y in enumerate(out))
    loss.backward()
    return out


def flat(out):
    """(output, (h, c)) as [output, h, c]."""
    return [y for x in out for y in flat(x)] if isinstance(out, tuple) else [out]


def case(name, make, inputs, call=lambda m, *x: m(*x), seed=11, dtype=torch.float32):
    """inputs: shapes, of floats, or tensors."""
    torch.set_default_dtype(dtype)
    torch.manual_seed(seed)
    module = make()
    state = [dict(stored(x), name=key) for key, x in module.state_dict().items()]
    given = [x if isinstance(x, torch.Tensor) else values(x, 29 + 2 * i, dtype).requires_grad_()
             for i, x in enumerate(inputs)]
    out = run(module, given, call)
    torch.set_default_dtype(torch.float32)
    return {"name": name, "seed": seed, "dtype": NAMES[dtype], "state": state,
            "inputs": [stored(x) if not x.requires_grad else {"shape": list(x.shape)} for x in given],
            "outputs": [stored(x) for x in out],
            "input_grads": [stored(x.grad) if x.requires_grad else None for x in given],
            "grads": [dict(stored(p.grad), name=key) for key, p in module.named_parameters()]}


def cases():
    indices = torch.tensor([[1, 0, 4], [2, 4, 4]])
    yield case("embedding", lambda: nn.Embedding(5, 7), [indices])
    yield case("embedding padding_idx -5", lambda: nn.Embedding(5, 7, padding_idx=-5), [indices])
    yield case("embedding f64", lambda: nn.Embedding(5, 7), [indices], dtype=torch.float64)
    yield case("conv1d", lambda: nn.Conv1d(4, 6, 3), [(2, 4, 9)])
    yield case("conv1d options", lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False),
               [(2, 4, 9)])
    # recurrent: x, then the states
    yield case("rnn tanh", lambda: nn.RNN(4, 3), [(5, 2, 4)])
    yield case("rnn relu", lambda: nn.RNN(4, 3, nonlinearity="relu"), [(5, 2, 4), (1, 2, 3)])
    yield case("lstm", lambda: nn.LSTM(4, 3), [(5, 2, 4)])
    yield case("lstm f64", lambda: nn.LSTM(4, 3), [(5, 2, 4), (1, 2, 3), (1, 2, 3)], with_state, dtype=torch.float64)
    yield case("lstm deep", lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True),
               [(3, 6, 4), (4, 3, 6), (4, 3, 6)], with_state)
    yield case("lstm unbatched", lambda: nn.LSTM(4, 3, bidirectional=True, bias=False), [(5, 4), (2, 3), (2, 3)],
               with_state)
    yield case("gru", lambda: nn.GRU(4, 3), [(5, 2, 4)])
    yield case("gru f64", lambda: nn.GRU(4, 3, bidirectional=True), [(5, 2, 4), (2, 2, 3)], dtype=torch.float64)
    yield case("gru deep", lambda: nn.GRU(4, 17, 2, batch_first=True), [(3, 6, 4), (2, 3, 17)])
    yield case("gru unbatched", lambda: nn.GRU(4, 3, 2, bias=False), [(1, 4)])
    yield case("cell rnn", lambda: nn.RNNCell(4, 3, nonlinearity="relu"), [(2, 4)])
    yield case("cell lstm", lambda: nn.LSTMCell(4, 3), [(2, 4), (2, 3), (2, 3)], with_state)
    yield case("cell lstm f64", lambda: nn.LSTMCell(4, 3, bias=False), [(2, 4)], dtype=torch.float64)
    yield case("cell gru", lambda: nn.GRUCell(4, 3), [(2, 4), (2, 3)])
    yield case("cell gru unbatched", lambda: nn.GRUCell(4, 3), [(4,), (3,)])


def with_state(module, x, h, c):
    return module(x, (h, c))


def write(name, cases):
    """To the file that the command line names, else beside the script."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    with open(sys.argv[1] if len(sys.argv) > 1 else beside, "w") as file:
        json.dump({"torch": torch.__version__, "cases": list(cases)}, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    write("torch-modules.json", cases())
