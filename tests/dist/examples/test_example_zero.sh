#!/bin/sh
# zero: what its document promises.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
# Ranks have equal shares, of which the last may be short; the loss falls; the checkpoint is a plain one.
for ranks in 1 3 4; do
    out=$("$TUTTI" run --standalone --nproc-per-node="$ranks" "$TT_BUILD/examples/zero") || {
        echo "FAILED on $ranks ranks: $out" >&2
        exit 1
    }
    printf '%s\n' "$out" | awk -v ranks="$ranks" '
        / updates /   { n++; sum += $4; if ($4 > most) most = $4 }
        /^step/       { last = $4; if (!first) first = $4; steps++ }
        /plain Adam/  { plain++ }
        END { exit !(n == ranks && sum == 64 * 64 + 64 + 64 * 8 + 8 && most <= 1.1 * sum / ranks + 16 && steps == 5 &&
                     last < first / 2 && plain == 1) }' || {
        echo "FAILED on $ranks ranks: $out" >&2
        exit 1
    }
    [ ! -e zero.safetensors ] || exit 1
done
exit 0
