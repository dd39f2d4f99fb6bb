"""100 steps of each optimizer beside its options, as PyTorch takes them (CPU, AVX2 or better, foreach=False), in f32
and f64; and the learning rates of schedulers.
usage: make_torch_optim.py OUT.json   (torch >= 1.13; tests/unit/optim/test_optim_torch.c and test_scheduler_torch.c
take the same steps)"""
import json, struct, sys, warnings
import torch
from torch.optim import lr_scheduler as lr

N, STEPS, MARKS = 19, 100, (1, 10, 100)


def value(k, dtype):
    """Input k, as gradcheck_value() has it: rounded to f32 from double."""
    i = torch.arange(N, dtype=torch.int64)
    return (((i * 37 + k * 53 + 19) % 211).double() / 105.3 - 1.0017).float().to(dtype)


def numbers(t): return [float(("%.9g" if t.dtype == torch.float32 else "%.17g") % v) for v in t.detach().tolist()]


def add_bits(digest, data):
    """FNV-1a, 64 bits."""
    for byte in data:
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
        digest = add_bits(digest, p.detach().numpy().tobytes())
        if step in MARKS:
            marks[str(step)] = numbers(p)
    state = {name: numbers(x) for name, x in optimizer.state[p].items() if torch.is_tensor(x) and x.dim()}
    return {"kind": kind, "dtype": "f32" if dtype == torch.float32 else "f64", "options": options, "params": marks,
            "bits": "%016x" % digest, "state": state}


def chained(*makers): return lambda o: lr.ChainedScheduler([make(o) for make in makers])


def sequence(milestones, *makers): return lambda o: lr.SequentialLR(o, [make(o) for make in makers], milestones)


def step(o): return lr.StepLR(o, 7, 0.7)
def multi_step(o): return lr.MultiStepLR(o, [5, 20, 20, 63])
def exponential(o): return lr.ExponentialLR(o, 0.97)
def constant(o): return lr.ConstantLR(o, 1 / 3, 9)
def linear(o): return lr.LinearLR(o, 0.1, 0.9, 25)
def linear_down(o): return lr.LinearLR(o, 1, 0, 13)
def cosine(o): return lr.CosineAnnealingLR(o, 17, 0.001)
def cosine_to_0(o): return lr.CosineAnnealingLR(o, 150)
def restarts(o): return lr.CosineAnnealingWarmRestarts(o, 9, 2, 0.002)
def restarts_equal(o): return lr.CosineAnnealingWarmRestarts(o, 13)
def one_cycle(o): return lr.OneCycleLR(o, 0.5, 125)
def three_phases(o):
    return lr.OneCycleLR(o, 0.5, 130, pct_start=0.4, anneal_strategy="linear", base_momentum=0.7, max_momentum=0.9,
                         div_factor=10, final_div_factor=100, three_phase=True)
def no_momentum(o): return lr.OneCycleLR(o, 0.5, 125, cycle_momentum=False)
def by_function(o): return lr.LambdaLR(o, lambda epoch: 1 / (1 + 0.1 * epoch))
def plateau(o): return lr.ReduceLROnPlateau(o, patience=3, factor=0.5, cooldown=2, min_lr=1e-4)
def plateau_max(o):
    return lr.ReduceLROnPlateau(o, mode="max", patience=0, threshold=0.05, threshold_mode="abs")
def plateau_max_part(o): return lr.ReduceLROnPlateau(o, mode="max", patience=1, threshold=0.01)
def plateau_abs(o): return lr.ReduceLROnPlateau(o, patience=2, factor=0.3, threshold=0.02, threshold_mode="abs")


# name in the C test: what makes it, whether a rate is set by hand in epoch 40
SCHEDULERS = {
    "step": (step, False), "multi_step": (multi_step, True), "exponential": (exponential, True),
    "constant": (constant, False), "linear": (linear, False), "linear_down": (linear_down, False),
    "cosine": (cosine, False), "cosine by hand": (cosine, True), "cosine_to_0": (cosine_to_0, True),
    "restarts": (restarts, False), "restarts_equal": (restarts_equal, False), "one_cycle": (one_cycle, False),
    "three_phases": (three_phases, False), "no_momentum": (no_momentum, False), "by_function": (by_function, False),
    "plateau": (plateau, True), "plateau_max": (plateau_max, False), "plateau_max_part": (plateau_max_part, False),
    "plateau_abs": (plateau_abs, False), "chained": (chained(constant, exponential, cosine), True),
    "sequence": (sequence([10, 30, 60], linear, cosine, step, exponential), True),
    "sequence of others": (sequence([8, 40, 70], constant, restarts, by_function, multi_step), False),
    "chained sequence": (chained(sequence([20], linear, cosine_to_0), step), False),
}


def metric(epoch):
    """What is reported in an epoch: gets better, more and more slowly, with steps back."""
    return 1 / (1 + epoch * 0.05) + (0.03 if epoch % 7 == 3 else 0)


def schedule(name, kind):
    """Rates of two groups, and their momentum or beta1, over 120 epochs."""
    make, by_hand = SCHEDULERS[name]
    p = [value(k, torch.float32).requires_grad_() for k in range(2)]
    groups = [{"params": [p[0]]}, {"params": [p[1]], "lr": 0.03}]
    optimizer = (torch.optim.SGD(groups, lr=0.1, momentum=0.9) if kind == "sgd" else torch.optim.Adam(groups, lr=0.1))
    scheduler = make(optimizer)
    lrs, digest = [], 0xcbf29ce484222325
    for epoch in range(121):
        rates = [g["lr"] for g in optimizer.param_groups]
        momenta = [g["momentum"] if kind == "sgd" else g["betas"][0] for g in optimizer.param_groups]
        digest = add_bits(digest, struct.pack("<4d", *rates, *momenta))
        if epoch % 12 == 0:
            lrs.append(rates + momenta)
        if by_hand and epoch == 40:
            optimizer.param_groups[0]["lr"] = 0.05
        scheduler.step(*([metric(epoch) * (-1 if "max" in name else 1)] if "plateau" in name else []))
    return {"name": name, "optimizer": kind, "by_hand": by_hand, "lrs": lrs, "bits": "%016x" % digest}


CLIPS = [{"max_norm": 1.5}, {"max_norm": 100}, {"max_norm": 0.5, "norm_type": 1}, {"max_norm": 0.7, "norm_type": 3},
         {"max_norm": 0.25, "norm_type": float("inf")}]


def clip(options, dtype):
    """Three gradients, clipped by their norm; "value": by 0.4 each."""
    params = [value(k, dtype).requires_grad_() for k in range(3)]
    for k, p in enumerate(params):
        p.grad = value(k + 1, dtype)
    norm = torch.nn.utils.clip_grad_norm_(params, **options)
    out = {"max_norm": options["max_norm"], "norm_type": str(options.get("norm_type", 0)), "norm": norm.item(),
           "dtype": "f32" if dtype == torch.float32 else "f64", "grads": [numbers(p.grad) for p in params]}
    for k, p in enumerate(params):
        p.grad = value(k + 1, dtype)
    torch.nn.utils.clip_grad_value_(params, 0.4)
    return dict(out, by_value=[numbers(p.grad) for p in params])


LAMB = [{"lr": 0.01, "weight_decay": 0.01}, {"lr": 0.01, "weight_decay": 0.0}, {"lr": 0.01, "weight_decay": 0.0,
                                                                               "use_nvlamb": True},
        {"lr": 0.02, "weight_decay": 0.1, "adam_w_mode": False, "beta1": 0.8, "beta2": 0.95, "eps": 1e-4},
        {"lr": 0.01, "weight_decay": 0.03, "bias_correction": False, "grad_averaging": False, "max_grad_norm": 0.0},
        {"lr": 0.01, "weight_decay": 0.03, "max_grad_norm": 100.0, "maximize": True}]


def lamb(options):
    """PyTorch has no LAMB: this is You et al.'s algorithm in f64, written down from the paper, with FusedLAMB's
    options. Two parameters; the second one begins as zeros, as biases do."""
    o = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "max_grad_norm": 1.0, "bias_correction": True,
         "grad_averaging": True, "adam_w_mode": True, "use_nvlamb": False, "maximize": False, **options}
    params = [value(0, torch.float64), torch.zeros(N, dtype=torch.float64)]
    m, v, marks = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params], {}
    for t in range(1, STEPS + 1):
        grads = [value(t + 50 * k, torch.float64) * (-1 if o["maximize"] else 1) for k in range(2)]
        norm = torch.cat(grads).norm().item()
        if o["max_grad_norm"] > 0:
            grads = [g * min(1, o["max_grad_norm"] / norm) for g in grads]
        for k, (p, g) in enumerate(zip(params, grads)):
            if not o["adam_w_mode"]:
                g = g + o["weight_decay"] * p
            m[k] = o["beta1"] * m[k] + (1 - o["beta1"] if o["grad_averaging"] else 1) * g
            v[k] = o["beta2"] * v[k] + (1 - o["beta2"]) * g ** 2
            m_hat = m[k] / (1 - o["beta1"] ** t) if o["bias_correction"] else m[k]
            v_hat = v[k] / (1 - o["beta2"] ** t) if o["bias_correction"] else v[k]
            step = m_hat / (v_hat.sqrt() + o["eps"]) + (o["weight_decay"] * p if o["adam_w_mode"] else 0)
            trust = 1.0
            if o["weight_decay"] or o["use_nvlamb"]:
                trust = (p.norm() / step.norm()).item() if p.norm() > 0 and step.norm() > 0 else 1.0
            params[k] = p - o["lr"] * trust * step
        if t in MARKS:
            marks[str(t)] = [numbers(p) for p in params]
    return {"options": options, "params": marks}


class One(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.a = torch.nn.Parameter(value(0, dtype))


def average(decay, warm_up, dtype):
    """20 updates of an AveragedModel; the parameter in update n is value(n). With warm-up, the number of updates
    before bounds the decay."""
    def ema(averaged, now, n):
        d = min(decay, (1 + n.item()) / (10 + n.item())) if warm_up else decay
        return d * averaged + (1 - d) * now
    model = One(dtype)
    averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=ema)
    for n in range(20):
        model.a.data = value(n, dtype)
        averaged.update_parameters(model)
    state = averaged.state_dict()
    return {"decay": decay, "warm_up": warm_up, "dtype": "f32" if dtype == torch.float32 else "f64",
            "n_averaged": state["n_averaged"].item(), "module.a": numbers(state["module.a"])}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # schedulers step here without their optimizer
    torch.set_num_threads(1)
    out = {"torch": torch.__version__,
           "optimizers": [train(kind, o, dtype) for kind, o in CASES for dtype in (torch.float32, torch.float64)],
           "schedulers": [schedule(name, kind) for name in SCHEDULERS for kind in ("sgd", "adam")],
           "clips": [clip(o, dtype) for o in CLIPS for dtype in (torch.float32, torch.float64)],
           "lamb": [lamb(o) for o in LAMB],
           "averages": [average(d, w, dtype) for d in (0.9, 0.999) for w in (False, True)
                        for dtype in (torch.float32, torch.float64)]}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
