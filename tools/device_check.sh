#!/bin/sh
# All that only a GPU can say, in one command of eight minutes.
#
#   tools/device_check.sh bundle            here: build/device_check, a folder that needs nothing of Tutti's elsewhere
#   build/device_check/run [OUT]            there: writes OUT/report.md, and what each part said to OUT/raw.tar.gz
#   build/device_check/run --fake [OUT]     tries the command itself, on the fake of CUDA
#
# bundle needs what ./dev build and the tests need, and nvcc. The machine with the GPU needs a driver for CUDA 12 or
# later. What else is there is used, and what is missing is told in the report: python3 with PyTorch, to be compared
# with; compute-sanitizer; NVIDIA's libraries, also those that came with PyTorch. OUT is the current folder if left out.
set -eu
cd "$(dirname "$0")/.."

usage() {
    sed -n '2,11s|^# \{0,1\}||p' "$0" >&2
    exit 2
}
[ "${1:-}" = bundle ] || usage

./dev build
cmake --build build --target tutti_cuda backend_nccl fake_cuda fake_nccl unit_programs dist_programs parity_programs \
    tutti_command >/dev/null
out=build/device_check most=60 # MiB
rm -rf $out
mkdir -p $out/bin $out/lib/tutti $out/fake $out/tests/parity $out/include
cp build/bin/tutti $out/bin/
# A folder's programs are one, which runs the one that it is called by.
cp build/tests/unit/programs $out/bin/unit
cp build/tests/dist/programs $out/bin/dist
cp build/tests/parity/programs $out/bin/operators
for test in tests/unit/tensor/cuda/test_cuda*.c; do
    ln -s unit "$out/bin/$(basename "$test" .c)"
done
rm $out/bin/test_cuda_arena # it needs no device
for program in test_cuda_peers test_cuda_shared gpu_rates gpu_sum; do
    ln -s dist "$out/bin/$program"
done
ln -s operators $out/bin/parity
# What Python starts, without libraries of ours for Python itself.
mkdir $out/from_python
for program in tutti parity; do
    # shellcheck disable=SC2016  # the program's own variables
    printf '#!/bin/sh\nhere=$(dirname "$0")/..\nLD_LIBRARY_PATH="$here/lib" exec "$here/bin/%s" "$@"\n' $program \
        >$out/from_python/$program
    chmod +x $out/from_python/$program
done
cp build/lib/tutti/libtutti-cuda.so build/lib/tutti/libtutti-backend-nccl.so $out/lib/tutti/
cp build/tests/fake_cuda/lib*.so* build/lib/tutti/libtutti-backend-nccl.so $out/fake/
cp tests/parity/*.py tests/parity/*.h $out/tests/parity/
cp -r include/tutti $out/include/ # which test_parity.py reads
cp tools/device_check_steps.py $out/steps.py
cp tools/device_check_run.sh $out/run
# Libraries that another machine may lack; the C library itself it has.
for program in tutti unit dist operators; do
    ldd $out/bin/$program | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p'
done | sort -u | grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} $out/lib/
for file in $out/bin/tutti $out/bin/unit $out/bin/dist $out/bin/operators $out/lib/*.so* $out/lib/tutti/*.so; do
    strip "$file" 2>/dev/null || true
done
git rev-parse HEAD >$out/commit
size=$(du -sm $out | cut -f 1)
echo "$size MiB: $out"
if [ "$size" -gt $most ]; then
    echo "device_check.sh: expected at most $most MiB, which is what may be brought to a borrowed GPU" >&2
    exit 1
fi
