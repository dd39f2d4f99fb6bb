#!/bin/sh
# The program in README.md, as it stands there: built from the installed tree with the command that README gives, with
# shared and with static libraries, it trains on two ranks, its loss falls, and every run says the same.
set -eu
# shellcheck disable=SC1091,SC2154 # it sets work, prefix, libdir, static_libdir
. "$TT_SOURCE/tests/install/installed.sh"
static_tree

program_of README.md c >"$work/train.c"
grep -q 'int main' "$work/train.c" || fail "no program found in README.md"
# shellcheck disable=SC2016  # the words are README's
grep -qF 'cc train.c -o train $(pkg-config --cflags --libs tutti)' "$TT_SOURCE/README.md" ||
    fail "README builds it differently"

# train NAME COMPILER LIBDIR [PKG-CONFIG-FLAG]: build and run it; all outputs must be the same.
train() {
    # shellcheck disable=SC2046  # flags are several words
    "$2" -std=c11 -pedantic-errors -Wall -Wextra -Werror "$work/train.c" -o "$work/$1" \
        $(PKG_CONFIG_PATH=$3/pkgconfig pkg-config ${4:-} --cflags --libs tutti) || fail "building it: $1"
    LD_LIBRARY_PATH=$3 "$prefix/bin/tutti" run --standalone --nproc-per-node=2 "$work/$1" >"$work/out" 2>"$work/err" ||
        { cat "$work/err"; fail "running it: $1"; }
    [ -e "$work/first" ] || cp "$work/out" "$work/first"
    cmp "$work/out" "$work/first" || fail "$1 prints something else than the first one"
    echo "ok: $1"
}
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    train $compiler-shared $compiler "$libdir"
    train $compiler-static $compiler "$static_libdir" --static
    if ldd "$work/$compiler-static" | grep -q libtutti; then
        fail "$compiler-static is linked with a shared library of ours"
    fi
done
cat "$work/first"
awk '/^epoch/ { rose += n && $NF >= last; last = $NF; if (!n++) first = last }
    END { exit !(n == 5 && !rose && last < first / 2) }' "$work/first" ||
    fail "expected five epochs, each loss below the one before, the last below half of the first"
