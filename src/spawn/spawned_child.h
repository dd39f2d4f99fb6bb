/* A child of tt_spawn(), from its fork to its end. */
#ifndef TT_SPAWN_SPAWNED_CHILD_H
#define TT_SPAWN_SPAWNED_CHILD_H

#include "spawn/child_report.h"

#include <tutti/spawn.h>

#include <signal.h>
#include <sys/types.h>

/* How all children are started. */
typedef struct tt__child_start {
    tt_spawn_fn fn;
    void *arg;
    int nprocs;
    int threads;   /* for computing; 0: OMP_NUM_THREADS says it */
    sigset_t mask; /* of the thread that starts them */
    int go;        /* eventfd semaphore: one for each child when all are started */
    pid_t parent_pid;
    int parent;                /* pidfd of the parent */
    _Atomic int *port;         /* shared: of the store to meet through, before they may go; 0: none */
    tt__child_report *reports; /* shared, by rank */
} tt__child_start;

/* Write out what stdio's streams hold. */
void tt__flush_streams(void);

/* Be child `rank`. All signals are blocked. */
_Noreturn void tt__spawned_child_run(const tt__child_start *start, int rank);

#endif
