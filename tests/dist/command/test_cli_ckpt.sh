#!/bin/sh
# tutti ckpt: shows, verifies, compares and converts checkpoints of all formats, and tells mistakes.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
vectors=$TT_SOURCE/tests/vectors
train=$vectors/pt-train-torch2.14.pt
state=$vectors/pt-state-dict-torch1.13.pt

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
    want=$1 text=$2
    shift 2
    output=$("$TUTTI" ckpt "$@" 2>&1)
    code=$?
    [ "$code" -eq "$want" ] || fail "tutti ckpt $*: exit code $code, expected $want: $output"
    case $output in
    *"$text"*) ;;
    *) fail "tutti ckpt $*: expected \"$text\" in: $output" ;;
    esac
}

expect 0 "pt, 7 tensors, 72 bytes" show "$state"
expect 0 "1.num_batches_tracked  i64 ()" show "$state"
expect 0 "optimizer.param_groups.0.betas.0                 the float 0.9
" show "$train"
expect 0 '"name":"0.weight","dtype":"f32","shape":[2,3],"bytes":24' show --json "$state"
expect 0 '{"name":"seed","value":1099511627776}' show --json "$train"
expect 0 '{"name":"empty","value":"a list of 0"}' show --json "$train"
expect 0 "example.safetensors: safetensors" show "$vectors/example.safetensors"

# Names that a terminal would act upon: U+009B begins an escape sequence, as ESC does.
named() { printf "$1\\0\\0\\0\\0\\0\\0\\0%s" "$2" >"$dir/named.safetensors"; }
named '\73' "$(printf '{"a\302\2331m\177":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}')"
expect 0 'a1m ' show "$dir/named.safetensors"
expect 0 '{"name":"a\u009b1m\u007f","dtype"' show --json "$dir/named.safetensors"

# There and back through every format: nothing is lost.
cd "$dir" || exit 1
expect 0 "" convert "$state" one.safetensors
expect 0 "equal: 7 entries" diff "$state" one.safetensors
expect 0 "" convert one.safetensors many.safetensors.index.json --max-shard 1
expect 0 "equal: 7 entries" diff one.safetensors many.safetensors.index.json
expect 0 "" convert many.safetensors.index.json back.pt
expect 0 "equal: 7 entries" diff "$state" back.pt
expect 0 "" convert "$train" copy.pth
expect 0 "equal: 48 entries" diff "$train" copy.pth
expect 0 'left out 29 values that are no tensors, such as "optimizer.param_groups.0.lr"' convert "$train" t.safetensors

expect 0 "" convert --weights-only "$train" weights.safetensors
expect 1 "optimizer.param_groups.0.lr: only in A" diff "$train" weights.safetensors
expect 0 '"progress":null' show --json "$state"

expect 1 "epoch: only in A: the int 3" diff "$train" t.safetensors
expect 1 '{"name":"epoch","difference":"only in B","text":"the int 3"}' diff t.safetensors "$train" --json
expect 1 "0.weight: only in B" diff "$train" "$state"

# A byte of a tensor changed: the checksum of the .pt tells; a safetensors file has none, so a comparison has to.
expect 0 "copy.pth: whole: pt, 19 tensors" verify "$state" copy.pth many.safetensors.index.json
cp one.safetensors changed.safetensors
size=$(wc -c <one.safetensors)
printf '\177' | dd of=changed.safetensors bs=1 seek=$((size - 1)) conv=notrunc 2>/dev/null
expect 1 "1 of 2 elements differ, by at most 0; some are NaN in one of them" diff one.safetensors changed.safetensors
cp copy.pth broken.pth
offset=$(grep -abo 'archive/data/0' broken.pth | head -n 1 | cut -d: -f1)
printf '\177' | dd of=broken.pth bs=1 seek=$((offset + 60)) conv=notrunc 2>/dev/null
printf '\177' | dd of=broken.pth bs=1 seek=$((offset + 90)) conv=notrunc 2>/dev/null
cmp -s copy.pth broken.pth && fail "nothing was changed"
expect 1 "TT_ERR_FORMAT" verify "$state" broken.pth
expect 1 '"whole":false,"status":"TT_ERR_FORMAT"' verify broken.pth --json
head -c 1000 copy.pth >short.pth
expect 1 "cut short?" verify short.pth
expect 1 "TT_ERR_IO" show missing.pt
mkfifo queue.safetensors # that nobody writes to
expect 1 "queue.safetensors: " show queue.safetensors
expect 1 "queue.safetensors: " verify queue.safetensors
expect 1 "queue.safetensors: " diff queue.safetensors "$state"
expect 1 "queue.safetensors: " convert queue.safetensors x.safetensors
expect 2 "expected a new file that ends in .safetensors" convert "$state" x.txt
expect 0 "usage: tutti ckpt" --help
expect 0 "usage: tutti ckpt diff" diff --help
