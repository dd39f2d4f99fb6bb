#!/bin/sh
# Rank 0's parameter wins at wrapping; then gradients 2, -2 and weights 0, 2 on both ranks.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

run_two linear_grads
lines 8
has "rank 0: starts with weight 2"
has "rank 1: starts with weight 200"
for rank in 0 1; do
    has "rank $rank: wrapped, weight 2"
    has "rank $rank: step 1, gradient 2, weight 0"
    has "rank $rank: step 2, gradient -2, weight 2"
done
