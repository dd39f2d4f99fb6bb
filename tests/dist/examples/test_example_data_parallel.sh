#!/bin/sh
# data_parallel: the same training with one thread and with several.
set -u
out=$(OMP_NUM_THREADS=1 "$TT_BUILD/examples/data_parallel" 3) || { echo "FAILED: $out" >&2; exit 1; }
printf '%s\n' "$out" | awk '
    / replica/ { lines++; replicas[$1] = $5; name = $NF }
    END { off = replicas[1] - replicas[3]
          exit !(lines == 2 && off < 2e-5 && off > -2e-5 && name == "\"module.0.weight\"") }' ||
    { echo "FAILED: $out" >&2; exit 1; }
out=$("$TT_BUILD/examples/data_parallel" -1 2>&1)
[ $? -eq 2 ] || { echo "FAILED: -1 replicas: expected exit code 2: $out" >&2; exit 1; }
case $out in
*'not understood: "-1"'*'1 to 1024'*) ;;
*) echo "FAILED: -1 replicas: $out" >&2; exit 1 ;;
esac
exit 0
