# To be sourced by tests of an installed tree. $work is a folder that goes in the end; $prefix is the build, installed;
# its libraries lie in $libdir.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
export OMP_NUM_THREADS=1
export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}" # what builds Tutti is there; make may not be
fail() { echo "FAILED: $*"; exit 1; }

cmake --install "$TT_BUILD" --prefix "$prefix" >"$work/log" || { cat "$work/log"; fail "install"; }
libdir=$(dirname "$(find "$prefix" -name libtutti.so)")

# The same tree elsewhere, without shared libraries, so that -ltutti can only mean the archive: in $static_libdir.
static_tree() {
    cp -a "$prefix" "$work/static"
    static_libdir=$work/static${libdir#"$prefix"}
    rm "$static_libdir"/*.so*
}

# program_of PAGE LANGUAGE: the first program of a page.
program_of() {
    awk -v "fence=\`\`\`$2" '$1 == fence { inside = 1; next } /^```$/ { if (inside) exit } inside' "$TT_SOURCE/$1"
}
