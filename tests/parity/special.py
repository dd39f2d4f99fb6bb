"""Operators on special values beside PyTorch: NaN, infinities, zeros of both signs, denormals, the largest numbers, in
every type of floats, forward and gradient.

A case of test_parity.py gets special values of one kind at some places of one input, or of all. An element of a result
or gradient is right if PyTorch has the same, computed in the type itself, in f32 or in f64: NaN, the same infinity, or
finite and near. Sums of the largest numbers overflow in an order that is nobody's: there only what is finite and far
from overflow in PyTorch is compared."""
import torch

import parity

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
NEAR = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1, torch.float64: 1e-6}
FUSED = hasattr(torch.nn.functional, "scaled_dot_product_attention")

# Inputs (by number) that stay ordinary, and why.
NORMS = ("batch_norm", "batch_norm_running", "batch_norm_eval", "layer_norm", "group_norm", "rms_norm")
ORDINARY = {
    **dict.fromkeys(NORMS, ((1, 2, 3, 4), "PyTorch joins mean, weight and bias into one factor and one summand, whose "
                                          "infinities cancel to NaN")),
    **dict.fromkeys(("conv1d", "conv2d"), ((1,), "0 times a weight that meets padding alone is left out, or is NaN")),
    "conv_transpose2d": ((0, 1), "what is cut off at the edges, 0 times it, is left out, or is NaN"),
    **dict.fromkeys(("nll_loss_options", "cross_entropy_options"),
                    ((2,), "0, the gradient of rows that don't count, times a weight is 0 here")),
    "bce_with_logits": ((1, 2, 3), "PyTorch adds parts that are infinite where a target or a weight is")}

# Results (by number) that are not compared, and gradients (-1), and why.
OTHERWISE = {
    "multihead_attention": ((-1,), "what a mask hides has no gradient here, also where the result is NaN"),
    **dict.fromkeys(("sort", "topk"), ((1, -1), "equal elements come in any order")),
    **dict.fromkeys(("conv1d", "conv2d"), ((-1,), "0, of padding, times an infinity is left out, or is NaN"))}

# relu's gradient jumps where rounding to 16 bits decides about a sum near 0.
JUMPING = ("rnn", "rnn_cell", "transformer_encoder_layer")

# Where infinite gates leave little of a gradient, that is rounding in 16 bits.
RECURRENT = ("rnn", "lstm", "gru", "rnn_cell", "lstm_cell", "gru_cell")

# Kinds that an operator is not tried with, and why.
INFINITE, SUMS = ("inf", "-inf", "infs"), "the order of sums decides what overflows"
APART = {
    "to": ("PyTorch's integers of what they can't hold are undefined", ("nan", *INFINITE, "largest")),
    **dict.fromkeys(("multihead_attention", "transformer_encoder_layer"),
                    ("rows all of whose scores are -inf are 0 here, NaN in PyTorch's steps", INFINITE)),
    **dict.fromkeys(("bmm", "cumsum", "var", "norm", "sum_dim", "mean_dim"), (SUMS, ("largest",))),
    "interpolate": ("a weight that rounding makes 0, or not, meets an infinity", ("largest", *INFINITE))}

# Families of sums: not tried with the largest numbers.
SUMMING = ("cases_core", "cases_conv", "cases_layers", "cases_modules")


def values_of(dtype):
    """By kind."""
    info, inf = torch.finfo(dtype), float("inf")
    return {"nan": [float("nan")], "inf": [inf], "-inf": [-inf], "infs": [inf, -inf], "zeros": [0.0, -0.0],
            "denormal": [info.tiny / 8, -info.tiny / 8], "largest": [info.max, -info.max]}


def rounded(x, dtype):
    return x if x is None or not x.is_floating_point() else x.to(dtype).double()


def sprinkled(choose, x, values):
    flat = x.reshape(-1).clone()
    count = max(1, int(flat.numel() * choose.choice([0.0, 0.1, 0.3])))
    for place in choose.sample(range(flat.numel()), count):
        flat[place] = choose.choice(values)
    return flat.reshape(x.shape)


def make_special(choose, name, case, dtype, values):
    """Put special values into the case; false: it has no place for them."""
    case.inputs = [rounded(x, dtype) for x in case.inputs]
    ordinary = ORDINARY.get(name, ((),))[0]
    if name == "attention" and case.numbers["causal"]:
        ordinary = (1, 2)  # whether what is hidden there is read, for nothing, depends on blocks
    floats = [i for i, x in enumerate(case.inputs)
              if x is not None and x.is_floating_point() and x.numel() and i not in ordinary]
    if not floats:
        return False
    for i in [choose.choice(floats)] if choose.random() < 0.7 else floats:
        case.inputs[i] = sprinkled(choose, case.inputs[i], values)
    return True


def torchs(case, dtype, gradient):
    """What PyTorch has, in this type, f32 and f64, as pairs of results and gradients."""
    found = []
    for each in dict.fromkeys((dtype, torch.float64 if dtype == torch.float64 else torch.float32, torch.float64)):
        try:
            found.append(parity.evaluate(case, each, gradient, dtype))
        except RuntimeError:  # 1.13 lacks much of f16, and misreads some of bf16
            if each == torch.float64:
                raise
    return found


def is_same(ours, right, near, largest):
    """Element by element."""
    finite = right.isfinite()
    scale = right[finite].abs().max().item() if finite.any() else 1.0
    error = near * torch.clamp(right.abs(), min=max(scale, 0.01) if scale < 1e6 else 0.01)
    same = (ours.isnan() & right.isnan()) | (ours == right) | (finite & ((ours - right).abs() <= error))
    return same if largest is None else same | ~(right.abs() < largest)


def difference(what, ours, rights, dtype, largest):
    """None, or a text."""
    if ours is None:
        ours = torch.zeros_like(rights[0]) if rights[0] is not None else None
    if ours is None:
        return None
    rights = [torch.zeros_like(ours) if right is None else right for right in rights]
    if list(ours.shape) != list(rights[0].shape):
        return f"{what}: shape {list(ours.shape)}, expected {list(rights[0].shape)}"
    if not rights[0].is_floating_point():
        return None if any(ours.to(right.dtype).equal(right) for right in rights) else f"{what}: other integers"
    ours, fine = ours.double(), torch.zeros(ours.shape, dtype=torch.bool)
    for right in rights:
        fine |= is_same(ours, right.to(dtype).double(), NEAR[dtype], largest)
    if fine.all():
        return None
    place = int((~fine).reshape(-1).nonzero()[0])
    have, *others = (f"{x.reshape(-1)[place].item():.5g}" for x in (ours, *rights))
    return f"{what}: element {place} of {list(ours.shape)} is {have}, PyTorch's {' or '.join(others)}"


def run_special(program, name, case, choose, kind, dtype):
    """None, or what differs."""
    if not make_special(choose, name, case, dtype, values_of(dtype)[kind]):
        return None
    if name == "attention" and case.numbers["causal"] and kind in INFINITE:
        return None  # scores that are hidden by adding -inf are NaN, or were never read
    if hasattr(case, "fused"):
        if not case.fused:
            return None
        case.run = case.fused
    probe, _ = parity.evaluate(case, torch.float64, False)
    backward = any(case.wants) and probe[0].is_floating_point()
    gradient = rounded(choose.floats(list(probe[0].shape)), dtype) if backward else None
    rights = torchs(case, dtype, gradient)
    orders = [[] if x is None else list(range(x.dim())) for x in case.inputs]
    program.send(name, case, orders, gradient)
    try:
        ours, grads = program.answer(case, orders, backward)
    except RuntimeError as error:
        return str(error)
    jumps = name in JUMPING or (name in RECURRENT and kind in INFINITE)
    jumps = jumps and dtype in (torch.bfloat16, torch.float16)
    otherwise = (-1,) if jumps or (name == "attention" and case.numbers["causal"]) else OTHERWISE.get(name, ((),))[0]
    largest = torch.finfo(dtype).max / 1000 if kind == "largest" else None
    found = [difference(f"result {i}", y, [right[0][i] for right in rights], dtype, largest)
             for i, y in enumerate(ours) if i not in otherwise]
    found += [difference(f"gradient {i}", d, [right[1][i] for right in rights], dtype, largest)
              for i, d in enumerate(grads) if case.wants[i] and backward and -1 not in otherwise]
    return next((text for text in found if text), None)


def kinds_of(name, dtype, few):
    """Two kinds of each operator in each type, others in other types; or all."""
    kinds = list(values_of(dtype))
    first = sum(map(ord, name)) + 2 * list(TYPES.values()).index(dtype)
    return [kinds[(first + i) % len(kinds)] for i in (0, 3)] if few else kinds


def differences(program, families, dtype, cases, seed):
    """What differs, a text for each operator and kind. `families`: pairs of a module's name and its cases; `cases` of
    each kind, 0: one of two kinds."""
    for family, name, draw in ((f, *each) for f, found in families for each in found.items()):
        for kind in kinds_of(name, dtype, not cases):
            if kind in APART.get(name, ("", ()))[1] or (kind == "largest" and family in SUMMING):
                continue
            for number in range(max(1, cases)):
                choose = parity.Random(f"{seed} {name} {kind} {number}")
                case = draw(choose)
                found = run_special(program, name, case, choose, kind, dtype)
                if found:
                    yield f"{name}, {kind}, case {number}: {parity.describe(case)}: {found}"
                    break
