#!/bin/sh
# A program on the back end nccl that `tutti run` starts, on the fakes of CUDA and NCCL.
set -eu
program=$TT_PROGRAMS/gpu_sum
fakes=$TT_BUILD/tests/fake_cuda
export TT_CUDA_PATH="$fakes" TT_BACKEND_PATH="$fakes"

fail() { echo "FAILED: $*"; exit 1; }

out=$(FAKE_CUDA_DEVICES=3 "$TUTTI" run --standalone --nproc-per-node 3 "$program" 2>&1) || fail "$out"
for line in "0 of 3: nccl, sum 6, 3 of 2" "1 of 3: nccl, sum 6, 1 of 1" "2 of 3: nccl, sum 6, 3 of 2"; do
    echo "$out" | grep -q "rank $line" || fail "no \"rank $line\" in: $out"
done

# The trace has a row for each device, of calls that ran there.
trace=$(mktemp -d)
trap 'rm -rf "$trace"' EXIT
out=$(FAKE_CUDA_DEVICES=3 "$TUTTI" run --standalone --nproc-per-node 3 --trace "$trace/trace.json" "$program" 2>&1) ||
    fail "$out"
for index in 0 1 2; do
    grep -q "\"name\":\"thread_name\",.*\"args\":{\"name\":\"cuda:$index\"}" "$trace/trace.json" ||
        fail "no row of cuda:$index in: $(cat "$trace/trace.json")"
done
grep -q '"cat":"device","name":"all_reduce",.*"device_us":[0-9]' "$trace/trace.json" || fail "no time of a device"

# Training steps, with buckets on the devices. (Under a sanitizer, which takes half a minute for them, others train so.)
if [ -z "${TT_SANITIZED:-}" ]; then
    out=$(FAKE_CUDA_DEVICES=2 FAKE_CUDA_SEED=0 "$TUTTI" bench step --world 2 --device cuda --backend nccl --steps 1 \
        2>&1) || fail "$out"
    echo "$out" | grep -q '"device":"cuda:0","device_mb":[0-9.]*,"world":2' || fail "no step in: $out"
    out=$(FAKE_CUDA_SEED=0 "$TUTTI" bench step --world 1 --device cuda:0 --graph --steps 1 2>&1) || fail "$out"
    echo "$out" | grep -q '"device_mb":[0-9.]*,"graph":true,"world":1' || fail "no captured step in: $out"
fi
! out=$("$TUTTI" bench step --backend nccl 2>&1) || fail "on the cpu: $out"
echo "$out" | grep -q -e "add --device cuda" || fail "no reason in: $out"

# A program sees the devices that CUDA_VISIBLE_DEVICES lists.
out=$(FAKE_CUDA_DEVICES=3 CUDA_VISIBLE_DEVICES=2,0 "$TT_BUILD/examples/env_report" 2>&1) || fail "$out"
[ "$(echo "$out" | grep -c '^device [0-9] ')" = 2 ] || fail "not two devices in: $out"

# More ranks than devices.
! out=$(FAKE_CUDA_DEVICES=2 "$TUTTI" run --standalone --nproc-per-node 3 "$program" 2>&1) || fail "3 ranks on 2: $out"
echo "$out" | grep -q "there is no device cuda:2: CUDA has 2" || fail "no reason in: $out"

# Two ranks on one device: each uses that of its number, of two lists in other orders.
export FAKE_CUDA_DEVICES=2
# shellcheck disable=SC2016 # ranks expand it
both='[ "$LOCAL_RANK" = 0 ] && list=1,0 || list=0,1; CUDA_VISIBLE_DEVICES=$list exec "$0"'
! out=$("$TUTTI" run --standalone --nproc-per-node 2 sh -c "$both" "$program" 2>&1) || fail "2 ranks on 1: $out"
echo "$out" | grep -q "ranks 0 and 1 use the same device" || fail "no reason in: $out"
echo ok
