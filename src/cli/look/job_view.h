/* A job as `tutti top` and `tutti trace` look at it: each rank's latest calls, all on one clock. */
#ifndef TT_CLI_JOB_VIEW_H
#define TT_CLI_JOB_VIEW_H

#include "comm/record/recorder.h"
#include "launch/local/snapshot.h"

#include <stdio.h>

enum { TT__DEVICE_NAME_SIZE = 16 };

/* A call of one rank. Times are ns since 1970 on the clock of rank 0's host. */
typedef struct tt__view_call {
    tt__call_record record;
    int64_t begin_ns;
    int64_t end_ns; /* of a call that is open: now, or the process's end */
    bool open;      /* it has not ended */
    bool on_device; /* a device has measured when it ran there: what follows is valid */
    tt__record_device ran;
    int64_t ran_from_ns, ran_until_ns;
} tt__view_call;

/* A call of one rank to a worker. */
typedef struct tt__view_rpc_call {
    tt__rpc_record record;
    int64_t begin_ns, end_ns; /* as those of a tt__view_call */
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
    tt__recorder *recorder; /* a checked copy; NULL: it never joined, or is unreadable */
    bool unreadable;        /* its recorder is of another version of Tutti */
    tt__view_call *calls;   /* (n), oldest first */
    int n;
    const tt__view_call *current; /* the oldest that is open, or else the last; NULL: none */
    bool waits;                   /* `waiting` and waits_since_ns are valid */
    tt__waiting waiting;
    int64_t waits_since_ns;
    bool averages; /* gradients are averaged: `averaging` is valid */
    tt__averaging averaging;
    bool progresses; /* the program publishes its progress: the next three are valid */
    tt__progress progress;
    double samples_per_s; /* 0: not known */
    int64_t progress_ns;  /* when it was published */
    bool is_worker;       /* it has functions that others call: `worker` is valid */
    tt__rpc_shown worker;
    tt__view_rpc_call *rpc_calls; /* (rpc_n), oldest first */
    int rpc_n;
    bool on_device; /* some call has times of a device */
    int64_t now_ns; /* now, or when the rank ended */
} tt__view_rank;

typedef struct tt__view {
    tt__snapshot snapshot;
    tt__view_rank *ranks; /* (n), by rank */
    int n;
    int64_t now_ns;
} tt__view;

/* Where to look: a job's socket, or a process (and all it shares memory with). */
typedef struct tt__view_source {
    char socket[TT__JOB_NAME_SIZE]; /* "": none, but `pid` */
    pid_t pid;
} tt__view_source;

/* Find the source that the user means by `job` (NULL: the only one) or `pid` (0: none). Errors: TT_ERR_NOT_FOUND, whose
 * text lists the jobs there are. */
tt_status tt__view_find(tt__view_source *source, const char *job, pid_t pid);

tt_status tt__view_take(tt__view *view, const tt__view_source *source);

/* Make a view of a snapshot, which it takes over. */
tt_status tt__view_make(tt__view *view, tt__snapshot *snapshot);

void tt__view_free(tt__view *view);

/* "runs", "stopped", "dead: signal 9 (SIGKILL)", "ended", ... Returns `text`. */
const char *tt__view_state_text(const tt__view_rank *rank, char *text, size_t size);

/* Return the name of a function that workers call. */
const char *tt__view_function(const tt__view_rank *rank, int function);

/* Return the oldest call to a worker that is open; NULL: none. */
const tt__view_rpc_call *tt__view_rpc_open(const tt__view_rank *rank);

/* Write the device, "cuda:0", of a call that is on_device. Returns `text`. */
const char *tt__view_device_name(const tt__view_call *call, char text[TT__DEVICE_NAME_SIZE]);

/* job_view_process.c: add the ranks whose memory process `pid` maps. Errors: TT_ERR_NOT_FOUND, TT_ERR_MEMORY. */
tt_status tt__view_process(tt__snapshot *snapshot, pid_t pid);

/* ---- job_view_sums.c: stragglers, rates, the progress of training */

/* Calls of one group that all its ranks have in their recorders. */
typedef struct tt__view_group {
    uint32_t id;
    const char *ranks;   /* "0-3" */
    int calls;           /* that were compared */
    int last_rank;       /* the rank that came last most often; -1: no calls */
    int last_count;      /* how often */
    int64_t lateness_ns; /* in those calls: the median of how long it came after the median of the others */
} tt__view_group;

/* One collective call as all its ranks saw it. */
typedef struct tt__view_meeting {
    uint32_t group, seq;
    int n;                             /* ranks that have it */
    const tt__view_call *first, *last; /* the first and last to begin */
    int last_rank;
    int64_t lateness_ns;         /* of the last rank, after the median of the others */
    const tt__view_call **calls; /* (view->n), by place in view->ranks; NULL: not there */
} tt__view_meeting;

/* List all collective calls, by group and then sequence number: *meetings (n), released by tt__view_meetings_free(). */
tt_status tt__view_meetings(const tt__view *view, tt__view_meeting **meetings, int *n);
void tt__view_meetings_free(tt__view_meeting *meetings, int n);

/* Infer the ends of calls that were too fast to read the clock at their end. */
tt_status tt__view_infer_ends(tt__view *view);

/* List the groups: *groups (n), the caller's to free(). */
tt_status tt__view_groups(const tt__view *view, tt__view_group **groups, int *n);

/* A rank's rates in the last second, or in the part of it that its recorder remembers. */
typedef struct tt__view_rates {
    double calls_per_s, bytes_per_s;
    double busy;        /* share of the time inside calls, 0 to 1 */
    double device_busy; /* share of the time in which calls ran on the rank's device, as far as that is known */
} tt__view_rates;

tt__view_rates tt__view_rates_of(const tt__view_rank *rank);

/* The progress of a job's training, from what its ranks publish. Zeroed: no rank. */
typedef struct tt__training {
    int ranks;            /* that publish progress */
    tt__progress slowest; /* that of the rank that is least far */
    double loss;          /* the sum of those that are known */
    int losses;           /* how many these are */
    double samples_per_s; /* of all */
} tt__training;

/* Add a rank; `rate`: its samples a second. */
void tt__training_add(tt__training *training, const tt__progress *progress, double rate);

/* "epoch 2/5, step 3/10, loss 0.25, 12.3k samples/s", as far as it is known: the slowest one's step, the mean loss.
 * ranks > 0. Returns `text`. */
const char *tt__training_text(const tt__training *training, char *text, size_t size);

/* "3/10", or "3" where `all` is 0. Returns `text`. */
const char *tt__training_part(int64_t number, int64_t all, char *text, size_t size);

/* "950", "12.3k", "4.5M". Returns `text`. */
const char *tt__short_number(double x, char *text, size_t size);

/* ---- views as text (top_text.c), JSON (top_json.c) and traces (trace_write.c) */

/* How text is laid out. */
typedef struct tt__top_page {
    int columns; /* lines are wrapped to so many; 0: they are not */
    int rows;    /* of a screen, on which the whole should fit; 0: any number */
    bool colours;
} tt__top_page;

/* Write the rank's present or last call: "in all_reduce ..., for 3 s". Returns `text`. */
const char *tt__top_doing_text(const tt__view_rank *rank, char *text, size_t size);

/* Write a view as lines of text, or as one line of JSON. */
tt_status tt__top_text(const tt__view *view, const tt__top_page *page, FILE *out);
tt_status tt__top_json(const tt__view *view, FILE *out);

/* Write the last calls of every rank to `path`, whole or not at all, in Chrome's trace format, which Perfetto reads
 * (https://ui.perfetto.dev): one process per rank, one thread per group (more where asynchronous calls of a group
 * overlap), an arrow from the rank that came last to those that waited for it, all on one clock. Errors: TT_ERR_IO,
 * TT_ERR_MEMORY. */
tt_status tt__trace_write(const tt__view *view, const char *path);

#endif
