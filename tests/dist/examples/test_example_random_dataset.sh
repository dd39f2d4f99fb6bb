#!/bin/sh
# Each rank sees a batch of 30 and one of 15, and together they see each of the 90 rows once.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

run_two random_dataset
lines 4
for rank in 0 1; do
    for size in 30 15; do
        found=$(printf '%s\n' "$output" | grep -c "^rank $rank: input \[$size, 5\] -> output \[$size, 2\]; rows")
        [ "$found" -eq 1 ] || fail "rank $rank: expected one batch of $size rows, found $found"
    done
done
rows=$(printf '%s\n' "$output" | sed 's/.*rows //' | tr ' ' '\n' | sort -n | tr '\n' ' ')
[ "$rows" = "$(seq 0 89 | tr '\n' ' ')" ] || fail "expected each of the rows 0 to 89 once, got: $rows"
