#!/bin/sh
# tutti store: one line that says where, both ends of its life, and one clear error where it can't start. tutti bench
# store.
set -u
dir=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT

fail() { echo "failed: $*"; cat "$dir/out" "$dir/err"; exit 1; }

# refused CODE TEXT ARGUMENTS...: exits with CODE and one line with TEXT (and, for wrong usage, a hint).
refused() {
    code=$1 text=$2
    shift 2
    "$TUTTI" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ "$got" = "$code" ] || fail "$*: exit code $got, not $code"
    grep -qF -- "$text" "$dir/err" || fail "$*: no \"$text\""
    [ "$(wc -l <"$dir/err")" -le 2 ] || fail "$*: more than an error and a hint"
    [ ! -s "$dir/out" ] || fail "$*: an error belongs on stderr"
}

# start FLAGS...: the server runs as $server and has said where, in $dir/out.
start() {
    mkfifo "$dir/said"
    "$TUTTI" store "$@" >"$dir/said" 2>"$dir/err" &
    server=$!
    head -n 1 <"$dir/said" >"$dir/out"
    rm "$dir/said"
    port=$(sed -n 's/^serving on .*:\([0-9]*\)$/\1/p' "$dir/out")
    [ -n "$port" ] || fail "store $*: no address"
}

# stop SIGNAL: ends at once, as a success.
stop() {
    kill "-$1" "$server"
    wait "$server" || fail "ended with $? after SIG$1"
    server=
}

start --port 0
grep -q "^serving on 127.0.0.1:$port\$" "$dir/out" || fail "address"
refused 1 "127.0.0.1:$port: the port is in use" store --port "$port"
stop TERM
first=$port
start --port 0 --host '[::1]' --store-memory 64
grep -q "^serving on \[::1\]:$port\$" "$dir/out" || fail "address"
stop TERM
start --host=localhost --port="$first" # free again at once
stop INT

refused 1 "192.0.2.1" store --host 192.0.2.1 --port 0
refused 2 "--store-memory" store --store-memory 0
refused 1 "needs a job secret" store --store-auth required
refused 1 "$dir/secret" store --secret-file "$dir/secret"
echo "an old and well kept secret" >"$dir/secret"
chmod 644 "$dir/secret"
refused 1 "chmod 600" store --secret-file "$dir/secret"
chmod 600 "$dir/secret"
start --port 0 --host 0.0.0.0 --store-auth required --secret-file "$dir/secret"
stop TERM
refused 1 "no-such-host.invalid" store --host no-such-host.invalid --port 0

"$TUTTI" store --help >"$dir/out" 2>"$dir/err" || fail "--help"
grep -q -- "--port PORT" "$dir/out" || fail "--help does not tell of --port"

"$TUTTI" bench store --clients 2 --iterations 20 >"$dir/out" 2>"$dir/err" || fail "bench store"
for op in set get add wait; do
    grep -qE "^\{\"bench\":\"store\",\"op\":\"$op\",\"clients\":2,\"ops_per_sec\":[0-9]+\}\$" "$dir/out" ||
        fail "bench store: $op"
done
[ "$(wc -l <"$dir/out")" = 4 ] || fail "bench store: not one line an operation"
