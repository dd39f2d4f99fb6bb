#!/bin/sh
# The examples of process groups: they need libtutti-comm alone, and print the same over shared memory and over TCP.
set -u
# shellcheck source=tests/dist/examples/examples.sh
. "$TT_SOURCE/tests/dist/examples/examples.sh"

# run RANKS NAME: as run_two.
run() {
    name=$2
    output=$("$TUTTI" run --standalone --nproc-per-node="$1" "$TT_BUILD/examples/$2") || fail "$name: exit code $?"
}

examples() {
    run 2 bare_point_to_point
    lines 4
    has "blocking: rank 0 has 1"
    has "blocking: rank 1 has 1"
    has "non-blocking: rank 0 has 2"
    has "non-blocking: rank 1 has 2"

    run 3 bare_group
    lines 3
    has "rank 0 has 2"
    has "rank 1 has 2"
    has "rank 2 has 1"

    # The last of 1000 numbers: 999 on rank 0, one more on each other.
    run 4 bare_ring_all_reduce
    lines 4
    for rank in 0 1 2 3; do has "rank $rank: last sum 4002, the same as all_reduce"; done

    # pi^2 / 6; the last of 2^20 numbers is 75 on rank 0 and 76 on rank 1.
    run 2 bare_overlap
    lines 2
    for rank in 0 1; do has "rank $rank: computed 1.6449, mean of the last element 75.5"; done

    run 4 bare_split
    lines 4
    has "rank 0 is at (0, 0): ranks of its row add up to 1, of its column to 2"
    has "rank 1 is at (0, 1): ranks of its row add up to 1, of its column to 4"
    has "rank 2 is at (1, 0): ranks of its row add up to 5, of its column to 2"
    has "rank 3 is at (1, 1): ranks of its row add up to 5, of its column to 4"

    # 12 cells between 1 and 0: cell i has 1 - i / 13.
    run 3 bare_batch
    lines 3
    has "rank 0: 0.923 0.846 0.769 0.692"
    has "rank 1: 0.615 0.538 0.462 0.385"
    has "rank 2: 0.308 0.231 0.154 0.077"

    run 2 bare_all_to_all
    lines 4
    has "even: rank 0 has 0 1 100 101"
    has "even: rank 1 has 10 11 110 111"
    has "uneven: rank 0 has 0 100 101"
    has "uneven: rank 1 has 10 11 110 111 112"

    run 3 bare_collectives
    lines 10
    has "broadcast: 3"
    has "reduce: 6"
    has "scatter: 10"
    has "gather: 1 2 3"
    has "all_reduce: 3"
    has "all_gather: 1 2 3"
    has "reduce_scatter: 36"
    has "all_reduce_coalesced: 6 60 600"
    has "all_gather_v: 0 10 11 20 21 22"
    has "recv: 3 3"
}

examples
TT_TRANSPORT=tcp
export TT_TRANSPORT
examples

if command -v ldd >/dev/null; then
    for name in point_to_point group ring_all_reduce overlap split batch all_to_all collectives; do
        case $(ldd "$TT_BUILD/examples/bare_$name") in
        *libdnnl* | *libtutti.so*) fail "bare_$name needs more than libtutti-comm" ;;
        esac
    done
fi
exit 0
