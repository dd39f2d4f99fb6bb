#!/bin/sh
# The programs in README.md and docs/quickstart.md, as they stand there: built from the installed tree with the command
# that the page gives, they train on two ranks, and the loss falls. That of quickstart.md also with the static libraries
# and each compiler, and every run says the same.
set -eu
# shellcheck disable=SC1091,SC2154 # it sets work, prefix, libdir, static_libdir
. "$TT_SOURCE/tests/install/installed.sh"
static_tree

# take PAGE FILE: the page's program, which it must build in this way.
take() {
    program_of "$1" c >"$work/$2"
    grep -q 'int main' "$work/$2" || fail "no program found in $1"
    # shellcheck disable=SC2016  # the words are the page's
    grep -qF 'cc train.c -o train $(pkg-config --cflags --libs tutti)' "$TT_SOURCE/$1" ||
        fail "$1 builds it differently"
}
take README.md short.c
take docs/quickstart.md train.c

# build SOURCE NAME COMPILER LIBDIR [PKG-CONFIG-FLAG]
build() {
    # shellcheck disable=SC2046  # flags are several words
    "$3" -std=c11 -pedantic-errors -Wall -Wextra -Werror "$work/$1" -o "$work/$2" \
        $(PKG_CONFIG_PATH=$4/pkgconfig pkg-config ${5:-} --cflags --libs tutti) || fail "building it: $2"
}
# run_two NAME LIBDIR
run_two() {
    LD_LIBRARY_PATH=$2 "$prefix/bin/tutti" run --standalone --nproc-per-node=2 "$work/$1" >"$work/out" 2>"$work/err" ||
        { cat "$work/err"; fail "running it: $1"; }
}
# falls PATTERN NUMBER: five lines begin so; field NUMBER of each is less than the one before, and at last half.
falls() {
    awk -v begin="^$1" -v field="$2" '$0 ~ begin { value = $field + 0; rose += n && value >= last; last = value
            if (!n++) first = last }
        END { exit !(n == 5 && !rose && last < first / 2) }' "$work/out" ||
        { cat "$work/out"; fail "expected five epochs, losses that fall, the last below half of the first"; }
}
# train NAME COMPILER LIBDIR [PKG-CONFIG-FLAG]: build and run quickstart.md's; all outputs must be the same.
train() {
    build train.c "$1" "$2" "$3" ${4:-}
    run_two "$1" "$3"
    [ -e "$work/first" ] || cp "$work/out" "$work/first"
    cmp "$work/out" "$work/first" || fail "$1 prints something else than the first one"
    falls epoch 4
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

build short.c short "${CC:-cc}" "$libdir"
run_two short "$libdir"
falls Epoch 4
cat "$work/out"
echo "ok: README.md"
