/* Processes that run a function of this program: what the parent knows of them, and what it shares with them. */
#ifndef TT_SPAWN_PROCESS_CONTEXT_H
#define TT_SPAWN_PROCESS_CONTEXT_H

#include "base/error.h"

#include <tutti/spawn.h>
#include <tutti/store.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- spawned_child.c: a child, from its fork to its end */

enum { TT__REPORT_TEXT_SIZE = TT__ERROR_TEXT_SIZE + 64 };

/* What a child leaves for its parent, in memory that both have. Bounded, and there even if the child crashes. */
typedef struct tt__child_report {
    /* Set by the child's last act. `code` is its exit code then, unless a signal kills it just after that. */
    _Atomic int has_ended;
    int code;
    int64_t ended_ns;
    tt_status status; /* the last error of the thread that ended it */
    char last_error[TT__REPORT_TEXT_SIZE];

    /* The last thing that it reported for its launcher. */
    _Atomic int telling, has_told; /* telling: a thread writes `told` */
    _Atomic bool secondary;        /* it ends because another rank did */
    char told[TT__REPORT_TEXT_SIZE];
} tt__child_report;

/* The memory that parent and children share. */
typedef struct tt__shared_reports {
    _Atomic int port;      /* of the store to meet through, set before they may go; 0: none */
    tt__child_report of[]; /* by rank */
} tt__shared_reports;

/* How all children are started. */
typedef struct tt__child_start {
    tt_spawn_fn fn;
    void *arg;
    int nprocs;
    int threads;   /* for computing; 0: OMP_NUM_THREADS says it */
    sigset_t mask; /* of the thread that starts them */
    int go;        /* eventfd semaphore: raised by one for each child when all are started */
    pid_t parent_pid;
    int parent; /* pidfd of the parent */
    tt__shared_reports *shared;
} tt__child_start;

/* Flush stdio's streams. */
void tt__flush_streams(void);

/* Become child `rank`. All signals are blocked. */
_Noreturn void tt__spawned_child_run(const tt__child_start *start, int rank);

/* ---- processes.c: the parent starts, watches and ends them; join_processes.c waits for them */

enum { TT__KILLED_MS = 10000 /* how long to wait for the end after SIGKILL */ };

typedef struct tt__process {
    int pidfd;
    _Atomic bool over; /* tt_process_context_kill() may come from another thread */
    bool sent;         /* tt__processes_end() sent it a signal while it ran: its end is no cause */
    bool unknown;      /* how it ended is not known */
    int code, sig;     /* its exit code, or the signal that ended it; 0: none */
    int64_t seen_ms;   /* when the parent learned of its end */
} tt__process;

struct tt_process_context {
    pid_t owner;
    int started, running; /* running: of those started, not over */
    tt__process *process; /* by rank */
    int *pids;
    struct pollfd *polls;
    tt__shared_reports *shared;
    size_t shared_size;
    tt_store_server *server; /* of .rendezvous; or NULL */
    tt_process_failure failure;
    tt_status status; /* of the failure; TT_OK: none */
    char signal_name[32], failure_text[TT__REPORT_TEXT_SIZE], error_text[TT__ERROR_TEXT_SIZE];
};

/* Do what tt_start_processes() does. `who`: the public call, which errors name. */
tt_status tt__processes_start(const char *who, const tt_start_processes_args *args);

/* Has this one failed? */
static inline bool tt__process_failed(const tt__process *p) { return p->over && (p->unknown || p->code || p->sig); }

/* Wait until a process ends, at most timeout_ms, and note which ones have. May return earlier. */
void tt__processes_look(tt_process_context *context, int timeout_ms);

/* Send a signal to those that run. */
void tt__processes_signal(tt_process_context *context, int sig);

/* End those that run: SIGTERM, after grace_ms SIGKILL; with grace_ms 0 SIGKILL at once. */
void tt__processes_end(tt_process_context *context, int64_t grace_ms);

#endif
