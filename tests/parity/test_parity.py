#!/usr/bin/env python3
"""Every operator beside PyTorch, results and gradients, on random shapes: see parity.py. Skipped (77) without torch.

usage: test_parity.py [--cases N] [--dtype bf16|f16] [--seed N] [--only NAME] [--table FILE]
  --cases N     of each operator (default 12; docs/parity.md has 100)
  --dtype TYPE  compare in 16 bits (default f32)
  --seed N      repeats a run; each draws its own and prints it
  --table FILE  write the worst of each operator, as docs/parity.md has it
"""
import argparse
import os
import pathlib
import random
import re
import sys
import warnings

try:
    import torch
except ImportError as error:
    print("skipped: cannot import torch:", error)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import cases_compare  # noqa: E402
import cases_conv  # noqa: E402
import cases_copies  # noqa: E402
import cases_core  # noqa: E402
import cases_index  # noqa: E402
import cases_layers  # noqa: E402
import cases_modules  # noqa: E402
import cases_pointwise  # noqa: E402
import operators_def  # noqa: E402
import parity  # noqa: E402

MODULES = (cases_core, cases_pointwise, cases_copies, cases_compare, cases_index, cases_conv, cases_layers,
           cases_modules)
FAMILIES = [(cases.__doc__.rstrip("."), cases.CASES) for cases in MODULES]


# Without a case: what makes tensors of nothing, what is random, what hands over what is there, and tt_apply().
EXEMPT = set("""apply arange arange_from detach dropout empty empty_like eye from_blob from_data full full_like
    generator_get_state grad keep linspace named_tensors_find node_grad node_saved ones ones_like rand randint randn
    recompute requires_grad_ sparse_grad_indices sparse_grad_values to_device zeros zeros_like""".split())


def without_case():
    """Public functions that give a tensor and that parity_*.h does not call."""
    source = pathlib.Path(__file__).resolve().parents[2]
    headers = "".join((source / "include/tutti" / name).read_text() for name in
                      ("tensor.h", "autograd.h", "functional.h", "nn_functional.h"))
    called = "".join(path.read_text() for path in (source / "tests/parity").glob("parity_*.h"))
    names = set(re.findall(r"^TT_API tt_tensor \*tt_(\w+?)(?:_with)?\(", headers, re.M))
    made = operators_def.made()
    return sorted(name for name in names - EXEMPT - made if not re.search(rf"\btt_{name}\(", called))


def worst_of(program, name, draw, cases, seed):
    """The worst Difference of an operator's cases, PyTorch's own at its worst, and whether all are close; those that
    are not are told."""
    found = []
    for number in range(cases):
        choose = parity.Random(f"{seed} {name} {number}")
        drawn = draw(choose)
        found.append((parity.run_case(program, name, drawn, choose), number, drawn))
    own = max(difference.own for difference, *_ in found)
    for difference, _, case in found:
        if not difference.why and not difference.close(own, program.precision):
            own = max(own, parity.own_nearby(case, difference.gradient, program.precision))
    far = [each for each in found if not each[0].close(own, program.precision)]
    for difference, number, case in far:
        print(f"{name}, case {number}: {parity.describe(case)}: " +
              (difference.why or f"error {difference.share:.2g} of the largest, PyTorch's at most {own:.2g}"))
    return max(difference.share for difference, *_ in found), own, not far


def table_lines(rows, cases, seed):
    yield f"""# Parity with PyTorch

Made by `tests/parity/test_parity.py --cases {cases} --seed {seed} --table docs/parity.md`: {cases} random
shapes of each operator (empty, of one element, permuted, channels last, broadcast), f32, beside PyTorch
{torch.__version__.split('+')[0]}. *Error* is the largest difference of a result or gradient from PyTorch's in f64, as
a share of the largest magnitude (at least 0.01); beside it that of PyTorch's own f32 in the same cases
(and, where the error is above both a hundred-thousandth and twice that, in cases close by).
"""
    for title, found in rows:
        yield f"## {title}\n"
        yield "| operator | worst error | PyTorch's |\n| --- | ---: | ---: |"
        for name, (worst, own, _) in found:
            yield f"| {name} | {worst:.1e} | {own:.1e} |"
        yield ""


def made_elsewhere(table):
    """The page's sections that are not families of operators (tests/support/torch_parity.py)."""
    _, *sections = table.read_text(encoding="utf-8").split("\n## ")
    titles = [title for title, _ in FAMILIES]
    return "\n".join("## " + text for text in sections if text.splitlines()[0] not in titles)


# By element type: what cannot be compared. Numbers that rounding makes equal have no order among them. relu's gradient
# jumps where a sum is near 0, and PyTorch has no such modules in f16 whose jumps would be as many.
TIED, JUMPING = ("sort", "topk"), ("rnn", "rnn_cell", "transformer_encoder_layer")
INCOMPARABLE = {"f32": (), "f64": (), "bf16": TIED, "f16": TIED + JUMPING}


def main(arguments=None):
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--dtype", choices=("f32", "bf16", "f16"), default="f32")
    parser.add_argument("--only")
    parser.add_argument("--table")
    args = parser.parse_args(arguments)
    if args.table and args.dtype != "f32":
        parser.error("--table: the page is of f32")
    print(f"--seed {args.seed}", flush=True)
    torch.set_num_threads(1)
    for what in ("reduction:", "Applying the CPU mse kernel on half"):
        warnings.filterwarnings("ignore", what)
    program = parity.Program(os.path.join(os.environ["TT_PROGRAMS"], "parity"), parity.PRECISIONS[args.dtype])
    rows = [(title, [(name, worst_of(program, name, draw, args.cases, args.seed)) for name, draw in cases.items()
                     if args.only in (None, name) and name not in INCOMPARABLE[args.dtype]])
            for title, cases in FAMILIES]
    ended = program.close()
    if args.table:
        table = pathlib.Path(args.table)
        lines = [*table_lines(rows, args.cases, args.seed), made_elsewhere(table)]
        table.write_text("\n".join(lines), encoding="utf-8")
    bad = [name for _, found in rows for name, (*_, close) in found if not close]
    lacking = without_case()
    if lacking:
        print("without a case:", ", ".join(lacking))
    print(f"{sum(len(found) for _, found in rows)} operators, {args.cases} cases each, {args.dtype}: " +
          (f"not close: {', '.join(bad)}" if bad else "all close"))
    return 1 if bad or lacking or ended else 0


if __name__ == "__main__":
    sys.exit(main())
