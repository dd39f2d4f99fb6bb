#!/bin/sh
# The example back end, built out of the tree against an installed Tutti, as docs/backends.md tells its readers; and the
# back ends that come with Tutti, found beside the installed library.
# shellcheck disable=SC2154 # installed.sh sets work, prefix, libdir, static_libdir
set -eu
# shellcheck disable=SC1091
. "$TT_SOURCE/tests/install/installed.sh"
export LD_LIBRARY_PATH="$prefix/lib"
unset TT_BACKEND_PATH

# The page's commands, as they stand but for where things lie.
mkdir "$work/tree"
ln -s "$TT_SOURCE/examples" "$TT_BUILD" "$work/tree"
[ -e "$work/tree/build" ] || ln -s "$TT_BUILD" "$work/tree/build"
engine=$(find "$prefix" -name libtutti-backend-gloo.so)
shorter='s|^build.*/libmine.so -|CONFORMANCE_ONLY=broadcast & 2|' # the whole suite is a test of its own
[ -n "$engine" ] || shorter='\|/libmine.so|d'
awk '/^```/ { inside = !inside; plain = $0 == "```"; next } inside && plain' "$TT_SOURCE/docs/backends.md" |
    sed "$shorter; s|/usr/local|$prefix|; s|^tutti |$prefix/bin/&|; s|/path/to/libmine.so|$engine|" >"$work/commands"
[ "$(grep -c -e cmake -e 'tutti run' -e 'conformance/conformance build-star' "$work/commands")" -eq 4 ] ||
    { cat "$work/commands"; fail "other commands on the page"; }
(cd "$work/tree" && sh -eux "$work/commands" </dev/null) >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the page's commands"; }
echo "ok: the page's commands"
mv "$work/tree/build-star" "$work/build"
! ldd "$work/build/libtutti-backend-star.so" | grep -q libtutti || fail "the back end is linked with Tutti"

# mean NAME BACKEND: three ranks average 0, 1, 2.
mean() {
    "$prefix/bin/tutti" run --standalone --nproc-per-node 3 "$work/build/mean" "$2" >"$work/out" 2>"$work/err" ||
        { cat "$work/err"; fail "mean $2"; }
    for r in 0 1 2; do
        grep -q "^rank $r of 3: $1, mean 1\$" "$work/out" || { cat "$work/out"; fail "rank $r with $2"; }
    done
    echo "ok: $2"
}
mean star "$work/build/libtutti-backend-star.so"
grep -q "^rank 0: back end star has no all_gather" "$work/out" || fail "all_gather was not refused by name"
TT_BACKEND_PATH=$work/build mean star star
for backend in gloo mpi; do
    found=$(find "$prefix" -name "libtutti-backend-$backend.so")
    if [ -n "$found" ]; then
        mean $backend $backend
    else
        echo "left out: the back end $backend was not built"
    fi
done
if "$prefix/bin/tutti" run --standalone --nproc-per-node 1 "$work/build/mean" nowhere >"$work/out" 2>&1; then
    fail "a back end that does not exist was found"
fi
grep -q 'no back end "nowhere"; there are: native' "$work/out" || { cat "$work/out"; fail "no list of back ends"; }
echo "ok: an unknown back end"
