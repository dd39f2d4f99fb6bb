/* The parent's side of processes that it has started, and what start and join are made of. */
#ifndef TT_SPAWN_PROCESS_CONTEXT_H
#define TT_SPAWN_PROCESS_CONTEXT_H

#include "spawn/child_report.h"

#include <tutti/spawn.h>
#include <tutti/store.h>

#include <poll.h>
#include <sys/types.h>

enum { TT__KILLED_MS = 10000 /* how long the end may take that SIGKILL brings */ };

typedef struct tt__process {
    int pidfd;
    _Atomic bool over; /* tt_process_context_kill() may come from another thread */
    bool sent;         /* a signal by tt__processes_end() before it was over: its end is no cause */
    bool unknown;      /* how it ended */
    int code, sig;     /* its exit code, or the signal that ended it; 0: none */
    int64_t seen_ms;   /* when the parent learned of its end */
} tt__process;

/* What children share with the parent. */
typedef struct tt__shared_reports {
    _Atomic int port;
    tt__child_report of[];
} tt__shared_reports;

struct tt_process_context {
    pid_t owner;
    int started, running; /* of them: not over */
    tt__process *process; /* by rank */
    int *pids;
    struct pollfd *polls;
    tt__shared_reports *shared;
    size_t shared_size;
    tt_store_server *server; /* NULL: they don't meet through one */
    tt_process_failure failure;
    tt_status status; /* of the failure; TT_OK: none */
    char signal_name[32], failure_text[TT__REPORT_TEXT_SIZE], error_text[TT__ERROR_TEXT_SIZE];
};

/* Make a context for `nprocs` processes, none of which is started. NULL and an error: there is no memory. */
tt_process_context *tt__process_context_new(int nprocs);

/* tt_start_processes() for the public call `who`, which errors name. */
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
