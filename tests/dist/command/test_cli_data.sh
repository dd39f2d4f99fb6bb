#!/bin/sh
# tutti data: what it writes can be read, is the same each time, and mistakes are told.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
    want=$1 text=$2
    shift 2
    output=$("$TUTTI" data "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want" ] || fail "tutti data $*: exit code $code, expected $want: $output"
    case $output in
    *"$text"*) ;;
    *) fail "tutti data $*: expected \"$text\" in: $output" ;;
    esac
}

expect 0 t10k-labels-idx1-ubyte digits "$dir/plain" --train 300 --test 50 --seed 3
expect 0 t10k-labels-idx1-ubyte.gz digits --seed=3 --train=300 --test=50 --gz "$dir/packed"
for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    gzip -dc "$dir/packed/$file.gz" | cmp - "$dir/plain/$file" || fail "$file differs from $file.gz"
done
set -- "$dir/plain"/*
[ $# -eq 4 ] || fail "expected four files, got: $*"

# The test set goes on where the training set ends: its examples are others.
expect 0 "" digits "$dir/longer" --train 340 --test 10 --seed 3
tail -c 7840 "$dir/plain/t10k-images-idx3-ubyte" >"$dir/a"
tail -c 7840 "$dir/longer/t10k-images-idx3-ubyte" >"$dir/b"
cmp "$dir/a" "$dir/b" || fail "example 340 depends on where the training set ends"

expect 0 "u8 (50, 28, 28)" show "$dir/packed/t10k-images-idx3-ubyte.gz"
expect 0 "example 41" show "$dir/plain/t10k-images-idx3-ubyte" -n 1 --start 41
expect 0 "u8 (300)" show "$dir/plain/train-labels-idx1-ubyte" --count 400
expect 0 "usage: tutti data" --help
expect 0 "usage: tutti data" digits --help

# A command that brings nothing leaves no folder that it made; one that was there stays.
mkdir "$dir/own"
for folder in new own; do
    (ulimit -f 1 && "$TUTTI" data digits "$dir/$folder" --train 300 --test 50) 2>/dev/null &&
        fail "a limit is not noticed"
    expect 1 "127.0.0.1" mnist "$dir/$folder" --mirror http://127.0.0.1:1
done
[ -d "$dir/own" ] && [ ! -e "$dir/new" ] || fail "expected the folder that was there alone: $(ls "$dir")"

expect 1 "can't make the folder $dir/no/such" digits "$dir/no/such"
expect 2 "below the 50 examples" show "$dir/plain/t10k-images-idx3-ubyte" --start 50
expect 1 "TT_ERR_IO" show "$dir/missing"
if [ -c /dev/full ]; then
    "$TUTTI" data show "$dir/plain/train-labels-idx1-ubyte" >/dev/full 2>"$dir/err" && fail "a full disk is not noticed"
    grep -q "writing the output failed: No space left" "$dir/err" || fail "of a full disk: $(cat "$dir/err")"
fi
expect 1 "not an IDX file" show "$0"
