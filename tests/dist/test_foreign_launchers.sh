#!/bin/sh
# Ranks that `tutti run` did not start share the CPUs all the same: by hand, over shared memory and over TCP, with what
# srun sets, under mpirun. Nobody sets OMP_NUM_THREADS.
set -eu
unset OMP_NUM_THREADS
program=$TT_PROGRAMS/backend_sum
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

fail() { echo "FAILED: $*"; cat "$dir"/out* "$dir"/err*; exit 1; }

serve() {
    mkfifo "$dir/said"
    "$TUTTI" store --port 0 >"$dir/said" 2>"$dir/err.store" &
    server=$!
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$(head -n 1 <"$dir/said" | sed 's/.*://')
    export MASTER_ADDR MASTER_PORT TORCHELASTIC_USE_AGENT_STORE=True
}

# four_tasks COMMAND...: runs it as srun would, on four tasks of a node.
four_tasks() {
    for task in 0 1 2 3; do
        SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=4 "$@" >"$dir/out.$task" \
            2>"$dir/err.$task" &
        eval "pid$task=$!"
    done
    for task in 0 1 2 3; do
        eval "wait \$pid$task" || fail "task $task of: $*"
    done
    cat "$dir"/out.[0-3]
}

# share NAME BACKEND COMMAND...: each of four ranks takes its share of the CPUs.
share() {
    name=$1 backend=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" || fail "$name"
    found=$(grep -c "^rank [0-3] of 4: $backend, sum 4, .* $each threads\$" "$dir/out") || true
    [ "$found" = 4 ] || fail "$name: $found of 4 ranks take $each of $cpus CPUs"
    echo "ok: $name: $each threads a rank of $cpus"
}

cpus=$(RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 "$program" native | sed 's/.* \([0-9]*\) threads$/\1/')
each=$((cpus < 4 ? 1 : cpus / 4))
serve
# shellcheck disable=SC2016  # expanded by each task
as_srun='RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$0" native'
share "as by srun" native four_tasks sh -c "$as_srun" "$program"
TT_TRANSPORT=tcp share "over TCP" native four_tasks sh -c "$as_srun" "$program"
for mpi in openmpi:OMPI_COMM_WORLD mpich:PMI; do
    launcher=mpirun.${mpi%:*} names=${mpi#*:}
    command -v "$launcher" >/dev/null || { echo "left out: $launcher"; continue; }
    flags=
    [ "$names" = PMI ] || flags="--oversubscribe --bind-to none"
    # shellcheck disable=SC2086  # nothing, or several flags
    share "$launcher" native "$launcher" $flags -n 4 sh -c \
        "RANK=\$${names}_RANK WORLD_SIZE=\$${names}_SIZE exec \"\$0\" native" "$program"
    [ -e "$TT_BUILD/lib/tutti/libtutti-backend-mpi-${mpi%:*}.so" ] || continue
    # shellcheck disable=SC2086
    share "$launcher, back end mpi" mpi "$launcher" $flags -n 4 "$program" mpi
done
