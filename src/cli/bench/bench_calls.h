/* What `tutti bench` can call: one row an operation, and the buffers it works on. */
#ifndef TT_CLI_BENCH_CALLS_H
#define TT_CLI_BENCH_CALLS_H

#include <tutti/comm.h>

/* One rank's buffers, for calls of up to `bytes`. */
typedef struct tt__bench_buffers {
    tt_group *group;
    tt_dtype dtype;
    tt_reduce_op op;
    unsigned char *send, *recv;    /* the same where the operation works in place */
    int64_t *counts, *send_counts; /* (world): of uneven ones, for the present size */
    bool plain;
    unsigned calls; /* so far: roots take turns, so that a call can't begin before the one before it came to its root */
} tt__bench_buffers;

typedef struct tt__bench_call {
    const char *name; /* "all_reduce" */
    const char *what;
    bool reduces, uneven;
    int send_blocks,
        recv_blocks; /* of the size that is measured: 0, 1, or TT__BENCH_WORLD: as many as ranks. In place: send only */
    tt_status (*call)(tt__bench_buffers *b, int64_t count, tt_work **work);
} tt__bench_call;

enum { TT__BENCH_WORLD = -1 };

/* Find a call by its name; NULL if there is none. */
const tt__bench_call *tt__bench_call_named(const char *name);
const tt__bench_call *tt__bench_call_at(int i);

/* Make buffers for calls of up to `bytes`; release them also after a failure. */
tt_status tt__bench_buffers_make(tt__bench_buffers *b, const tt__bench_call *call, size_t bytes);
void tt__bench_buffers_release(tt__bench_buffers *b);

/* ---- time */

enum { TT__BENCH_REPETITIONS = 5, TT__BENCH_WINDOW = 4 };

typedef struct tt__bench_times {
    bool async;            /* TT__BENCH_WINDOW calls under way at a time */
    int64_t iterations;    /* calls in a repetition; 0: */
    int64_t repetition_ns; /* as many as take about so long */
} tt__bench_times;

/* Measure a call. usec (TT__BENCH_REPETITIONS): of one call each, the fastest first. All ranks call it alike; each gets
 * its own times. */
tt_status tt__bench_time(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, const tt__bench_times *times,
                         double *usec);

/* Sort values (n), the smallest first. */
void tt__bench_sort(double *values, size_t n);

#endif
