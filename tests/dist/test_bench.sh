#!/bin/sh
# tutti bench: each benchmark prints one JSON object a line. What they measure is not judged here.
set -eu

fail() {
    echo "test_bench: $*" >&2
    exit 1
}

expect() { # PATTERN COMMAND...: the last line of its output
    pattern=$1
    shift
    line=$("$@" | tail -n 1) || fail "$* failed"
    echo "$line" | grep -Eq "$pattern" || fail "$*: expected $pattern, got $line"
}

number='[0-9.]+'
expect "^\\{\"bench\":\"startup\",\"world\":2,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --jobs=3
expect "^\\{\"bench\":\"startup\",\"world\":3,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --world 3 --jobs 2
