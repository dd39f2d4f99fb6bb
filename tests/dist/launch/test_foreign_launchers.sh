#!/bin/sh
# Ranks that `tutti run` did not start share the CPUs all the same: by hand, over shared memory and over TCP, with what
# srun sets, under mpirun. Nobody sets OMP_NUM_THREADS. And mpirun alone is enough for ranks to find each other.
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

# alone NAME COMMAND...: without a variable of ours, two jobs at the same time; neither leaves anything.
alone() {
    name=$1
    shift
    mkdir "$dir/tmp.$name"
    for job in 1 2; do
        # Each job has a folder for Open MPI's notes: two that begin at once may both make it, and one fails.
        env -u MASTER_ADDR -u MASTER_PORT -u TORCHELASTIC_USE_AGENT_STORE TMPDIR="$dir/tmp.$name" \
            OMPI_MCA_orte_tmpdir_base="$dir/mpi.$job" "$@" >"$dir/out.job$job" 2>"$dir/err.job$job" &
        eval "job$job=$!"
    done
    for job in 1 2; do
        eval "wait \$job$job" || fail "$name, job $job of two"
        found=$(grep -c "^rank [0-2] of 3: native, sum 3," "$dir/out.job$job") || true
        [ "$found" = 3 ] || fail "$name, job $job: $found of 3 ranks"
    done
    left=$(find "$dir/tmp.$name" -name 'tutti-*')
    [ -z "$left" ] || fail "$name left $left"
    echo "ok: $name tells all"
}

# Two hosts, as srun tells of them: the first of the list serves, others join by TCP; without a secret, and without
# MUNGE, nobody waits, and rank 0 says so for all.
two_hosts() {
    lab=$TT_BUILD/tests/support/netlab
    # shellcheck disable=SC2016  # expanded by each task
    as_task='export SLURM_PROCID=$RANK SLURM_LOCALID=$LOCAL_RANK SLURM_NODEID=$((RANK / 2)) SLURM_STEP_NUM_TASKS=4
        export SLURM_STEP_ID=3 SLURM_JOB_ID=77 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE="2(x2)"
        export SLURM_STEP_NODELIST="10.77.0.[1-2]" TT_MUNGE_SOCKET=/nowhere
        unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_USE_AGENT_STORE $1
        exec "$0" native'
    code=0
    "$lab" --hosts 2 --per-host 2 -- sh -c "$as_task" "$program" >"$dir/out.lab" 2>"$dir/err.lab" || code=$?
    [ $code != 77 ] || { echo "left out: two hosts"; return; }
    found=$(grep -c "^rank [0-3] of 4: native, sum 4," "$dir/out.lab") || true
    { [ $code = 0 ] && [ "$found" = 4 ]; } || fail "two hosts: exit code $code, $found of 4 ranks"
    ! "$lab" --hosts 2 --per-host 2 -- sh -c "$as_task" "$program" TT_SECRET >"$dir/out.lab" 2>"$dir/err.lab" ||
        fail "two hosts joined without a secret"
    found=$(grep -c "rank 0: .*4 ranks on several hosts, but no job secret .*set TT_SECRET_FILE" "$dir/err.lab") || true
    lines=$(grep -c 'TT_ERR' "$dir/err.lab") || true
    { [ "$found" = 1 ] && [ "$lines" = 1 ]; } || fail "two hosts without a secret: said $found times in $lines errors"
    echo "ok: two hosts, as by srun"
}

cpus=$(RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 "$program" native | sed 's/.* \([0-9]*\) threads$/\1/')
each=$((cpus < 4 ? 1 : cpus / 4))
serve
# shellcheck disable=SC2016  # expanded by each task
as_srun='RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$0" native'
share "as by srun" native four_tasks sh -c "$as_srun" "$program"
two_hosts
TT_TRANSPORT=tcp share "over TCP" native four_tasks sh -c "$as_srun" "$program"
for mpi in openmpi:OMPI_COMM_WORLD mpich:PMI; do
    launcher=mpirun.${mpi%:*} names=${mpi#*:}
    command -v "$launcher" >/dev/null || { echo "left out: $launcher"; continue; }
    flags=
    [ "$names" = PMI ] || flags="--oversubscribe --bind-to none"
    # shellcheck disable=SC2086  # nothing, or several flags
    alone "$launcher" "$launcher" $flags -n 3 "$program" native
    # shellcheck disable=SC2086
    share "$launcher" native "$launcher" $flags -n 4 sh -c \
        "RANK=\$${names}_RANK WORLD_SIZE=\$${names}_SIZE exec \"\$0\" native" "$program"
    [ -e "$TT_BUILD/lib/tutti/libtutti-backend-mpi-${mpi%:*}.so" ] || continue
    # shellcheck disable=SC2086
    share "$launcher, back end mpi" mpi "$launcher" $flags -n 4 "$program" mpi
done
