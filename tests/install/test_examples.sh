#!/bin/sh
# The examples lie in the installed tree with README, LICENSE and CHANGELOG, and build there, alone. Some of them run on
# two ranks.
set -eu
# shellcheck disable=SC1091,SC2154 # it sets work, prefix, libdir, static_libdir
. "$TT_SOURCE/tests/install/installed.sh"
doc=$prefix/share/doc/tutti
for file in README.md LICENSE CHANGELOG.md; do
    cmp "$TT_SOURCE/$file" "$doc/$file" || fail "$file is not installed as it is"
done
{
    cmake -S "$doc/examples" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror"
    cmake --build "$work/build"
} >"$work/log" 2>&1 || { cat "$work/log"; fail "building the examples"; }
for source in "$doc"/examples/*.c; do
    name=$(basename "$source" .c)
    [ -x "$work/build/$name" ] || fail "$name was not built"
    if ldd "$work/build/$name" | grep libtutti | grep -v "$prefix"; then
        fail "$name is linked with another Tutti than the installed one"
    fi
done
echo "ok: the examples build"

two() {
    "$prefix/bin/tutti" run --standalone --nproc-per-node=2 "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }
}
two "$work/build/mnist_trainer" --epochs 1
grep -q "held-out accuracy" "$work/out" || { cat "$work/out"; fail "the trainer"; }
two "$work/build/bare_group"
[ "$(grep -c '^rank . has 2$' "$work/out")" = 2 ] || { cat "$work/out"; fail "bare_group"; }
echo "ok: mnist_trainer and bare_group run on two ranks"
