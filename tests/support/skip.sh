# skip.sh WHY [PROGRAM ARGUMENT...]: run PROGRAM; without one that exists, say why the test is skipped.
why=$1
shift
[ ! -x "${1:-}" ] || exec "$@"
echo "skipped: $why"
exit 77
