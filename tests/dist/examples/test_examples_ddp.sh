#!/bin/sh
# bare_reducer, toy_checkpoint, ddp_unused_parameters, ddp_no_sync, ddp_step_in_backward, ddp_sparse_embedding and
# ddp_join: what their documents promise.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# shellcheck disable=SC2086 # the second word is a program with its flags
run() { "$TUTTI" run --standalone --nproc-per-node="$1" "$TT_BUILD"/examples/$2; }
ended=

for ranks in 1 2 3; do
    out=$(run "$ranks" bare_reducer) || fail "bare_reducer on $ranks ranks: $out"
    case $out in
    *"the parameters of $ranks rank"*"are equal"*) ;;
    *) fail "bare_reducer on $ranks ranks: $out" ;;
    esac
done
# The loss falls: from the first line printed to the last.
printf '%s\n' "$out" | awk '/^step/ { if (!n++) first = $4; last = $4 } END { exit !(n == 5 && last < first / 2) }' ||
    fail "bare_reducer does not learn: $out"
alone=$("$TT_BUILD/examples/bare_reducer") || fail "bare_reducer alone: $alone"
if command -v ldd >/dev/null; then
    case $(ldd "$TT_BUILD/examples/bare_reducer") in
    *libdnnl* | *libtutti.so*) fail "bare_reducer needs more than libtutti-comm" ;;
    esac
fi

out=$(run 2 toy_checkpoint) || fail "toy_checkpoint: $out"
[ ! -e toy_checkpoint.safetensors ] || fail "toy_checkpoint leaves its file behind"
# Each rank loads what rank 0 saved, and ends with the same parameters.
printf '%s\n' "$out" | awk '
    /^Running/  { ran++ }
    /saved/     { sub(/,$/, "", $7); sub(/\.$/, "", $9); sums[$7]++; sums[$9]++; lines++ }
    /finished/  { ended[$NF]++; lines++ }
    END         { for (s in sums) a++; for (e in ended) b++
                  exit !(ran == 2 && lines == 4 && a == 1 && b == 1) }' || fail "toy_checkpoint: $out"

# All have the same average, and nobody a gradient of what nobody uses.
out=$(run 3 ddp_unused_parameters) || fail "ddp_unused_parameters: $out"
printf '%s\n' "$out" | awk '
    / trains /          { trained++ }
    /gradient [-0-9.]+/ { seen[$3 " " $7]++; names[$3]++ }
    /has no gradient/   { without[$3]++ }
    END { for (s in seen) if (seen[s] != 3) wrong++
          for (n in names) heads++
          exit !(trained == 3 && !wrong && heads == 3 && without["spare.bias"] == 3 && !without["head0.bias"]) }' ||
    fail "ddp_unused_parameters: $out"

# Before the last batch ranks differ, after it they don't.
out=$(run 2 ddp_no_sync) || fail "ddp_no_sync: $out"
printf '%s\n' "$out" | awk '
    /^step/ { own[$2 $6]++; all[$2 $NF]++ }
    END     { for (o in own) a++; for (s in all) { b++; if (all[s] != 2) wrong++ }
              exit !(a == 6 && b == 3 && !wrong) }' || fail "ddp_no_sync: $out"

# What is averaged is alike on all after each step, and changes; a rank's own is its own.
out=$(run 2 ddp_step_in_backward) || fail "ddp_step_in_backward: $out"
printf '%s\n' "$out" | awk '
    /^step/ { shared[$6]++; own[$(NF - 3)]++ }
    END     { for (s in shared) { a++; if (shared[s] != 2) wrong++ }; for (o in own) b++
              exit !(a == 3 && b == 6 && !wrong) }' || fail "ddp_step_in_backward: $out"

# Three steps a rank, in each of which both have as many gradients: those of all rows that any has read.
out=$(run 2 ddp_sparse_embedding) || fail "ddp_sparse_embedding: $out"
printf '%s\n' "$out" | awk '
    /^step/ { rows[$2] = rows[$2] " " $NF; n++ }
    END     { for (s in rows) { split(rows[s], r); if (r[1] != r[2] || r[1] < 16 || r[1] > 32) wrong++ }
              exit !(n == 6 && !wrong) }' || fail "ddp_sparse_embedding: $out"

# Each rank steps through its own batches, and all end alike; also where examples count.
for flag in '' --examples; do
    out=$(run 3 "ddp_join $flag") || fail "ddp_join $flag: $out"
    printf '%s\n' "$out" | awk '
        /no more/   { batches[$2] = $7 }
        /weight/    { all[$5]++; lines++ }
        END         { for (w in all) n++
                      exit !(batches[0] == 4 && batches[1] == 7 && batches[2] == 10 && lines == 3 && n == 1) }' ||
        fail "ddp_join $flag: $out"
    ended="$ended $(printf '%s\n' "$out" | awk '/weight/ { print $5; exit }')"
done
set -- $ended
[ "$1" != "$2" ] || fail "ddp_join --examples weights nothing: $ended"
exit 0
