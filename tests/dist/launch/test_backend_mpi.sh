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

# A program whose output nobody reads ends by SIGPIPE as ever, though MPI's own broken pipes don't end it.
ends_by_sigpipe() {
    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 python3 -c 'if True:
        import os, subprocess, sys
        unread, end = os.pipe()
        os.close(unread)
        code = subprocess.run(sys.argv[1:], stdout=end, check=False).returncode
        sys.exit(0 if code == -13 else f"expected an end by SIGPIPE, got {code}")' "$@" || fail "$*"
}

# What MPI writes to a rank that has ended ends no other: here MPI_Test() writes to a pipe that nobody reads.
broken_pipes_are_survived() {
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
    cat >"$dir/broken.c" <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
int MPI_Test(void *request, int *flag, void *status) {
    static int calls;
    int ends[2];
    int (*real)(void *, int *, void *) =
        (int (*)(void *, int *, void *))dlsym(dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD), "MPI_Test");
    if (!calls++ && !pipe(ends)) {
        close(ends[0]);
        if (write(ends[1], "x", 1) < 0 && errno == EPIPE)
            (void)!write(2, "broken\n", 7);
        close(ends[1]);
    }
    return real(request, flag, status);
}
END
    ${CC:-cc} -shared -fPIC "$dir/broken.c" -o "$dir/broken.so" -ldl
    three_ranks "$TUTTI" run --standalone --nproc-per-node 3 env LD_PRELOAD="$dir/broken.so" "$program" mpi-openmpi
    [ "$(echo "$out" | grep -c '^broken$')" = 3 ] || fail "no broken pipes in: $out"
}

for mpi in openmpi mpich; do
    is_built mpi-$mpi || { echo "left out: the back end mpi-$mpi was not built"; continue; }
    three_ranks "$TUTTI" run --standalone --nproc-per-node 3 "$program" mpi-$mpi
    ends_by_sigpipe "$program" mpi-$mpi
    [ $mpi = mpich ] || broken_pipes_are_survived
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
