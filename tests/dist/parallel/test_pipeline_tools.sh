#!/bin/sh
# The example `pipeline`, `tutti-bench pipeline`, and `tutti trace --pipeline`, which draws what they wrote.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# Every part is in one stage, the loss falls, and every rank tells the same idle share.
for ranks in 1 2 3; do
    out=$("$TUTTI" run --standalone --nproc-per-node="$ranks" "$TT_BUILD/examples/pipeline") || fail "pipeline: $out"
    printf '%s\n' "$out" | awk -v ranks="$ranks" '
        /^rank/     { parts += $3; seen++; idle[$8]++ }
        /^the loss/ { falls = $7 < $5 / 1.05 }
        END         { for (i in idle) shares++; exit !(seen == ranks && parts == 5 && falls && shares == 1) }' ||
        fail "pipeline on $ranks ranks: $out"
done

out=$("$TUTTI" trace --pipeline pipeline_trace.json) || fail "trace: $out"
printf '%s\n' "$out" | awk '
    /^rank/ { rows++; if ($3 !~ /^[FfBb.]+$/ || length($3) != 96 || $3 !~ /[FfBb]/) wrong++ }
    /^1F1B/ { named++ }
    /^idle: [0-9.]+ % of all/ { shares++ }
    END     { exit !(rows == 3 && !wrong && named == 1 && shares == 1) }' || fail "drawing: $out"
"$TUTTI" trace --pipeline pipeline_trace.json -o step.svg >out || fail "svg: $(cat out)"
[ "$(grep -c '<rect x=' step.svg)" -eq 48 ] || fail "svg: expected 3 ranks x 8 forwards and backwards: $(cat step.svg)"
grep -q '^</svg>$' step.svg || fail "svg has no end"
for colour in 7fb3e6 8fce8f; do # forward, backward
    [ "$(grep -c "fill=\"#$colour\"" step.svg)" -eq 24 ] || fail "svg: expected 24 boxes of #$colour: $(cat step.svg)"
done

for schedule in zero-bubble interleaved 1f1b gpipe; do
    out=$("$TT_BUILD/bench/tutti-bench" pipeline --model mlp --rounds 2 --micro-batches 4 --schedule "$schedule" \
        --trace t.json) ||
        fail "bench: $out"
    [ "$(printf '%s\n' "$out" | wc -l)" -eq 3 ] || fail "bench: $out"
    printf '%s\n' "$out" | tail -n 1 | grep -q '"ratio":.*"idle_share":.*"same_bits":true}$' || fail "bench: $out"
    "$TUTTI" trace --pipeline t.json >out || fail "drawing of $schedule"
done
grep -q '^GPipe, ' out || fail "drawing of gpipe: $(cat out)"

# What is no such file is refused, by name.
printf '{"traceEvents":[]}' >empty.json
printf '{"traceEvents":[{"cat":"pipeline","pid":-7}]}' >wrong.json
printf 'no json' >none.json
for file in empty.json wrong.json none.json; do
    "$TUTTI" trace --pipeline "$file" >out 2>&1 && fail "$file was taken"
    grep -q "\"$file\" is no trace that tt_pipeline_write_trace() wrote" out || fail "$file: $(cat out)"
done
"$TUTTI" trace --pipeline missing.json >out 2>&1 && fail "a missing file was taken"
grep -q 'missing.json' out || fail "missing.json: $(cat out)"
exit 0
