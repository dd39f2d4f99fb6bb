#!/bin/sh
# Each rank says that it runs; losses differ, as inputs do, and the gradients are equal on all ranks.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

run_two toy_basic
lines 4
has "Running basic DDP example on rank 0."
has "Running basic DDP example on rank 1."
loss_0=$(printf '%s\n' "$output" | sed -n 's/^rank 0: loss \([^,]*\),.*/\1/p')
loss_1=$(printf '%s\n' "$output" | sed -n 's/^rank 1: loss \([^,]*\),.*/\1/p')
if [ -z "$loss_0" ] || [ -z "$loss_1" ] || [ "$loss_0" = "$loss_1" ]; then
    fail "expected two losses that differ, got \"$loss_0\" and \"$loss_1\""
fi
gradients=$(printf '%s\n' "$output" | sed -n 's/.*gradients sum up to //p' | uniq | wc -l)
[ "$gradients" -eq 1 ] || fail "gradients differ between ranks"
case $output in
*"net1.weight "*" net1.bias "*" net2.weight "*" net2.bias "*) ;;
*) fail "expected the gradients of four parameters" ;;
esac
