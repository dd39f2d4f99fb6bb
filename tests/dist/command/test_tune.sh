# tutti tune: what it measures it prints, and the table that it writes is one that jobs read.
set -eu

fail() {
    echo "failed: $*"
    exit 1
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
out=$("$TUTTI" tune --world 2 --only all_gather_v,all_to_all_v --sizes 8,4K --out "$dir/new/table")
timed='^{"tune":"all_gather_v","algorithm":"[a-z]*","world":2,"hosts":2,"bytes":[0-9]*,"usec_min":[0-9.]*}$'
[ "$(echo "$out" | grep -c "$timed")" = 4 ] || fail "all_gather_v: $out"
[ "$(echo "$out" | grep -c '"tune":"all_to_all_v".*"bytes":0,')" = 2 ] || fail "all_to_all_v: $out"
grep -q '^all_gather_v  *2  *2  *\*  *[a-z]*$' "$dir/new/table" || fail "no rule: $(cat "$dir/new/table")"
grep -q '^barrier ' "$dir/new/table" || fail "the built-in rules are gone"

# Again: its rules take the place of those before.
TT_TUNING=$dir/new/table "$TUTTI" tune --world 2 --only all_gather_v --sizes 8 >/dev/null
[ "$(grep -c '^all_gather_v  *2  *2 ' "$dir/new/table")" = 1 ] || fail "two rules: $(cat "$dir/new/table")"
TT_TUNING=$dir/new/table "$TUTTI" bench all_gather_v --transport tcp --sizes 8 --iterations 5 | grep -q all_gather_v ||
    fail "bench with the table"

# Blocks as long as that are not measured: the rules stay.
TT_TUNING=$dir/new/table "$TUTTI" tune --world 2 --only all_gather_v --sizes 4M >/dev/null || fail "no size"
[ "$(grep -c '^all_gather_v  *2  *2 ' "$dir/new/table")" = 1 ] || fail "rules are gone: $(cat "$dir/new/table")"

echo nonsense >"$dir/bad"
code=0
text=$(TT_TUNING=$dir/bad "$TUTTI" bench barrier --transport tcp --iterations 5 2>&1) || code=$?
[ $code = 1 ] || fail "a bad table: exit code $code"
echo "$text" | grep -q "$dir/bad, line 1: expected 5 columns" || fail "a bad table: $text"
