#!/bin/sh
# Checks and measures on a machine with a GPU: see tools/device_check.sh, which copies this beside what it runs.
# BUDGET=900: seconds for all parts (470). A part that takes longer than its own limit is ended, too.
# OUT is a folder of one's own: what is in it under the names of results is removed, except for a folder raw.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd -P)
fake=""
if [ "${1:-}" = --fake ]; then
    fake=yes
    shift
    export TT_BACKEND_PATH="$here/fake" TT_CUDA_PATH="$here/fake" FAKE_CUDA_SEED=0 FAKE_CUDA_MEMORY=1024
fi
stop() { printf 'device_check: %s\n' "$*" >&2; exit 2; }

mkdir -p "${1:-.}" && out=$(cd "${1:-.}" && pwd -P) || stop "expected a folder for results, got \"${1:-.}\""
mkdir "$out/raw" || stop "the folder raw, for what the parts say, could not be made in $out. If it is there already," \
    "remove it or name another folder"
report=$out/report.md
theirs=${LD_LIBRARY_PATH:-} # Python's libraries may be newer than ours
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TT_CUDA_REAL=1
budget=${BUDGET:-470}
start=$(date +%s)
failed=""

# Python takes modules from the working directory, which may be anybody's.
cd "$here" || stop "can't go to $here"

python() { LD_LIBRARY_PATH=$theirs python3 "$@"; }

say() { printf '%s\n' "$*" | tee -a "$report"; }

# part NAME LIMIT COMMAND...: for LIMIT seconds at most; its output goes to raw/NAME. A line of the report says how it
# ended (77: what it needs is not here), and how long it took.
part() {
    name=$1 limit=$2
    shift 2
    began=$(date +%s)
    left=$((budget - began + start))
    [ -z "$fake" ] || limit=$((limit * 20)) # what isn't measured may wait for CPUs
    [ $left -ge $limit ] || limit=$left
    if [ $limit -lt 2 ]; then
        say "| $name | NOT RUN: the $budget s for all parts are over | |"
        failed="$failed $name"
        return
    fi
    timeout -k 2 $limit "$@" >"$out/raw/$name" 2>&1
    code=$?
    case $code in
    0) ended=ok ;;
    77) ended="not run: $(tail -n 1 "$out/raw/$name" | cut -c 1-150)" ;;
    124 | 137) ended="ENDED after its $limit s" failed="$failed $name" ;;
    *) ended="FAILED ($code): $(tail -n 1 "$out/raw/$name" | tr '|' '/' | cut -c 1-150)" failed="$failed $name" ;;
    esac
    say "| $name | $ended | $(($(date +%s) - began)) s |"
}

# show NAME: what a part printed for the report.
show() { [ ! -s "$out/raw/$1" ] || grep '^[|]' "$out/raw/$1" | tee -a "$report"; }

finish() {
    rm -f "$out/raw.tar.gz"
    (set -C && tar cz -C "$out" raw >"$out/raw.tar.gz") && rm -r "$out/raw"
    exit "$1"
}

# Both files are made anew, and not through a link that somebody has put there.
rm -f "$report"
(set -C && : >"$report") || stop "$report could not be made"
say "# Checks on a GPU"
say ""
say "Commit $(cat "$here/commit" 2>/dev/null), $(date -u '+%Y-%m-%d %H:%M') UTC."
[ -z "$fake" ] || say "**On the fake of CUDA: no figure means anything.**"
say ""

# ---- what is here

torch=""
if python -c "import torch" 2>/dev/null; then torch=yes; fi
if [ -n "$torch" ] && [ -z "${TT_CUDA_PATH:-}" ]; then # NVIDIA's libraries that came with PyTorch
    folders='import glob, torch; print(":".join(glob.glob(torch.__path__[0] + "/../nvidia/*/lib")))'
    TT_CUDA_PATH=$(python -c "$folders")
    export TT_CUDA_PATH
fi
versions='import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)'
say '```'
if command -v nvidia-smi >/dev/null; then
    say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>&1)"
else
    say "nvidia-smi: not here"
fi
if [ -n "$torch" ]; then
    say "$(python -c "$versions")"
else
    say "PyTorch: not here, so nothing is compared with it"
fi
timeout 60 "$here/bin/tutti" doctor >"$out/raw/doctor" 2>&1
sed -n 's/^[a-z]* *CUDA: /Tutti: /p' "$out/raw/doctor" | tee -a "$report" # drivers and libraries that it finds
say '```'
if ! why=$(timeout 60 "$here/bin/gpu_rates" 1 2>&1); then
    say ""
    say "Nothing was checked, as there is no GPU to check on: $why"
    finish 1
fi

# ---- results

say ""
say "| check | result | took |"
say "| --- | --- | ---: |"
tests=$(cd "$here/bin" && echo test_cuda*)
[ -z "$fake" ] || tests="test_cuda_peers test_cuda_shared test_cuda_waits" # the others: ./dev test
for test in $tests; do
    part "$test" 25 "$here/bin/$test"
done
for test in $tests; do
    part "${test}_own" 15 env TT_CUDA_BLAS=own TT_CUDA_DNN=own "$here/bin/$test"
done
part nccl_one_rank 20 "$here/bin/tutti" run --standalone --nproc-per-node 1 "$here/bin/gpu_sum"
cases=6 only=""
[ -z "$fake" ] || cases=1
for dtype in f32 bf16 f16; do
    if [ -n "$torch" ]; then
        [ -z "$fake" ] || only="--only softmax"
        part "operators_$dtype" 60 env TT_PARITY_DEVICE=cuda:0 TT_PROGRAMS="$here/from_python" \
            LD_LIBRARY_PATH="$theirs" python3 "$here/tests/parity/test_parity.py" --cases $cases --seed 1 \
            --dtype $dtype $only
    else
        say "| operators_$dtype | not run: there is no PyTorch | |"
    fi
done

# ---- figures

megabytes=256
[ -z "$fake" ] || megabytes=1
part rates 20 "$here/bin/gpu_rates" $megabytes
part all_reduce 20 "$here/bin/tutti" run --standalone --nproc-per-node 2 "$here/bin/gpu_rates" $megabytes
for model in mlp conv gpt2 resnet50; do
    limit=25
    case $model in gpt2 | resnet50) limit=75 ;; esac
    if python -c "" 2>/dev/null; then
        part "steps_$model" $limit env LD_LIBRARY_PATH="$theirs" python3 "$here/steps.py" \
            "$here/from_python/tutti" $model ${fake:+--fake}
    else
        say "| steps_$model | not run: there is no python3 | |"
    fi
done

# ---- every access of memory, of each model's training

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$fake" ]; then
    say "| compute-sanitizer | not run: the fake is no GPU | |"
elif [ -z "$sanitizer" ]; then
    say "| compute-sanitizer | not run: it is not here | |"
else
    for tool in memcheck racecheck initcheck; do
        for model in mlp mnist gpt gpt2 resnet18; do
            part "${tool}_$model" 20 env TT_MODEL=$model "$sanitizer" --tool $tool --error-exitcode 9 \
                "$here/bin/test_cuda_models"
        done
    done
fi

say ""
say "## Memory"
say ""
say "Wanted: at least 90 % of the memory's rate for one GPU's work; 80 % of what that allows for all_reduce of two"
say "ranks."
say ""
say "| what | GB/s | share of the memory's rate |"
say "| --- | ---: | ---: |"
show rates
show all_reduce
say ""
say "## Training steps"
say ""
say "In turn, in one run. A ratio is PyTorch's time over ours: above 1 we are faster. Wanted, at least: mlp 5 times"
say "eager; conv 2 times eager; gpt2 1.3 times eager, and compiled's time; resnet50 eager's time; memory at most"
say "PyTorch's."
say ""
say "| model | pair | ms | PyTorch eager | compiled | eager / ours | compiled / ours | MB | PyTorch's MB |"
say "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
for model in mlp conv gpt2 resnet50; do
    show "steps_$model"
done
say ""
if [ -n "$failed" ]; then
    say "Not well:$failed"
    finish 1
fi
say "All that was run is well."
finish 0
