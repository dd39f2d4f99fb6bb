#!/bin/sh
# The program of docs/gpu.md, on two ranks with a device each of the fake of CUDA.
fakes=$TT_BUILD/tests/fake_cuda
export TT_BACKEND_PATH="$fakes" TT_CUDA_PATH="$fakes" FAKE_CUDA_SEED=0
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/gpu.md"
