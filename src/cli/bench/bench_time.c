/* Timing of calls, by repetition. */
#include "base/clock.h"
#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_calls.h"
#include "cli/bench/spawn.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3 };
static const int64_t most_calls = 50000; /* in a repetition */

void tt__bench_pin_to(int rank, int ranks) {
    cpu_set_t mine, one;
    if (sched_getaffinity(0, sizeof mine, &mine) || CPU_COUNT(&mine) < ranks)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0, n = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && n++ == rank)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        fprintf(stderr, "tutti bench: rank %d could not be tied to a CPU\n", rank);
}

void tt__bench_pin(void) {
    const char *rank = getenv("LOCAL_RANK"), *world = getenv("LOCAL_WORLD_SIZE");
    if (rank && world)
        tt__bench_pin_to(atoi(rank), atoi(world));
}

bool tt__bench_is_member(void) {
    return tt__bench_is_rank() || getenv("RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void tt__bench_sort(double *values, size_t n) { qsort(values, n, sizeof *values, by_value); }

static tt_status repeat_sync(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, int64_t n) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < n && !status; i++)
        status = call->call(b, count, NULL);
    return status;
}

static tt_status repeat_async(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, int64_t n) {
    tt_work *works[TT__BENCH_WINDOW] = {NULL};
    tt_status status = TT_OK;
    for (int64_t i = 0; i < n + TT__BENCH_WINDOW && !status; i++) {
        tt_work **work = &works[i % TT__BENCH_WINDOW];
        status = *work ? tt_work_wait(*work) : TT_OK;
        tt_work_free(*work);
        *work = NULL;
        if (!status && i < n)
            status = call->call(b, count, work);
    }
    for (int i = 0; i < TT__BENCH_WINDOW; i++)
        tt_work_free(works[i]);
    return status;
}

static tt_status repeat_calls(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, bool async, int64_t n,
                              int64_t *ns) {
    TT__TRY(tt_barrier(b->group));
    int64_t start = tt__now_ns();
    TT__TRY(async ? repeat_async(call, b, count, n) : repeat_sync(call, b, count, n));
    *ns = tt__now_ns() - start;
    return TT_OK;
}

/* Choose how many calls take about so long, as rank 0 measures it: first with a few, then with more, since a few are
 * not representative. */
static tt_status choose_iterations(const tt__bench_call *call, tt__bench_buffers *b, int64_t count,
                                   const tt__bench_times *times, int64_t *n) {
    int64_t ns, calls = WARM_UP, want;
    for (;;) {
        TT__TRY(repeat_calls(call, b, count, times->async, calls, &ns));
        TT__TRY(tt_broadcast(b->group, &ns, 1, TT_I64, 0));
        if (times->iterations || ns >= times->repetition_ns / 8 || calls == most_calls)
            break;
        calls = calls * 4 < most_calls ? calls * 4 : most_calls;
    }
    want = ns > 0 ? calls * times->repetition_ns / ns : most_calls;
    *n = times->iterations ? times->iterations : want < 5 ? 5 : want > most_calls ? most_calls : want;
    return TT_OK;
}

tt_status tt__bench_time(const tt__bench_call *call, tt__bench_buffers *b, int64_t count, const tt__bench_times *times,
                         double *usec) {
    int64_t n = 0, ns = 0;
    bool round_trip = !strcmp(call->name, "send_recv") && !times->async;
    tt__bench_buffers_set(b, count);
    TT__TRY(choose_iterations(call, b, count, times, &n));
    for (int i = 0; i < TT__BENCH_REPETITIONS; i++) {
        TT__TRY(repeat_calls(call, b, count, times->async, n, &ns));
        usec[i] = (double)ns / 1e3 / (double)n / (round_trip ? 2 : 1);
    }
    tt__bench_sort(usec, TT__BENCH_REPETITIONS);
    return TT_OK;
}
