"""Compares operators with PyTorch on random shapes: the program `parity` computes, PyTorch does the same in f64, which
counts as right, and in f32, whose error is the measure.

A result or gradient is close if its error is at most 1e-5 of the largest magnitude; or else twice that of PyTorch's
f32, at its worst in the operator's cases and, if that is not enough, in cases that differ from this one by a
hundred-thousandth: what a single case's rounding gives is luck. A magnitude below 0.01 counts as that: it is what
cancellation has left of numbers around 1.

In bf16 and f16 inputs are rounded first, so that f64 has the same ones; close is three units in the last place of the
largest magnitude, or of 1: gradients may be made of a result that is rounded. Where PyTorch's CPU has no f16, an eighth
of its error in bf16 is the measure."""
import random
import struct
import subprocess
import typing

import torch

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
         torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}
TYPES = {name: dtype for dtype, name in NAMES.items()}
AS_TORCH, NEIGHBOURS = 2.0, 32


class Precision(typing.NamedTuple):
    """What operators are compared in: `close` is enough, a magnitude below `least` counts as that, and cases that
    differ by a share of `apart` are alike."""
    dtype: torch.dtype
    close: float
    least: float
    apart: float

    def rounded(self, x):
        """x in f64, as f32 and this type have it."""
        return x if x is None or not x.is_floating_point() else x.float().to(self.dtype).double()


PRECISIONS = {"f32": Precision(torch.float32, 1e-5, 0.01, 1e-5),
              "bf16": Precision(torch.bfloat16, 3 * 2 ** -8, 1, 2 ** -8),
              "f16": Precision(torch.float16, 3 * 2 ** -11, 1, 2 ** -11),
              "f64": Precision(torch.float64, 1e-12, 0.01, 1e-12)}


class Random(random.Random):
    """Draws shapes with an inclination to what is special: empty, of one element, not in row-major order."""

    def size(self, most=9, least=0):
        return self.choices([least if least else self.choice([0, 1]), 1, self.randint(max(1, least), most)],
                            [1, 3, 20])[0] if least < 2 else self.randint(least, most)

    def shape(self, least=0, most=4, largest=9, smallest=0):
        sizes = [self.size(largest, smallest) for _ in range(self.randint(least, most))]
        if sizes and self.random() < 0.1:
            sizes = [min(size, 9) for size in sizes]
            sizes[self.randrange(len(sizes))] = self.randint(17, 300)
        return sizes

    def side(self, most, least=0):
        """Of a matrix: sometimes past the blocks of fast loops."""
        return self.randint(64, 200) if self.random() < 0.1 else self.size(most, least)

    def channels(self, most):
        """Sometimes more than a vector register holds."""
        return self.randint(16, 70) if self.random() < 0.15 else self.randint(1, most)

    def floats(self, shape, low=-2.0, high=2.0):
        generator = torch.Generator().manual_seed(self.getrandbits(60))
        return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low

    def integers(self, shape, low, high):
        """From low to high - 1."""
        generator = torch.Generator().manual_seed(self.getrandbits(60))
        return torch.randint(low, high, shape, generator=generator)

    def broadcast_of(self, shape):
        """A shape that spreads to this one."""
        shape = [1 if self.random() < 0.3 else size for size in shape]
        return shape[self.randint(0, len(shape)):] if self.random() < 0.3 else shape

    def order(self, ndim):
        """Of dimensions in memory: mostly row-major, sometimes channels last, sometimes any."""
        draw = self.random()
        if draw < 0.5 or ndim < 2:
            return list(range(ndim))
        if draw < 0.7 and ndim == 4:
            return [0, 2, 3, 1]
        order = list(range(ndim))
        self.shuffle(order)
        return order


class Case:
    """`inputs`: tensors (f64 or integers), None where one is left out; `run`: of the inputs, with PyTorch; `numbers`:
    what parity.c is told; `wants`: which inputs get gradients (default: all floats); `plain`: from which input on they
    are in row-major order: a module's parameters."""

    def __init__(self, inputs, run, wants=None, plain=None, **numbers):
        self.inputs, self.run, self.numbers = inputs, run, numbers
        self.plain = len(inputs) if plain is None else plain
        floats = [x is not None and x.is_floating_point() for x in inputs]
        self.wants = floats if wants is None else [a and b for a, b in zip(floats, wants)]


class Program:
    def __init__(self, path, precision=PRECISIONS["f32"]):
        self.precision = precision
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()

    def send(self, name, case, orders, gradient):
        backward = gradient is not None
        words = [name, len(case.inputs), int(backward), *(f"{key}={value:.17g}" for key, value in case.numbers.items())]
        self.line(*words)
        for x, order, wants in zip(case.inputs, orders, case.wants):
            if x is None:
                self.line("-")
            else:
                self.tensor(x, order, wants and backward)
        if backward:
            self.tensor(gradient, list(range(gradient.dim())), False)
        self.process.stdin.flush()

    def line(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def tensor(self, x, order, grad):
        """As it lies in memory, and how to permute that to x."""
        x = x.to(self.precision.dtype) if x.dtype == torch.float64 else x
        stored = x.permute(order).contiguous()
        back = [order.index(d) for d in range(len(order))]
        self.line(NAMES[x.dtype], int(grad), x.dim(), *stored.shape, *back)
        bits = stored.view(torch.int16) if x.dtype == torch.bfloat16 else stored
        self.process.stdin.write(bytes(bits.numpy().tobytes()))

    def read(self):
        words = self.process.stdout.readline().decode().split()
        if not words:
            raise RuntimeError(f"the program ended: {self.process.wait()}")
        if words[0] == "none":
            return None
        dtype, shape = TYPES[words[0]], list(map(int, words[2:]))
        count = 1
        for size in shape:
            count *= size
        data = bytearray(self.process.stdout.read(count * torch.empty(0, dtype=dtype).element_size()))
        flat = torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        return flat.reshape(shape)

    def answer(self, case, orders, backward):
        words = self.process.stdout.readline().decode().rstrip("\n").split(" ", 1)
        if words[0] != "ok":
            raise RuntimeError(words[-1] if words[0] == "error" else f"the program ended: {self.process.wait()}")
        results = [self.read() for _ in range(int(words[1]))]
        grads = []
        for wants, order in zip(case.wants, orders):
            grad = self.read() if wants and backward else None
            grads.append(None if grad is None else grad.permute([order.index(d) for d in range(len(order))]))
        return results, grads


def evaluate(case, dtype, gradient, through=torch.float32):
    """Results and gradients by PyTorch, in this dtype, of row-major inputs: of others 1.13's batch_norm gives wrong
    gradients. Numbers are first rounded to the type `through`."""
    leaves = [None if x is None else
              (x.to(through).to(dtype) if x.is_floating_point() else x.clone()).contiguous().detach()
              for x in case.inputs]
    for leaf, wants in zip(leaves, case.wants):
        if wants and gradient is not False:
            leaf.requires_grad_()
    results = case.run(*leaves)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if gradient is None or gradient is False or not results[0].requires_grad:
        return results, [None] * len(leaves)
    results[0].backward(gradient.to(through).to(dtype))
    return results, [leaf.grad if wants else None for leaf, wants in zip(leaves, case.wants)]


class Difference:
    """What a comparison found: the error as a share of the largest magnitude, ours and PyTorch's, or why there is
    none."""

    def __init__(self, share=0.0, own=0.0, why=None):
        self.share, self.own, self.why = share, own, why
        self.gradient = None  # that the case was run with

    def close(self, own, precision):
        """`own`: the worst of PyTorch's."""
        return not self.why and self.share <= max(precision.close, AS_TORCH * own)


def compare(what, ours, right, least):
    if ours is None:
        return Difference() if right is None or not right.any() else Difference(why=f"{what}: none")
    if right is None:
        right = torch.zeros_like(ours)
    if list(ours.shape) != list(right.shape):
        return Difference(why=f"{what}: shape {list(ours.shape)}, expected {list(right.shape)}")
    if not right.is_floating_point():
        same = ours.to(right.dtype).equal(right)
        return Difference() if same else Difference(why=f"{what}: other integers")
    ours, right = ours.double(), right.double()
    finite = right.isfinite()
    odd = ~finite & ~((ours == right) | (ours.isnan() & right.isnan()))
    if odd.any() or not ours[finite].isfinite().all():
        return Difference(why=f"{what}: not finite where it should be, or otherwise")
    if not finite.any():
        return Difference()
    error = (ours - right)[finite].abs().max().item()
    largest = max(right[finite].abs().max().item(), least)
    return Difference(error / largest)


def run_case(program, name, case, choose):
    """The worst Difference of the case."""
    orders = [[] if x is None else choose.order(x.dim()) if i < case.plain else list(range(x.dim()))
              for i, x in enumerate(case.inputs)]
    backward = any(case.wants)
    gradient = None
    if backward:
        probe, _ = evaluate(case, torch.float64, False)
        gradient = choose.floats(list(probe[0].shape))
        backward = probe[0].is_floating_point()
        gradient = gradient if backward else None
    case.inputs = [program.precision.rounded(x) for x in case.inputs]
    gradient = program.precision.rounded(gradient)
    right, right_grads = evaluate(case, torch.float64, gradient)
    own = own_errors(case, gradient, program.precision)
    program.send(name, case, orders, gradient)
    try:
        ours, grads = program.answer(case, orders, backward)
    except RuntimeError as error:
        return Difference(why=str(error))
    if len(ours) != len(right):
        return Difference(why=f"{len(ours)} results, expected {len(right)}")
    least = program.precision.least
    found = [compare(f"result {i}", *each, least) for i, each in enumerate(zip(ours, right))]
    found += [compare(f"gradient {i}", *each, least) for i, each in enumerate(zip(grads, right_grads))
              if case.wants[i] and backward]
    own = own[:len(right)] + [each for each, wants in zip(own[len(right):], case.wants) if wants and backward]
    for difference, each in zip(found, own):
        difference.own = each
    worst = max(found, key=lambda d: (d.why is not None, d.share))
    worst.gradient = gradient
    return worst


def own_errors(case, gradient, precision):
    """The errors of PyTorch's in this precision, of results and of gradients; 0 if it has no such kernels."""
    inputs = case.inputs
    case.inputs, gradient = [precision.rounded(x) for x in inputs], precision.rounded(gradient)
    try:
        right, right_grads = evaluate(case, torch.float64, gradient)
        torchs, torch_grads = evaluate(case, precision.dtype, gradient)
        return [0.0 if t is None else compare("", t, r, precision.least).share
                for t, r in zip(torchs + torch_grads, right + right_grads)]
    except RuntimeError as error:
        if precision.dtype == torch.float32:
            raise
        if precision.dtype == torch.bfloat16 or "not implemented" not in str(error):
            return [0.0] * (len(right) + len(right_grads))
        return [own / 8 for own in own_errors(case, gradient, PRECISIONS["bf16"])]
    finally:
        case.inputs = inputs


def own_nearby(case, gradient, precision):
    """The worst error of PyTorch's where all numbers differ a little from the case's."""
    generator, inputs, worst = torch.Generator().manual_seed(1), case.inputs, 0.0

    def moved(x):
        if x is None or not x.is_floating_point():
            return x
        return x * (1 + precision.apart * (2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1))
    for _ in range(NEIGHBOURS):
        case.inputs, near = [moved(x) for x in inputs], moved(gradient)
        worst = max(worst, *own_errors(case, near, precision))
    case.inputs = inputs
    return worst


def describe(case):
    return ", ".join("none" if x is None else f"{NAMES[x.dtype]} {list(x.shape)}" for x in case.inputs) + \
        "".join(f", {key} {value:g}" for key, value in case.numbers.items())
