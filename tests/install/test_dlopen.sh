#!/bin/sh
# Both libraries are loaded late, into processes that run threads already: each alone, and one after the other.
# Two ranks sum and train.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libdir=$TT_BUILD/lib
export OMP_NUM_THREADS=1

gcc -std=gnu11 -Wall -Wextra -Werror -I"$TT_SOURCE/include" "$TT_SOURCE/tests/install/programs/late.c" \
    -o "$work/late" -ldl -pthread
for library in libtutti-comm.so libtutti.so; do
    if readelf -d "$libdir/$library" | grep -q STATIC_TLS; then
        echo "FAILED: $library needs static thread-local memory"
        exit 1
    fi
done

late() { # LIBRARY...
    "$TUTTI" run --standalone --nproc-per-node 2 "$work/late" "$@" || { echo "FAILED: late $*"; exit 1; }
    echo "ok: $*"
}
late "$libdir/libtutti-comm.so"
late "$libdir/libtutti.so"
late "$libdir/libtutti.so" "$libdir/libtutti.so"
late "$libdir/libtutti-comm.so" "$libdir/libtutti.so"

# oneDNN is loaded by the first product, and by nothing before. A broken one is an error that says so.
if ldd "$libdir/libtutti.so" | grep libdnnl; then
    echo "FAILED: libtutti is linked with oneDNN"
    exit 1
fi
mkdir "$work/broken"
for version in 2 3; do
    : >"$work/broken/libdnnl.so.$version"
done
if LD_LIBRARY_PATH=$work/broken "$TUTTI" run --standalone --nproc-per-node 1 "$work/late" "$libdir/libtutti-comm.so" \
    "$libdir/libtutti.so" 2>"$work/err"; then
    echo "FAILED: a product without oneDNN"
    exit 1
fi
grep -q "need oneDNN, which can't be loaded" "$work/err" || { cat "$work/err"; exit 1; }
echo "ok: without oneDNN"
