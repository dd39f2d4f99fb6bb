#!/bin/sh
# For tests of examples: run one on two ranks, look at what it prints.

fail() {
    printf 'FAILED: %s\n--- output\n%s\n' "$*" "$output" >&2
    exit 1
}

# run_two NAME [ARGUMENTS]: stdout into $output; it must succeed.
run_two() {
    name=$1
    shift
    output=$("$TUTTI" run --standalone --nproc-per-node=2 "$TT_BUILD/examples/$name" "$@") || fail "$name: exit code $?"
}

# has LINE: it is printed exactly once. Ranks may print in any order.
has() {
    [ "$(printf '%s\n' "$output" | grep -cxF -e "$1")" -eq 1 ] || fail "$name: expected once: $1"
}

# lines N: that many in all.
lines() {
    [ "$(printf '%s\n' "$output" | wc -l)" -eq "$1" ] || fail "$name: expected $1 lines"
}
