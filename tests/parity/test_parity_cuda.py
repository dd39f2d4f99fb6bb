#!/usr/bin/env python3
"""Every operator on the CUDA device beside PyTorch on the cpu: test_parity.py, with tensors on the fake of CUDA
(tests/support/fake_cuda); of each a few cases in f32 and one in 16 bits, with TT_LONG as many as test_parity.py has.
TT_CUDA_REAL=1: on the GPU that is there."""
import os
import sys

import test_parity

if "TT_CUDA_REAL" not in os.environ:
    fake = os.path.join(os.environ["TT_BUILD"], "tests", "fake_cuda")
    os.environ.update(TT_BACKEND_PATH=fake, TT_CUDA_PATH=fake, FAKE_CUDA_SEED="0", FAKE_CUDA_MEMORY="1024")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ["TT_PARITY_DEVICE"] = "cuda:0"
CASES = {"f32": 12, "bf16": 3, "f16": 3} if "TT_LONG" in os.environ else {"f32": 2, "bf16": 1}

if __name__ == "__main__":
    sys.exit(max(test_parity.main(["--dtype", dtype, "--cases", str(cases), *sys.argv[1:]])
                 for dtype, cases in CASES.items()))
