#!/bin/sh
# The program in README.md compiles as it stands there, trains on two ranks, and its loss falls.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$TT_SOURCE/README.md" >"$work/train.c"
grep -q 'int main' "$work/train.c" || { echo "FAILED: no program found in README.md"; exit 1; }

for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    $compiler -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$TT_SOURCE/include" \
        "$work/train.c" -o "$work/train-$compiler" \
        -L"$TT_BUILD/lib" -Wl,-rpath,"$TT_BUILD/lib" -ltutti
done

"$TUTTI" run --standalone --nproc-per-node=2 "$work/train-gcc" | tee "$work/out"
"$TUTTI" run --standalone --nproc-per-node=2 "$work/train-gcc" | cmp - "$work/out" || {
    echo "FAILED: the second run differs"
    exit 1
}
awk '/^epoch/ { losses[n++] = $NF } END { exit !(n == 5 && losses[2] < losses[0] / 2) }' "$work/out" ||
    { echo "FAILED: expected five epochs, the last loss below half of the first"; exit 1; }
