#!/bin/sh
# Checks and measures on a machine with a GPU: see tools/device_check.sh, which copies this beside what it runs.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
out=${1:-.}
mkdir -p "$out/raw"
report=$out/report.md
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -n "${FAKE:-}" ]; then export TT_BACKEND_PATH="$here/fake" TT_CUDA_PATH="$here/fake"; fi
failed=""

say() { printf '%s\n' "$*" | tee -a "$report"; }

# check NAME COMMAND...: its output goes to raw/NAME; a line of the report says how it ended, and how long it took.
check() {
    name=$1
    shift
    began=$(date +%s)
    if "$@" >"$out/raw/$name" 2>&1; then ended=ok; else ended="FAILED ($?)" failed="$failed $name"; fi
    say "| $name | $ended | $(($(date +%s) - began)) s |"
}

# number FILE KEY: a number of the JSON object that is the last line of raw/FILE.
number() { sed -n "\$s/.*\"$2\":\([0-9.]*\).*/\1/p" "$out/raw/$1"; }

: >"$report"
say "# Checks on a GPU"
say ""
say "Commit $(cat "$here/commit"), $(date -u '+%Y-%m-%d %H:%M') UTC."
[ -z "${FAKE:-}" ] || say "**On the fake of CUDA: no figure means anything.**"
say ""
say '```'
say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1 || true)"
versions='import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)'
say "$(python3 -c "$versions" 2>&1 | tail -n 1)"
say '```'
say ""
say "| check | result | took |"
say "| --- | --- | ---: |"
for test in "$here"/bin/test_cuda*; do
    check "$(basename "$test")" env TT_CUDA_REAL=1 "$test"
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ] && [ -z "${FAKE:-}" ]; then
    for tool in memcheck racecheck initcheck; do
        check $tool "$sanitizer" --tool $tool --error-exitcode 9 --target-processes all \
            "$here/bin/tutti" bench step --world 1 --steps 1 --device cuda:0
    done
else
    say "| compute-sanitizer | not run: it is not here | |"
fi

# Five pairs, in turn.
steps=${STEPS:-400}
for pair in 1 2 3 4 5; do
    check "mlp_$pair" "$here/bin/tutti" bench step --world 1 --device cuda:0 --steps "$steps"
    if [ -z "${FAKE:-}" ]; then check "mlp_torch_$pair" python3 "$here/torch_cuda_step.py" "$steps"; fi
done
say ""
say "| pair | MLP step, ms | PyTorch eager, ms |"
say "| ---: | ---: | ---: |"
for pair in 1 2 3 4 5; do
    torch=""
    [ -n "${FAKE:-}" ] || torch=$(number "mlp_torch_$pair" ms_median)
    say "| $pair | $(number "mlp_$pair" ms_median) | $torch |"
done
say ""
if [ -n "$failed" ]; then
    say "Failed:$failed"
    exit 1
fi
say "All passed."
