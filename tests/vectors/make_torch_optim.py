"""100 steps of each optimizer beside its options, as PyTorch takes them (CPU, AVX2 or better, foreach=False), in f32
and f64.
usage: make_torch_optim.py OUT.json   (torch >= 1.13; tests/unit/test_optim_torch.c takes the same steps)"""
import json, sys
import torch

N, STEPS, MARKS = 19, 100, (1, 10, 100)


def value(k, dtype):
    """Input k, as gradcheck_value() has it: rounded to f32 from double."""
    i = torch.arange(N, dtype=torch.int64)
    return (((i * 37 + k * 53 + 19) % 211).double() / 105.3 - 1.0017).float().to(dtype)


def numbers(t): return [float(("%.9g" if t.dtype == torch.float32 else "%.17g") % v) for v in t.detach().tolist()]


def add_bits(digest, t):
    """FNV-1a, 64 bits, over the bytes of t."""
    for byte in t.detach().numpy().tobytes():
        digest = (digest ^ byte) * 0x100000001b3 % 2 ** 64
    return digest


KINDS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
         "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta}
CASES = [
    ("sgd", {"lr": 0.05}), ("sgd", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.03}),
    ("sgd", {"lr": 0.05, "maximize": True}),
    ("sgd", {"lr": 0.05, "momentum": 0.8, "dampening": 0.2, "weight_decay": 0.01, "maximize": True}),
    ("adam", {"lr": 0.01}), ("adam", {"lr": 0.01, "weight_decay": 0.03, "amsgrad": True}),
    ("adam", {"lr": 0.01, "weight_decay": 0.03, "maximize": True}),
    ("adamw", {"lr": 0.01, "weight_decay": 0.03}), ("adamw", {"lr": 0.01, "weight_decay": 0.03, "amsgrad": True,
                                                              "maximize": True}),
    ("rmsprop", {"lr": 0.01}), ("rmsprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.03}),
    ("rmsprop", {"lr": 0.01, "momentum": 0.9}), ("rmsprop", {"lr": 0.01, "centered": True}),
    ("rmsprop", {"lr": 0.01, "centered": True, "momentum": 0.8, "weight_decay": 0.03, "maximize": True}),
    ("adagrad", {"lr": 0.01}), ("adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.03}),
    ("adagrad", {"lr": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3, "maximize": True}),
    ("adagrad", {"lr": 0.1, "initial_accumulator_value": 0.3, "weight_decay": 0.03}),
    ("adadelta", {"lr": 1.0}), ("adadelta", {"lr": 0.5, "rho": 0.95, "eps": 1e-4, "weight_decay": 0.03}),
    ("adadelta", {"lr": 1.0, "maximize": True}),
]


def train(kind, options, dtype):
    """19 parameters; the gradient in step s is value(s). "bits" digests the parameters after every step."""
    p = value(0, dtype).requires_grad_()
    optimizer = KINDS[kind]([p], foreach=False, **options)
    marks, digest = {}, 0xcbf29ce484222325
    for step in range(1, STEPS + 1):
        p.grad = value(step, dtype)
        optimizer.step()
        digest = add_bits(digest, p)
        if step in MARKS:
            marks[str(step)] = numbers(p)
    state = {name: numbers(x) for name, x in optimizer.state[p].items() if torch.is_tensor(x) and x.dim()}
    return {"kind": kind, "dtype": "f32" if dtype == torch.float32 else "f64", "options": options, "params": marks,
            "bits": "%016x" % digest, "state": state}


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = {"torch": torch.__version__,
           "optimizers": [train(kind, o, dtype) for kind, o in CASES for dtype in (torch.float32, torch.float64)]}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
