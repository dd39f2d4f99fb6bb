#!/bin/sh
# tutti.hpp as a stranger uses it, from the installed tree. The program of docs/cpp.md is no longer than that of
# docs/quickstart.md in C and prints the same, with shared and with static libraries, built by the first compiler there
# is; each other one builds it for the long form (TT_LONG).
# programs/wrappers.cc, callbacks.cc and calls.cc use every kind of wrapper on two ranks, and leak nothing.
set -eu
# shellcheck disable=SC1091,SC2154 # it sets work, prefix, libdir, static_libdir
. "$TT_SOURCE/tests/install/installed.sh"
static_tree

program_of docs/quickstart.md c >"$work/train.c"
program_of docs/cpp.md cpp >"$work/train.cc"
grep -q 'int main' "$work/train.c" || fail "no program found in docs/quickstart.md"
grep -q 'int main' "$work/train.cc" || fail "no program found in docs/cpp.md"
c_lines=$(wc -l <"$work/train.c") cpp_lines=$(wc -l <"$work/train.cc")
echo "lines: $c_lines in C, $cpp_lines in C++"
[ "$cpp_lines" -le "$c_lines" ] || fail "the C++ program is longer"
# shellcheck disable=SC2016  # the words are the page's
grep -qF 'c++ -std=c++17 train.cc -o train $(pkg-config --cflags --libs tutti)' "$TT_SOURCE/docs/cpp.md" ||
    fail "docs/cpp.md builds it differently"

strict="-pedantic-errors -Wall -Wextra -Werror"
# build NAME SOURCE LIBDIR COMPILER-AND-FLAGS [PKG-CONFIG-FLAG]
build() {
    # shellcheck disable=SC2046,SC2086  # flags are several words
    $4 $strict "$2" -o "$work/$1" $(PKG_CONFIG_PATH=$3/pkgconfig pkg-config ${5:-} --cflags --libs tutti) ||
        fail "building it: $1"
}
# run_two NAME: its output on two ranks, to $work/out.
run_two() {
    LD_LIBRARY_PATH=$libdir "$prefix/bin/tutti" run --standalone --nproc-per-node=2 "$work/$1" >"$work/out" \
        2>"$work/err" || { cat "$work/out" "$work/err"; fail "running it: $1"; }
}
same() {
    run_two "$1"
    cmp "$work/out" "$work/expected" || fail "$1 prints something else than the C program"
    echo "ok: $1"
}

build in-c "$work/train.c" "$libdir" "${CC:-cc} -std=c11"
run_two in-c
cp "$work/out" "$work/expected"
cat "$work/expected"
grep -q '^epoch 4: loss' "$work/expected" || fail "the C program printed no fifth epoch"
cat >"$work/named.cc" <<'END'
#include <tutti/tutti.hpp>
tutti::optimizer heavy(tutti::module &m) { return tutti::sgd(m.parameters(), 0.1, {.momentum = 0.9}); }
int main() {}
END
tried=0
for compiler in g++ clang++; do
    command -v $compiler >/dev/null || continue
    [ "$tried" = 0 ] || [ "${TT_LONG:-0}" != 0 ] || continue
    build $compiler-shared "$work/train.cc" "$libdir" "$compiler -std=c++17"
    same $compiler-shared
    # shellcheck disable=SC2086  # flags are several words
    $compiler -std=c++20 $strict -fsyntax-only -I"$prefix/include" "$work/named.cc" || fail "$compiler: named options"
    if [ "$tried" -gt 0 ]; then # the rest depends on the language alone
        # shellcheck disable=SC2086  # flags are several words
        $compiler -std=c++17 $strict -fsyntax-only -I"$prefix/include" "$TT_SOURCE"/tests/install/programs/*.cc ||
            fail "$compiler: the programs"
        continue
    fi
    build $compiler-static "$work/train.cc" "$static_libdir" "$compiler -std=c++17" --static
    if ldd "$work/$compiler-static" | grep -q libtutti; then
        fail "$compiler-static is linked with a shared library of ours"
    fi
    same $compiler-static
    cat >"$work/bytes.cc" <<'END'
#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/reducer.hpp>
int main() {
    tutti::store memory = tutti::hash_store();
    tutti::init_process_group_options o;
    o.store = memory.get(), o.world_size = 1;
    tutti::group alone = tutti::init_process_group(o);
    tutti::reducer reducer(alone, {{"w", 3}});
    reducer.mark_ready(0);
    reducer.finish();
    return alone.rank();
}
END
    # shellcheck disable=SC2046,SC2086  # flags are several words
    $compiler -std=c++17 $strict "$work/bytes.cc" -o "$work/bytes" \
        $(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs tutti-comm) || fail "bytes: tutti-comm alone"
    LD_LIBRARY_PATH=$libdir "$work/bytes" || fail "running it: bytes"
    sanitize=
    if echo 'int main() {}' | $compiler -fsanitize=address -xc++ - -o "$work/probe" 2>/dev/null && "$work/probe"; then
        sanitize=-fsanitize=address
    fi
    for program in wrappers callbacks calls; do
        build $compiler-$program "$TT_SOURCE/tests/install/programs/$program.cc" "$libdir" \
            "$compiler -g -std=c++17 -pthread $sanitize"
        run_two $compiler-$program
        grep -q 'all is well' "$work/out" || { cat "$work/out" "$work/err"; fail "$compiler-$program"; }
        echo "ok: $compiler-$program $sanitize"
    done
    tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "skipped: there is neither g++ nor clang++"; exit 77; }
