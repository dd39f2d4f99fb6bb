#!/bin/sh
# bare_reducer and toy_checkpoint: what their documents promise.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

run() { "$TUTTI" run --standalone --nproc-per-node="$1" "$TT_BUILD/examples/$2"; }

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
exit 0
