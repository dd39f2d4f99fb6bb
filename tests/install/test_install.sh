#!/bin/sh
# Installs the build into an empty prefix and builds a small program against it as a stranger would: with pkg-config and
# with find_package, in C11 pedantic and in C++17, linked with the shared and with the static libraries.
set -eu
# shellcheck disable=SC1091,SC2154 # it sets work, prefix, libdir, static_libdir
. "$TT_SOURCE/tests/install/installed.sh"
strict="-pedantic-errors -Wall -Wextra -Werror"

static_tree

cat >"$work/all.c" <<'TEXT'
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
int main(void) {
    printf("%s %s\n", tt_version(), tt_dtype_name(TT_F32));
    if (tt_barrier(NULL, .timeout_ms = 1) != TT_ERR_INVALID) /* options, in C */
        return 1;
    return tt_dtype_size(TT_F64) == 8 && !strcmp(tt_status_name(TT_OK), "TT_OK") ? 0 : 1;
}
TEXT
sed 's/tutti\.h/comm.h/' "$work/all.c" >"$work/comm.c"
# C++ has no macros with options: a struct that is zeroed and filled, and where its options end.
cat >"$work/all.cc" <<'TEXT'
#include <cstddef>
#include <cstdio>
#include <tutti/tutti.h>
int main() {
    std::printf("%s %s\n", tt_version(), tt_dtype_name(TT_F32));
    tt_barrier_args args = {};
    args.timeout_ms = 1;
    return tt_barrier_with(&args, offsetof(tt_barrier_args, tt_end)) == TT_ERR_INVALID ? 0 : 1;
}
TEXT
sed 's/tutti\.h/comm.h/' "$work/all.cc" >"$work/comm.cc"

# pc DIR ARGS...: pkg-config that knows of one tree of ours and of the system's.
pc() {
    dir=$1
    shift
    PKG_CONFIG_PATH=$dir/pkgconfig pkg-config "$@"
}

# build_and_run COMPILER STANDARD SOURCE LIBDIR NAME [--static]
build_and_run() {
    # shellcheck disable=SC2086,SC2046  # flags are several words
    "$1" -std="$2" $strict $(pc "$4" --cflags "$5") "$work/$3" -o "$work/program" $(pc "$4" ${6:-} --libs "$5") ||
        fail "$1 -std=$2 $3 with pkg-config $5 ${6:-}"
    LD_LIBRARY_PATH=$4 "$work/program" >"$work/out" || fail "$3 built by $1 for $5 ${6:-} does not run"
    if [ -n "${6:-}" ] && ldd "$work/program" | grep -q libtutti; then
        fail "$3 for $5 ${6:-} was linked with a shared library of ours"
    fi
    echo "ok: $1 -std=$2 $5 ${6:-shared}: $(cat "$work/out")"
}

both() { # COMPILER STANDARD SUFFIX
    if ! command -v "$1" >/dev/null; then
        echo "left out: there is no $1"
        return 0
    fi
    for name in tutti tutti-comm; do
        source=all.$3
        [ $name = tutti ] || source=comm.$3
        build_and_run "$1" "$2" "$source" "$libdir" $name
        build_and_run "$1" "$2" "$source" "$static_libdir" $name --static
    done
}
both gcc c11 c
both clang c11 c
both g++ c++17 cc
both clang++ c++17 cc

# find_package, from the same two trees.
mkdir "$work/cmake"
cat >"$work/cmake/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.20)
project(stranger C)
find_package(Tutti 0.1 REQUIRED)
set(CMAKE_C_STANDARD 11)
foreach(target tutti comm tutti-static comm-static)
  string(REGEX REPLACE "tutti.*" "all" source ${target})
  string(REGEX REPLACE "-static" "" source ${source})
  add_executable(use-${target} ../${source}.c)
  target_link_libraries(use-${target} PRIVATE Tutti::${target})
endforeach()
TEXT
{
    cmake -G Ninja -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$work/cmake/build"
} >"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; fail "find_package"; }
for target in tutti comm tutti-static comm-static; do
    "$work/cmake/build/use-$target" >/dev/null || fail "the program linked with Tutti::$target does not run"
    echo "ok: find_package, Tutti::$target"
done

[ "$("$prefix/bin/tutti" --version)" = "tutti $(pc "$libdir" --modversion tutti)" ] ||
    fail "the command and pkg-config disagree on the version"
for page in "$TT_SOURCE"/docs/man/*.1; do
    [ ! -e "$page" ] || [ -s "$prefix/share/man/man1/$(basename "$page")" ] || fail "$page is not installed"
done
# Section 3 is made by python3, which the build can do without.
for name in tt_all_reduce tt_all_reduce_with tutti_comm.h; do
    [ ! -d "$TT_BUILD/docs" ] || [ -s "$prefix/share/man/man3/$name.3" ] || fail "no manual page $name(3) is installed"
done
[ ! -d "$TT_BUILD/docs" ] || [ -s "$prefix/share/doc/tutti/html/comm.html" ] ||
    fail "the HTML reference is not installed"
# Sources that pages link to, and files of the build, are not installed; pages and pictures are.
for page in README.md docs/README.md docs/benchmarks.md; do
    for link in $(grep -o '](\(docs/\|examples/\|launch/\|benchmarks/\|\.\./\)*[A-Za-z0-9_-]*\.\(md\|svg\)[#)]' \
        "$prefix/share/doc/tutti/$page" | sed 's/^](//; s/[#)]$//'); do
        [ -s "$prefix/share/doc/tutti/$(dirname "$page")/$link" ] || fail "$page links to $link, which is not installed"
    done
done
for file in bash-completion/completions/tutti zsh/site-functions/_tutti fish/vendor_completions.d/tutti.fish; do
    grep -q "nproc-per-node" "$prefix/share/$file" || fail "share/$file is not installed"
done
echo "ok: the command, its version, its pages, its completions"
