#!/bin/sh
# model_parallel, ddp_model_parallel and tensor_parallel: what their documents promise.
set -u

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# run RANKS EXAMPLE [ARGUMENT]
run() { "$TUTTI" run --standalone --nproc-per-node="$1" "$TT_BUILD/examples/$2" ${3:+"$3"}; }

# One process with two devices, and a process for each layer, print the same.
one=$("$TT_BUILD/examples/model_parallel") || fail "model_parallel alone: $one"
two=$(run 2 model_parallel) || fail "model_parallel on two ranks: $two"
[ "$(printf '%s\n' "$one" | grep -c '^loss')" = 5 ] || fail "model_parallel: $one"
# The other device may round otherwise, in the last place that is printed.
printf '%s\n--\n%s\n' "$(printf '%s\n' "$one" | sort)" "$(printf '%s\n' "$two" | sort)" | awk '
    /^--$/ { second = 1; next }
           { value = $NF; sub(/ [^ ]*$/, ""); if (second) b[++m] = $0 " " value; else a[++n] = $0 " " value }
    END    { for (i = 1; i <= n; i++) {
                 split_at = match(a[i], / [^ ]*$/)
                 if (substr(a[i], 1, split_at) != substr(b[i], 1, split_at)) wrong++
                 d = substr(a[i], split_at) - substr(b[i], split_at)
                 if (d > 2e-6 || d < -2e-6) wrong++
             }
             exit !(n == 9 && m == 9 && !wrong) }' || fail "model_parallel differs: $one
on two ranks: $two"
run 3 model_parallel >/dev/null 2>&1 && fail "model_parallel on three ranks"

# Both copies of each layer are the same afterwards.
for ranks in 2 4; do
    out=$(run "$ranks" ddp_model_parallel) || fail "ddp_model_parallel on $ranks ranks: $out"
    printf '%s\n' "$out" | awk -v copies=$((ranks / 2)) '
        /loss/ { losses++ }
        /sums/ { seen[$3 " " $NF]++ }
        END    { for (s in seen) { different++; if (seen[s] != copies) wrong++ }
                 exit !(losses == 5 * copies && different == 4 && !wrong) }' ||
        fail "ddp_model_parallel on $ranks ranks: $out"
done
out=$(run 3 ddp_model_parallel 2>&1) && fail "ddp_model_parallel on three ranks"
case $out in
*"a mesh of -1 x 2 does not fit the 3 ranks of the group"*) ;;
*) fail "ddp_model_parallel on three ranks: $out" ;;
esac

# The losses are the same on any number of ranks.
one=$("$TT_BUILD/examples/tensor_parallel" 24) || fail "tensor_parallel alone: $one"
for ranks in 2 3; do
    out=$(run "$ranks" tensor_parallel 24) || fail "tensor_parallel on $ranks ranks: $out"
    printf '%s\n--\n%s\n' "$one" "$out" | awk '
        /^--$/  { second = 1 }
        /^step/ { if (second) { d = $NF - loss[$2]; n++; if (d > 2e-6 || d < -2e-6) wrong++ } else loss[$2] = $NF }
        END     { exit !(n == 4 && !wrong) }' || fail "tensor_parallel: $one
on $ranks ranks: $out"
done
out=$(run 3 tensor_parallel 25 2>&1) && fail "tensor_parallel of an uneven width"
case $out in
*"to be a multiple of the 3 ranks of the group, got 100"*) ;;
*) fail "tensor_parallel of an uneven width: $out" ;;
esac
exit 0
