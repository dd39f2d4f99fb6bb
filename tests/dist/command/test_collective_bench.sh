# tutti bench all_reduce: one JSON object a size and kind of buffer, from rank 0 alone.
set -eu

fail() {
    echo "failed: $*"
    exit 1
}

for buffers in symmetric plain; do
    out=$("$TUTTI" bench all_reduce --world 3 --sizes 8,5K,600K --buffers $buffers --iterations 5)
    [ "$(echo "$out" | grep -c '^{"bench":"all_reduce","backend":"native","world":3,')" = 3 ] ||
        fail "three objects: $out"
    for bytes in 8 5120 614400; do
        sizes="\"bytes\":$bytes,\"dtype\":\"f32\",\"buffers\":\"$buffers\""
        echo "$out" | grep -q "$sizes,\"usec_median\":[0-9.]*,\"usec_min\":" ||
            fail "$bytes bytes: $out"
    done
done

# Every collective, with types and ops.
for name in all_reduce reduce reduce_scatter broadcast all_gather all_gather_v gather scatter all_to_all all_to_all_v \
    barrier all_reduce_coalesced; do
    "$TUTTI" bench --help | grep -q "^  $name " || fail "bench --help has no $name"
    "$TUTTI" bench $name --list-algorithms | grep -q "^{\"op\":\"$name\",\"algorithm\":\"" || fail "algorithms of $name"
done
out=$("$TUTTI" bench broadcast --world 2 --sizes 10,1K --dtype f64 --iterations 5 --async)
[ "$(echo "$out" | grep -c '"bytes":1[06][0-9]*,"dtype":"f64".*"async":true}$')" = 2 ] || fail "broadcast: $out"
out=$("$TUTTI" bench all_reduce --world 2 --sizes 64 --dtype bf16 --op max --iterations 5)
echo "$out" | grep -q '"dtype":"bf16".*"op":"max"}$' || fail "max of bf16: $out"
[ "$("$TUTTI" bench barrier --world 3 --iterations 5 | grep -c '"bench":"barrier".*"bytes":0')" = 1 ] || fail "barrier"

# An algorithm is forced; where it can't serve, as one on messages among ranks that share memory, a line says so.
out=$("$TUTTI" bench all_reduce --world 2 --sizes 1K --transport tcp --algorithm ring --iterations 5 2>&1)
echo "$out" | grep -q '"transport":"tcp","wire":"plain","algorithm":"ring"' || fail "ring: $out"
echo "$out" | grep -q "can't serve" && fail "ring did serve: $out"
out=$("$TUTTI" bench all_reduce --world 2 --sizes 1K --transport shm --algorithm ring --iterations 5 2>&1)
echo "$out" | grep -q "^tutti bench all_reduce: ring can't serve 1024 bytes here; this is " ||
    fail "ring on shared memory: $out"

# The wire that was measured is named.
for wire in sealed tls; do
    out=$("$TUTTI" bench send_recv --sizes 8 --transport tcp --wire $wire --iterations 5)
    echo "$out" | grep -q "\"wire\":\"$wire\"" || fail "$wire: $out"
done
out=$("$TUTTI" bench all_reduce --sizes 8 --iterations 5)
echo "$out" | grep -q '"wire":"none"' || fail "no wire: $out"

"$TUTTI" bench all_reduce --help | grep -q -- --no-pin || fail "help"
