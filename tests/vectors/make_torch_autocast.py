"""What torch.autocast("cpu", dtype=torch.bfloat16) gives: the type of each operator's result, of inputs bf16 and f32
beside f32 (null: PyTorch refuses them), and results and gradients of a few, beside those of f32.
usage: make_torch_autocast.py OUT.json   (torch >= 1.13; tests/unit/autograd/test_autocast_torch.c computes the same)"""
import json, sys
import torch
import torch.nn.functional as F

LOW, WIDE = torch.bfloat16, torch.float32


def value(k, *shape, dtype=WIDE):
    """Input k, as gradcheck_value() has it: rounded to f32 from double."""
    n = torch.Size(shape).numel()
    i = torch.arange(n, dtype=torch.int64)
    return (((i * 37 + k * 53 + 19) % 211).double() / 105.3 - 1.0017).float().to(dtype).reshape(shape)


ROWS, VECTOR, IMAGE = (3, 4), (4,), (2, 3, 6, 6)
CLASSES = torch.tensor([0, 2, 1])
TYPES = {
    "linear": lambda d: F.linear(value(0, *ROWS, dtype=d), value(1, *ROWS), value(2, 3)),
    "matmul": lambda d: value(0, *ROWS, dtype=d) @ value(1, 4, 5),
    "bmm": lambda d: torch.bmm(value(0, 2, 3, 4, dtype=d), value(1, 2, 4, 5)),
    "conv1d": lambda d: F.conv1d(value(0, 2, 3, 8, dtype=d), value(1, 4, 3, 3), value(2, 4)),
    "conv2d": lambda d: F.conv2d(value(0, *IMAGE, dtype=d), value(1, 4, 3, 3, 3), value(2, 4)),
    "cross_entropy": lambda d: F.cross_entropy(value(0, *ROWS, dtype=d), CLASSES, weight=value(1, 4).abs()),
    "nll_loss": lambda d: F.nll_loss(value(0, *ROWS, dtype=d), CLASSES),
    "mse_loss": lambda d: F.mse_loss(value(0, *ROWS, dtype=d), value(1, *ROWS)),
    "l1_loss": lambda d: F.l1_loss(value(0, *ROWS, dtype=d), value(1, *ROWS, dtype=d)),
    "smooth_l1_loss": lambda d: F.smooth_l1_loss(value(0, *ROWS, dtype=d), value(1, *ROWS, dtype=d)),
    "kl_div": lambda d: F.kl_div(value(0, *ROWS, dtype=d), value(1, *ROWS, dtype=d).abs(), reduction="sum"),
    "add": lambda d: value(0, *ROWS, dtype=d) + value(1, *VECTOR),
    "sub": lambda d: value(0, *ROWS, dtype=d) - value(1, *ROWS),
    "mul": lambda d: value(0, *ROWS) * value(1, *ROWS, dtype=d),
    "div": lambda d: value(0, *ROWS, dtype=d) / value(1, *ROWS),
    "maximum": lambda d: torch.maximum(value(0, *ROWS, dtype=d), value(1, *ROWS)),
    "cat": lambda d: torch.cat([value(0, *ROWS, dtype=d), value(1, *ROWS)]),
    "stack": lambda d: torch.stack([value(0, *ROWS, dtype=d), value(1, *ROWS)]),
    "add_alike": lambda d: value(0, *ROWS, dtype=d) + value(1, *ROWS, dtype=d),
    "relu": lambda d: F.relu(value(0, *ROWS, dtype=d)),
    "gelu": lambda d: F.gelu(value(0, *ROWS, dtype=d)),
    "exp": lambda d: value(0, *ROWS, dtype=d).exp(),
    "sum": lambda d: value(0, *ROWS, dtype=d).sum(),
    "softmax": lambda d: value(0, *ROWS, dtype=d).softmax(1),
    "max_pool2d": lambda d: F.max_pool2d(value(0, *IMAGE, dtype=d), 2),
}


def type_of(make, dtype):
    try:
        with torch.autocast("cpu", dtype=LOW):
            return {LOW: "bf16", WIDE: "f32"}[make(dtype).dtype]
    except RuntimeError:
        return None


def mlp(x, w, b, v): return F.mse_loss(F.linear(F.gelu(F.linear(x, w, b)), v), torch.zeros(x.shape[0], v.shape[0]))


def convnet(x, w, b, v):
    return F.cross_entropy(F.linear(F.relu(F.conv2d(x, w, b, padding=1)).flatten(1), v), CLASSES[:2])


def products(a, b): return F.mse_loss(torch.matmul(a, torch.bmm(b, a)), torch.zeros(2, 4, 6))


NETS = {"mlp": (mlp, [(8, 6), (16, 6), (16,), (5, 16)]),
        "convnet": (convnet, [(2, 3, 5, 5), (4, 3, 3, 3), (4,), (3, 100)]),
        "products": (products, [(2, 4, 6), (2, 6, 4)])}


def outcome(net, shapes, autocast):
    x = [value(k, *shape).requires_grad_() for k, shape in enumerate(shapes)]
    with torch.autocast("cpu", dtype=LOW, enabled=autocast):
        loss = net(*x)
    loss.backward()
    return {"loss": float("%.9g" % loss.item()),
            "grads": [[float("%.6g" % g) for g in t.grad.flatten().tolist()] for t in x]}


if __name__ == "__main__":
    made = {"torch": torch.__version__, "types": {k: [type_of(f, LOW), type_of(f, WIDE)] for k, f in TYPES.items()},
            "nets": {k: {"bf16": outcome(*v, True), "f32": outcome(*v, False)} for k, v in NETS.items()}}
    with open(sys.argv[1], "w") as out:
        json.dump(made, out)
        out.write("\n")
