#!/bin/sh
# ddp_sync_batch_norm: what its document promises.
set -u
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# All ranks have the same running statistics.
for ranks in 2 3; do
    out=$("$TUTTI" run --standalone --nproc-per-node="$ranks" "$TT_BUILD/examples/ddp_sync_batch_norm") || fail "$out"
    printf '%s\n' "$out" | awk -v ranks="$ranks" '
        / examples, / { steps++ }
        /a SyncBatchNorm of/ { seen[$7 " " $10]++; ended++ }
        END { for (s in seen) kinds++; exit !(steps == 5 * ranks && ended == ranks && kinds == 1) }' ||
        fail "on $ranks ranks: $out"
done
exit 0
