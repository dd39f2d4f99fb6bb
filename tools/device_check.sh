#!/bin/sh
# All that only a GPU can say, in one command.
#
#   tools/device_check.sh bundle        here: build/device_check, a folder that needs nothing of Tutti's where it runs
#   build/device_check/run [OUT]        there: checks and measures, writes OUT/report.md and OUT/raw (OUT: .)
#
# bundle needs what ./dev build needs, and nvcc. The machine with the GPU needs a driver for CUDA 12 or later, and, to
# be compared with, a python3 that has PyTorch with CUDA. FAKE=1 build/device_check/run plays it on the fake of CUDA.
set -eu
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
[ "${1:-}" = bundle ] || usage

./dev build
cmake --build build --target tutti_cuda fake_cuda unit_programs tutti_command >/dev/null
out=build/device_check
rm -rf $out
mkdir -p $out/bin $out/lib/tutti $out/fake
cp build/bin/tutti $out/bin/
cp build/tests/unit/programs $out/bin/tests # it runs the test that it is called by
for test in tests/unit/test_cuda*.c; do
    ln -s tests "$out/bin/$(basename "$test" .c)"
done
rm $out/bin/test_cuda_arena # it needs no device
cp build/lib/tutti/libtutti-cuda.so $out/lib/tutti/
cp build/tests/fake_cuda/lib*.so* $out/fake/
cp bench/peers/torch_cuda_step.py $out/
# Libraries that another machine may lack; the C library itself it has.
for program in $out/bin/tutti $out/bin/tests; do
    ldd $program | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p'
done | sort -u | grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} $out/lib/
strip $out/bin/tutti $out/bin/tests $out/lib/*.so* 2>/dev/null || true
cp tools/device_check_run.sh $out/run
git rev-parse HEAD >$out/commit
du -sh $out
