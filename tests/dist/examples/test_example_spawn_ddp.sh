#!/bin/sh
# Without a launcher: each rank says that it runs and ends, losses differ, as inputs do, and the weights are the same.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

name=spawn_ddp
for world in 1 2 3; do
    output=$("$TT_BUILD/examples/$name" $world) || fail "$name: exit code $?"
    lines $((world * 4))
    rank=0
    while [ $rank -lt $world ]; do
        has "Running basic DDP example on rank $rank of $world."
        has "Finished running basic DDP example on rank $rank."
        rank=$((rank + 1))
    done
    losses=$(printf '%s\n' "$output" | sed -n 's/^rank [0-9]*: loss //p' | sort -u | wc -l)
    [ "$losses" -eq $world ] || fail "expected $world losses that differ"
    weights=$(printf '%s\n' "$output" | sed -n 's/.*weights sum up to //p' | sort -u | wc -l)
    [ "$weights" -eq 1 ] || fail "weights differ between ranks"
done

output=$("$TT_BUILD/examples/$name" 0 2>&1) && fail "no rank at all: exit code 0"
has "tutti: TT_ERR_INVALID: tt_spawn: expected 1 to 1024 processes, got 0"
# Two of them at once don't meet: each has a store of its own.
output=$("$TT_BUILD/examples/$name" & "$TT_BUILD/examples/$name"; wait) || fail "two at once: exit code $?"
lines 16
# The ranks of a launcher may be parents, too. Its ranks' own variables don't reach theirs.
output=$("$TUTTI" run --standalone --nproc-per-node=2 "$TT_BUILD/examples/$name") || fail "under tutti run: $?"
lines 16
echo ok
