#!/bin/sh
# The batches of both ranks in both epochs are those PyTorch's DistributedSampler gives, and all_gather shows both on
# both.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

run_two sampler_all_gather
lines 8

# step EPOCH RANK_0'S_BATCH RANK_1'S_BATCH
step() {
    has "epoch $1 rank 0: batch $2, all ranks: $2 $3"
    has "epoch $1 rank 1: batch $3, all ranks: $2 $3"
}
step 0 "[120, 90, 110, 130]" "[100, 60, 80, 50]"
step 0 "[20, 150, 40, 70]" "[140, 0, 30, 10]"
step 1 "[50, 60, 110, 70]" "[150, 40, 20, 120]"
step 1 "[10, 90, 100, 130]" "[0, 80, 30, 140]"
