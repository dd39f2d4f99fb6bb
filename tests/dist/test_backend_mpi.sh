#!/bin/sh
# Programs on the back end "mpi", started by either mpirun, which then chooses the MPI, and by `tutti run`, where MPI's
# processes meet through Tutti's store.
set -eu
program=$TT_PROGRAMS/backend_sum
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ran=0

fail() { echo "FAILED: $*"; exit 1; }
is_built() { [ -e "$TT_BUILD/lib/tutti/libtutti-backend-$1.so" ]; }

# three_ranks COMMAND...: all three tell the sum of three.
three_ranks() {
    out=$("$@" 2>&1) || fail "$*: $out"
    for r in 0 1 2; do
        echo "$out" | grep -q "^rank $r of 3: mpi, sum 3, " || fail "$*: rank $r is missing in: $out"
    done
    echo "ok: $*"
    ran=1
}

for mpi in openmpi mpich; do
    is_built mpi-$mpi || { echo "left out: the back end mpi-$mpi was not built"; continue; }
    three_ranks "$TUTTI" run --standalone --nproc-per-node 3 "$program" mpi-$mpi
    command -v mpirun.$mpi >/dev/null || { echo "left out: there is no mpirun.$mpi"; continue; }
    oversubscribe=
    [ $mpi = mpich ] || oversubscribe=--oversubscribe
    # shellcheck disable=SC2086  # nothing, or one flag
    three_ranks mpirun.$mpi $oversubscribe -n 3 "$program" mpi
done

# Of the two MPIs, one can't make sense of the other's launcher: that is refused, not taken for two jobs of one rank.
if is_built mpi-openmpi && is_built mpi-mpich && command -v mpirun.openmpi >/dev/null; then
    out=$(mpirun.openmpi --oversubscribe -n 2 "$program" mpi-mpich 2>&1) && fail "MPICH under Open MPI's launcher: $out"
    echo "$out" | grep -q "belongs to another MPI" || fail "no word of another MPI in: $out"
    echo "ok: another MPI's launcher is refused"
fi
[ $ran = 1 ] || {
    echo "skipped: no back end mpi was built: no MPI is installed, or this is a build with sanitizers"
    exit 77
}
