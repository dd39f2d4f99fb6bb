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
# Of parts that take as long as each other: on a busy machine one may be too thin to have a colour.
python3 - <<'END' || fail "a trace of even parts"
import collections, json
with open("pipeline_trace.json", encoding="utf-8") as file:
    trace = json.load(file)
turns = collections.Counter()
for event in trace["traceEvents"]:
    if event["ph"] == "X":
        event["ts"], event["dur"] = 1000 * turns[event["pid"]], 1000
        turns[event["pid"]] += 1
with open("even.json", "w", encoding="utf-8") as file:
    json.dump(trace, file)
END
"$TUTTI" trace --pipeline even.json -o step.png >out || fail "png: $(cat out)"
python3 - step.png <<'END' || fail "png: expected boxes of two colours and letters on white"
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
at, packed = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
    at += size + 12
width, height = struct.unpack(">II", data[16:24])
rows = zlib.decompress(packed)
seen = {}
for y in range(height):
    row = rows[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)]
    for x in range(0, len(row), 3):
        seen[row[x:x + 3]] = seen.get(row[x:x + 3], 0) + 1
print(width, height, sorted(seen.items(), key=lambda kind: -kind[1])[:5])
sys.exit(not (width == 2400 and height == 2 * (40 + 3 * 34) and seen.get(b"\xff\xff\xff", 0) > 1000 and
              seen.get(b"\x7f\xb3\xe6", 0) > 1000 and seen.get(b"\x8f\xce\x8f", 0) > 1000))
END

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
