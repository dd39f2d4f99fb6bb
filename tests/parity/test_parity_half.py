#!/usr/bin/env python3
"""Every operator in bf16 and f16 beside PyTorch, a few random shapes each: test_parity.py with --dtype. Then all of
them on special values in every type (special.py): the same cases in each run, some of each operator's kinds; with
TT_SPECIAL_CASES=N all kinds, N cases of each, of the seed TT_SPECIAL_SEED (default 0)."""
import os
import sys

import test_parity
import parity
import special

CASES = 3


def special_values(only):
    """How many operators differ; each is told."""
    cases, seed = (int(os.environ.get(name, "0")) for name in ("TT_SPECIAL_CASES", "TT_SPECIAL_SEED"))
    count = 0
    for name, dtype in special.TYPES.items():
        program = parity.Program(os.path.join(os.environ["TT_PROGRAMS"], "parity"), parity.PRECISIONS[name])
        families = [(m.__name__, {op: draw for op, draw in m.CASES.items() if only in (None, op)})
                    for m in test_parity.MODULES]
        for text in special.differences(program, families, dtype, cases, seed):
            print(f"{name}: {text}", flush=True)
            count += 1
        count += program.close() != 0
    print(f"special values in {', '.join(special.TYPES)}: " + (f"{count} differ" if count else "all as PyTorch's"))
    return count


if __name__ == "__main__":
    arguments = sys.argv[1:]
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else None
    found = [test_parity.main(["--dtype", dtype, "--cases", str(CASES), *arguments]) for dtype in ("bf16", "f16")]
    sys.exit(max(*found, special_values(only) > 0))
