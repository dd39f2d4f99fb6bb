#!/bin/sh
# The small examples: --help, with or without a launcher, and the error for arguments that they don't know. Of several
# ranks one speaks.
set -u

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
    printf 'FAILED: %s\n--- stdout\n%s\n--- stderr\n%s\n' "$*" "$(cat out)" "$(cat err)" >&2
    exit 1
}

# refuses NAME WHAT ARGUMENT...: exit code 2, and what was not understood.
refuses() {
    name=$1
    what=$2
    shift 2
    "$TT_BUILD/examples/$name" "$@" >out 2>err
    [ $? -eq 2 ] || fail "$name $*: expected exit code 2"
    [ "$(head -n 1 err)" = "not understood: \"$what\"" ] || fail "$name $*: expected its error"
    grep -q "^usage: .*\<$name\>" err || fail "$name $*: expected its usage"
    [ ! -s out ] || fail "$name $*: expected nothing on stdout"
}

for name in bare_all_to_all bare_batch bare_collectives bare_group bare_overlap bare_point_to_point bare_reducer \
    bare_ring_all_reduce bare_split data_parallel ddp_join ddp_model_parallel ddp_no_sync ddp_sparse_embedding \
    ddp_step_in_backward ddp_sync_batch_norm ddp_unused_parameters elastic_train env_report fully_shard linear_grads \
    local_sgd model_parallel pipeline random_dataset sampler_all_gather spawn_ddp tensor_parallel toy_basic \
    toy_checkpoint zero; do
    for flag in --help -h; do
        "$TT_BUILD/examples/$name" $flag >out 2>err || fail "$name $flag: exit code $?"
        grep -q "^usage: .*\<$name\>" out || fail "$name $flag: expected its usage"
        [ ! -s err ] || fail "$name $flag: expected nothing on stderr"
    done
    refuses $name --nonsense --nonsense
    refuses $name "" ""
done
for number in -1 0 1025 abc 3x 99999999999999999999; do refuses data_parallel $number $number; done
for number in abc 3x; do refuses spawn_ddp $number $number; done
for step in 0 x 99999999999; do refuses elastic_train $step --lose $step; done
refuses data_parallel 3 2 3
refuses tensor_parallel 0 24 0
refuses tensor_parallel 4 1 2 3 4
refuses local_sgd --kind --kind

"$TUTTI" run --standalone --nproc-per-node=2 "$TT_BUILD/examples/zero" --help >out 2>err || fail "zero --help, 2 ranks"
[ "$(grep -c '^usage: ' out)" -eq 1 ] || fail "zero --help, 2 ranks: expected its usage once"
RANK=1 "$TT_BUILD/examples/zero" --nonsense >out 2>err
[ $? -eq 2 ] || fail "zero --nonsense, rank 1: expected exit code 2"
[ ! -s out ] && [ ! -s err ] || fail "zero --nonsense, rank 1: expected nothing, as rank 0 says it"
exit 0
