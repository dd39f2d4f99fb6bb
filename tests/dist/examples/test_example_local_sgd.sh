#!/bin/sh
# local_sgd: ranks differ between averagings, and end alike. gpt_char --diloco: a run that is resumed from a checkpoint
# goes on with the state of the outer steps; wrong flags are refused. And between far hosts, where there can be such.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

run() {
    ranks=$1
    shift
    "$TUTTI" run --standalone --nproc-per-node="$ranks" "$@" 2>&1
}

for kind in periodic hierarchical post_local diloco; do
    for ranks in 1 2 4; do
        out=$(run $ranks "$TT_BUILD/examples/local_sgd" --kind $kind) || fail "$kind on $ranks ranks: $out"
        printf '%s\n' "$out" | awk -v ranks=$ranks '
            /ends with/ { lines++; ends[$NF]++ }
            END         { for (e in ends) n++; exit !(lines == ranks && n == 1) }' || fail "$kind, $ranks ranks: $out"
    done
done
out=$(run 2 "$TT_BUILD/examples/local_sgd" --kind none) && fail "a kind that there is not: $out"
case $out in *"--kind: expected"*) ;; *) fail "a kind that there is not: $out" ;; esac

gpt() { # RANKS FLAG...
    ranks=$1
    shift
    run "$ranks" "$TT_BUILD/examples/gpt_char" --layers 1 --width 16 --heads 2 --block 16 --batch-size 2 --warmup 2 \
        --sample 0 "$@"
}
out=$(gpt 2 --steps 20 --diloco 5 --eval-every 10 --save-every 10 --checkpoint d.safetensors) || fail "gpt_char: $out"
"$TUTTI" ckpt show d.safetensors > shown 2>&1 || fail "no checkpoint: $(cat shown)"
for entry in more.step more.anchor.head.weight more.momentum_buffer.head.weight; do
    grep -q "$entry" shown || grep -q "${entry%head.weight}" shown || fail "no $entry in the checkpoint: $(cat shown)"
done
out=$(gpt 2 --steps 30 --diloco 5 --eval-every 10 --save-every 10 --resume d.safetensors --checkpoint e.safetensors) ||
    fail "gpt_char, resumed: $out"
case $out in *"step 30: "*"val loss"*) ;; *) fail "gpt_char, resumed: $out" ;; esac
out=$(gpt 1 --steps 10 --eval-every 10 --save-every 10 --checkpoint plain.safetensors) || fail "gpt_char, plain: $out"
out=$(gpt 2 --steps 20 --diloco 5 --eval-every 10 --save-every 0 --resume plain.safetensors) &&
    fail "resumed without the averager's state: $out"
case $out in *tt_model_averager_load_state_dict*) ;; *) fail "no such state: $out" ;; esac
out=$(gpt 2 --steps 21 --diloco 5 --eval-every 10) && fail "steps that are no multiple: $out"
out=$(gpt 2 --steps 20 --diloco 5 --eval-every 10 --save-every 0 --send-as u8) && fail "--send-as u8: $out"

out=$("$TT_BUILD/tests/support/wan" --mbit 10 --delay 20 --log log -- "$TT_BUILD/examples/gpt_char" --layers 1 \
    --width 16 --heads 2 --block 16 --batch-size 2 --warmup 2 --sample 0 --steps 20 --diloco 10 --send-as f16 \
    --eval-every 20 --save-every 0 2>&1)
case $? in
    0) grep -q '"bytes": [1-9]' log || fail "nothing went through the relay: $(cat log)" ;;
    77) printf '%s\n' "$out" ;;
    *) fail "far hosts: $out" ;;
esac
exit 0
