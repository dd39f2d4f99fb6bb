/* A job as `tutti top` and `tutti trace` look at it: each rank's latest calls, all on one clock. */
#ifndef TT_CLI_JOB_VIEW_H
#define TT_CLI_JOB_VIEW_H

#include "comm/record/recorder.h"
#include "launch/local/snapshot.h"

enum { TT__DEVICE_NAME_SIZE = 16 };

/* A call of one rank. Times are ns since 1970 on the clock of rank 0's host. */
typedef struct tt__view_call {
    tt__call_record record;
    int64_t begin_ns;
    int64_t end_ns; /* DONE or FAILED: when; otherwise up to when it was under way: now, or the process's end */
    bool open;      /* it has not ended */
    bool on_device; /* a device has measured when it ran there: */
    tt__record_device ran;
    int64_t ran_from_ns, ran_until_ns;
} tt__view_call;

/* A call of one rank to a worker. */
typedef struct tt__view_rpc_call {
    tt__rpc_record record;
    int64_t begin_ns, end_ns; /* as of a call */
    bool open;
} tt__view_rpc_call;

typedef enum tt__view_state {
    TT__VIEW_STARTING,
    TT__VIEW_RUNS,
    TT__VIEW_STOPPED, /* by a signal or a debugger */
    TT__VIEW_ENDED,   /* rank.wait_status says how */
    TT__VIEW_GONE     /* the process that was seen is no more; its parent has not said how */
} tt__view_state;

typedef struct tt__view_rank {
    tt__job_rank rank;
    tt__view_state state;
    tt__recorder *recorder; /* a checked copy; NULL: it never joined, */
    bool unreadable;        /* or its recorder is not of this version */
    tt__view_call *calls;   /* (n), oldest first */
    int n;
    const tt__view_call *current; /* the oldest that is open, or else the last; NULL: none */
    bool waits;                   /* `waiting` is valid, */
    tt__waiting waiting;
    int64_t waits_since_ns; /* and this */
    bool averages;          /* gradients are averaged: `averaging` is valid */
    tt__averaging averaging;
    bool progresses; /* the program says how far its training is: `progress` is valid, */
    tt__progress progress;
    double samples_per_s; /* (0: not known) */
    int64_t progress_ns;  /* and when it said so */
    bool is_worker;       /* it has functions that others call: `worker` is valid */
    tt__rpc_shown worker;
    tt__view_rpc_call *rpc_calls; /* (rpc_n), oldest first */
    int rpc_n;
    bool on_device; /* any call has times of a device */
    int64_t now_ns; /* or when it ended */
} tt__view_rank;

typedef struct tt__view {
    tt__snapshot snapshot;
    tt__view_rank *ranks; /* (n), by rank */
    int n;
    int64_t now_ns;
} tt__view;

/* Where to look: a job's socket, or a process (and all it shares memory with). */
typedef struct tt__view_source {
    char socket[TT__JOB_NAME_SIZE]; /* "": no launcher, */
    pid_t pid;                      /* but this process */
} tt__view_source;

/* Find the source that the user means by `job` (NULL: the only one) or `pid` (0: none). Errors: TT_ERR_NOT_FOUND, with
 * a list of the jobs there are. */
tt_status tt__view_find(tt__view_source *source, const char *job, pid_t pid);

tt_status tt__view_take(tt__view *view, const tt__view_source *source);

/* Make a view of a snapshot, which it takes over. */
tt_status tt__view_make(tt__view *view, tt__snapshot *snapshot);

void tt__view_free(tt__view *view);

/* "runs", "stopped", "dead: signal 9 (SIGKILL)", "ended", ... Returns `text`. */
const char *tt__view_state_text(const tt__view_rank *rank, char *text, size_t size);

/* The name of a function of RPC. */
const char *tt__view_function(const tt__view_rank *rank, int function);

/* The oldest call to a worker that is open; NULL: none. */
const tt__view_rpc_call *tt__view_rpc_open(const tt__view_rank *rank);

/* "cuda:0" of a call that has `ran`. Returns `text`. */
const char *tt__view_device_name(const tt__view_call *call, char text[TT__DEVICE_NAME_SIZE]);

/* Read the recorders that process `pid` shares memory with: job_view_process.c. */
tt_status tt__view_process(tt__snapshot *snapshot, pid_t pid);

/* ---- stragglers */

/* Calls of one group that all its ranks have in their recorders. */
typedef struct tt__view_group {
    uint32_t id;
    const char *ranks;   /* "0-3" */
    int calls;           /* that were compared */
    int last_rank;       /* the rank that came last most often, -1: none (no calls), */
    int last_count;      /* how often, */
    int64_t lateness_ns; /* and the median of its lateness, after the median of the others, in those calls */
} tt__view_group;

/* One collective call as all its ranks saw it. */
typedef struct tt__view_meeting {
    uint32_t group, seq;
    int n;                             /* ranks that have it */
    const tt__view_call *first, *last; /* to begin it */
    int last_rank;
    int64_t lateness_ns;         /* of the last rank, after the median of the others */
    const tt__view_call **calls; /* (view->n), by place in view->ranks; NULL: not there */
} tt__view_meeting;

/* List all collective calls, by group and then sequence number: *meetings (n), ended by tt__view_meetings_free(). */
tt_status tt__view_meetings(const tt__view *view, tt__view_meeting **meetings, int *n);
void tt__view_meetings_free(tt__view_meeting *meetings, int n);

/* Infer the ends of calls that were too fast to read the clock. */
tt_status tt__view_infer_ends(tt__view *view);

/* List the groups: *groups (n), the caller's to free(). */
tt_status tt__view_groups(const tt__view *view, tt__view_group **groups, int *n);

/* What a rank did in the last second, or in as much of it as its recorder remembers. */
typedef struct tt__view_rates {
    double calls_per_s, bytes_per_s;
    double busy;        /* share of the time inside calls, 0 to 1 */
    double device_busy; /* and of that in which calls ran on the rank's device, as far as that is known */
} tt__view_rates;

tt__view_rates tt__view_rates_of(const tt__view_rank *rank);

#endif
