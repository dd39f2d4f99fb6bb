#!/bin/sh
# tutti bench: each benchmark prints one JSON object a line; wrong usage is refused. What they measure is not judged
# here.
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

refuse() { # PATTERN COMMAND...: exit code 2 and this text
    pattern=$1
    shift
    code=0
    text=$("$@" 2>&1) || code=$?
    [ "$code" = 2 ] || fail "$*: expected exit code 2, got $code"
    echo "$text" | grep -q "$pattern" || fail "$*: expected $pattern, got $text"
}

number='[0-9.]+'
expect "^\\{\"bench\":\"startup\",\"world\":2,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --jobs=3
expect "^\\{\"bench\":\"startup\",\"world\":3,\"ms_median\":$number,\"ms_min\":$number\\}\$" \
    "$TUTTI" bench startup --world 3 --jobs 2

refuse 'unknown benchmark "nonsense"' "$TUTTI" bench nonsense
refuse 'expected the name' "$TUTTI" bench
refuse 'world: expected a number' "$TUTTI" bench startup --world zero
refuse 'unknown flag --frobnicate' "$TUTTI" bench startup --frobnicate
refuse 'unknown flag --frobnicate' "$TUTTI" bench step --frobnicate
refuse 'unexpected argument "x"' "$TUTTI" bench step x
refuse 'jobs needs a value' "$TUTTI" bench startup --jobs
refuse 'unexpected argument "x"' "$TUTTI" bench startup x
