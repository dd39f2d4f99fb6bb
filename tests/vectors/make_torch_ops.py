"""Results and gradients of operators, and steps of optimizers, as PyTorch computes them (f32, CPU, AVX2 or better).
usage: make_torch_ops.py OUT.json   (torch >= 1.13; the cases are those of tests/unit/autograd/op_cases.h)"""
import json, sys
import torch, torch.nn.functional as F


def value(k, n, shape):
    """Element i of input k, as gradcheck_value() has it: rounded to f32 from double."""
    i = torch.arange(n, dtype=torch.int64)
    return (((i * 37 + k * 53 + 19) % 211).double() / 105.3 - 1.0017).float().reshape(shape)


def numbers(t): return [float("%.9g" % v) for v in t.detach().reshape(-1).tolist()]


def targets(x): return torch.arange(x.shape[0]) * 3 % x.shape[1]


CASES = [
    ("add", torch.add, [(3, 4), (3, 4)]), ("add broadcast", torch.add, [(3, 4), (4,)]),
    ("add outer", torch.add, [(3, 1), (1, 4)]),
    ("add scalar", torch.add, [(), (2, 3, 2)]), ("sub", torch.sub, [(3, 4), (3, 4)]),
    ("sub broadcast", torch.sub, [(2, 1, 4), (3, 1)]),
    ("mul", torch.mul, [(3, 4), (3, 4)]), ("mul broadcast", torch.mul, [(5, 1), (2, 1, 3)]),
    ("mul by itself", lambda x: x * x, [(3, 4)]),
    ("scale", lambda x: x * -2.5, [(5, 7)]), ("mean", torch.mean, [(2, 3, 4)]), ("sum", torch.sum, [(9, 5)]),
    ("matmul", torch.matmul, [(3, 5), (5, 4)]), ("matmul row", torch.matmul, [(1, 5), (5, 1)]),
    ("linear", F.linear, [(4, 5), (3, 5), (3,)]), ("linear 1-d", F.linear, [(5,), (3, 5), (3,)]),
    ("linear 3-d", F.linear, [(2, 3, 5), (4, 5), (4,)]), ("linear to one", F.linear, [(3, 1), (1, 1), (1,)]),
    ("linear without bias", F.linear, [(4, 5), (3, 5)]), ("relu", F.relu, [(6, 7)]),
    ("log_softmax", lambda x: F.log_softmax(x, -1), [(4, 19)]),
    ("log_softmax dim 0", lambda x: F.log_softmax(x, 0), [(4, 5)]),
    ("log_softmax dim 1 of 3", lambda x: F.log_softmax(x, 1), [(2, 5, 3)]),
    ("nll_loss", lambda x: F.nll_loss(x, targets(x)), [(4, 5)]),
    ("cross_entropy", lambda x: F.cross_entropy(x, targets(x)), [(4, 5)]),
    ("cross_entropy wide", lambda x: F.cross_entropy(x, targets(x)), [(2, 35)]),
    ("mse_loss", F.mse_loss, [(4, 5), (4, 5)]),
    ("view", lambda x: x.view(2, -1), [(4, 3)]), ("reshape", lambda x: x.reshape(-1), [(2, 3, 2)]),
    ("flatten", lambda x: torch.flatten(x, 1), [(2, 3, 2)]), ("transpose", lambda x: x.transpose(0, -1), [(2, 3, 4)]),
    ("narrow", lambda x: x.narrow(1, 1, 2) + x.narrow(1, 2, 2), [(3, 5)]), ("clone", torch.clone, [(3, 5)]),
    ("to", lambda x: x.to(x.dtype), [(3, 5)]),
]


def op(name, f, shapes):
    leaves = [value(k, torch.Size(s).numel(), s).requires_grad_() for k, s in enumerate(shapes)]
    y = f(*leaves)
    (y * value(7, y.numel(), y.shape)).sum().backward()
    return {"name": name, "result": numbers(y), "grads": [numbers(x.grad) for x in leaves]}


SGD = [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.03}, {"lr": 0.05, "momentum": 0.9},
       {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.03},
       {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}, {"lr": 0.05, "momentum": 0.9, "nesterov": True},
       {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.03}]


ADAM = [{"kind": kind, "lr": 0.01, "beta1": b1, "beta2": b2, "eps": eps, "weight_decay": wd, "amsgrad": amsgrad}
        for kind in ("adam", "adamw") for wd in (0, 0.03) for amsgrad in (False, True)
        for b1, b2, eps in ((0.9, 0.999, 1e-8), (0.8, 0.95, 1e-3))]


def train(optimizer, p):
    """37 parameters; the gradient in step s is value(s + 1)."""
    steps = []
    for s in range(4):
        p.grad = value(s + 1, 37, (37,))
        optimizer.step()
        steps.append(numbers(p))
    return steps


def sgd(options):
    p = value(0, 37, (37,)).requires_grad_()
    return dict(options, steps=train(torch.optim.SGD([p], **options), p))


def adam(options):
    p = value(0, 37, (37,)).requires_grad_()
    kind = torch.optim.Adam if options["kind"] == "adam" else torch.optim.AdamW
    optimizer = kind([p], lr=options["lr"], betas=(options["beta1"], options["beta2"]), eps=options["eps"],
                     weight_decay=options["weight_decay"], amsgrad=options["amsgrad"], foreach=False)
    steps = train(optimizer, p)
    state = {name: numbers(x) for name, x in optimizer.state[p].items()}
    return dict(options, steps=steps, state=state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = {"torch": torch.__version__, "ops": [op(*c) for c in CASES], "sgd": [sgd(o) for o in SGD],
           "adam": [adam(o) for o in ADAM]}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
