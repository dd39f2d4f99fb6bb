#!/bin/sh
# tutti bench: each benchmark prints one JSON object a line. What they measure is not judged here.
set -eu

fail() {
    echo "test_bench: $*" >&2
    exit 1
}

expect() { # PATTERN COMMAND...: the last line of its output
    pattern=$1
    shift
    line=$("$@" | tail -n 1) || fail "$* failed"
    echo "$line" | grep -Eq "$pattern" || fail "$*: expected $pattern, got $line"
}

number='[0-9.]+'
expect "^\\{\"bench\":\"startup\",\"world\":2,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --jobs=3
expect "^\\{\"bench\":\"startup\",\"world\":3,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --world 3 --jobs 2

# Calls of RPC: an object for each size and way, the last of calls that are under way together.
time="\"usec_median\":$number,\"usec_min\":$number"
for values in bytes tensor; do
    expect "^\\{\"bench\":\"rpc\",\"call\":\"64 under way\",\"bytes\":0,\"values\":\"$values\",\"world\":3,\
\"transport\":\"auto\",\"wire\":\"none\",$time,\"calls_per_sec\":[0-9]+\\}\$" \
        "$TUTTI" bench rpc --world 3 --sizes 64,100K --values "$values" --iterations 2
done
lines=$("$TUTTI" bench rpc --sizes 64,100K --transport tcp --iterations 2 |
    grep -Ec "\"send_recv_usec_median\":$number,\"send_recv_usec_min\":$number,\"of_send_recv\":$number\}\$")
[ "$lines" = 5 ] || fail "bench rpc: expected 5 lines beside send and recv, got $lines"

# Processes that call one.
expect "^\\{\"bench\":\"rpc\",\"call\":\"many workers\",\"workers\":5,\"join_s\":$number,\"descriptors\":5,\
\"threads\":[0-9]+,\"kib_per_worker\":-?$number,\"calls_per_sec\":[0-9]+\\}\$" \
    "$TUTTI" bench rpc --workers 5 --iterations 10
# shellcheck disable=SC3045  # dash has it, too
said=$( (ulimit -n 40; timeout 20 "$TUTTI" bench rpc --workers 30 --iterations 10) 2>&1) &&
    fail "bench rpc: 30 workers called one of 40 descriptors"
case $said in
*"--workers: the one that 30 workers call needs "*" descriptors, but this process may have 40 (ulimit -Hn)"*) ;;
*) fail "bench rpc: no word of too few descriptors: $said" ;;
esac
