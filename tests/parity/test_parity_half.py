#!/usr/bin/env python3
"""Every operator in bf16 and f16 beside PyTorch, a few random shapes each: test_parity.py with --dtype."""
import sys

import test_parity

CASES = 3

if __name__ == "__main__":
    sys.exit(max(test_parity.main(["--dtype", dtype, "--cases", str(CASES), *sys.argv[1:]])
                 for dtype in ("bf16", "f16")))
