# tutti bench all_reduce: one JSON object a size and kind of buffer, from rank 0 alone; mistakes end in one line and exit code 2.
set -eu

fail() {
    echo "failed: $*"
    exit 1
}

for buffers in symmetric plain; do
    out=$("$TUTTI" bench all_reduce --world 3 --sizes 8,5K,600K --buffers $buffers --iterations 5)
    [ "$(echo "$out" | grep -c '^{"bench":"all_reduce","backend":"native","world":3,')" = 3 ] || fail "three objects: $out"
    for bytes in 8 5120 614400; do
        echo "$out" | grep -q "\"bytes\":$bytes,\"dtype\":\"f32\",\"buffers\":\"$buffers\",\"usec_median\":[0-9.]*,\"usec_min\":" ||
            fail "$bytes bytes: $out"
    done
done

for flags in "--sizes" "--sizes x" "--sizes 0" "--sizes ," "--world 0" "--world 65" "--buffers soft" "--iterations -1" "--nothing" "word"; do
    code=0
    # shellcheck disable=SC2086  # words of flags
    text=$("$TUTTI" bench all_reduce $flags 2>&1) || code=$?
    [ $code = 2 ] || fail "exit code $code for: $flags: $text"
    case $text in
        "tutti bench all_reduce: "*) ;;
        *) fail "text for $flags: $text" ;;
    esac
done
"$TUTTI" bench all_reduce --help | grep -q -- --no-pin || fail "help"
