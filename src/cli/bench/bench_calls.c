/* The operations of `tutti bench`, each as one call on prepared buffers, and their times. */
#include "cli/bench/bench.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <stdlib.h>
#include <string.h>

#define CALL(name) static tt_status call_##name(tt__bench_buffers *b, int64_t count, tt_work **work)

static int next_root(tt__bench_buffers *b) { return (int)(b->calls++ % (unsigned)tt_get_world_size(b->group)); }

CALL(all_reduce) { return tt_all_reduce(b->group, b->send, count, b->dtype, b->op, .factor = 0.5, .work = work); }

CALL(all_reduce_coalesced) {
    int64_t quarter = count / 4, size = (int64_t)tt_dtype_size(b->dtype);
    int64_t counts[4] = {quarter, quarter, quarter, count - 3 * quarter};
    void *bufs[4];
    for (int i = 0; i < 4; i++)
        bufs[i] = b->send + i * quarter * size;
    return tt_all_reduce_coalesced(b->group, bufs, counts, 4, b->dtype, b->op, .factor = 0.5, .work = work);
}

CALL(reduce) { return tt_reduce(b->group, b->send, count, b->dtype, b->op, next_root(b), .factor = 0.5, .work = work); }

CALL(reduce_scatter) {
    return tt_reduce_scatter(b->group, b->send, b->recv, count, b->dtype, b->op, .factor = 0.5, .work = work);
}

CALL(broadcast) { return tt_broadcast(b->group, b->send, count, b->dtype, next_root(b), .work = work); }

CALL(all_gather) { return tt_all_gather(b->group, b->send, b->recv, count, b->dtype, .work = work); }

CALL(all_gather_v) {
    (void)count;
    return tt_all_gather_v(b->group, b->send, b->recv, b->counts, NULL, b->dtype, .work = work);
}

CALL(gather) { return tt_gather(b->group, b->send, b->recv, count, b->dtype, next_root(b), .work = work); }

CALL(scatter) { return tt_scatter(b->group, b->send, b->recv, count, b->dtype, next_root(b), .work = work); }

CALL(all_to_all) { return tt_all_to_all(b->group, b->send, b->recv, count, b->dtype, .work = work); }

CALL(all_to_all_v) {
    (void)count;
    return tt_all_to_all_v(b->group, b->send, b->send_counts, NULL, b->recv, b->counts, NULL, b->dtype, .work = work);
}

CALL(barrier) {
    (void)count;
    return tt_barrier(b->group, .work = work);
}

/* Half a round trip between ranks 0 and 1, 2 and 3, ...: with `work` both directions at once. */
CALL(send_recv) {
    int rank = tt_get_rank(b->group), peer = rank ^ 1;
    if (peer >= tt_get_world_size(b->group))
        return TT_OK;
    const tt_p2p_op both[2] = {tt_recv_op(b->recv, count, b->dtype, peer), tt_send_op(b->send, count, b->dtype, peer)};
    if (work)
        return tt_batch_isend_irecv(b->group, both, 2, .work = work);
    for (int i = 0; i < 2; i++)
        TT__TRY((i ^ rank) & 1 ? tt_recv(b->group, b->recv, count, b->dtype, peer)
                               : tt_send(b->group, b->send, count, b->dtype, peer));
    return TT_OK;
}

static const tt__bench_call calls[] = {
    {"all_reduce", "op over all ranks, on all", true, false, 1, 0, call_all_reduce},
    {"all_reduce_coalesced", "the same of four buffers in one call", true, false, 1, 0, call_all_reduce_coalesced},
    {"reduce", "op over all ranks, on the root", true, false, 1, 0, call_reduce},
    {"reduce_scatter", "op over all ranks, each a part", true, false, TT__BENCH_WORLD, 1, call_reduce_scatter},
    {"broadcast", "from the root to all", false, false, 1, 0, call_broadcast},
    {"all_gather", "every rank's block to all", false, false, 1, TT__BENCH_WORLD, call_all_gather},
    {"all_gather_v", "the same, uneven blocks", false, true, 1, TT__BENCH_WORLD, call_all_gather_v},
    {"gather", "every rank's block to the root", false, false, 1, TT__BENCH_WORLD, call_gather},
    {"scatter", "the root's blocks to all", false, false, TT__BENCH_WORLD, 1, call_scatter},
    {"all_to_all", "a block from each to each", false, false, TT__BENCH_WORLD, TT__BENCH_WORLD, call_all_to_all},
    {"all_to_all_v", "the same, uneven blocks", false, true, TT__BENCH_WORLD, TT__BENCH_WORLD, call_all_to_all_v},
    {"barrier", "of all ranks", false, false, 0, 0, call_barrier},
    {"send_recv", "there and back between two ranks; --async: both at once", false, false, 1, 1, call_send_recv},
};
enum { CALLS = sizeof calls / sizeof *calls };

const tt__bench_call *tt__bench_call_at(int i) { return i < CALLS ? &calls[i] : NULL; }

static tt_status make_one(tt__bench_buffers *b, size_t bytes, unsigned char **out) {
    void *p = NULL;
    if (!b->plain) {
        tt_status status = tt_group_alloc(&p, b->group, bytes);
        *out = p;
        return status;
    }
    p = calloc(1, bytes ? bytes : 1);
    *out = p;
    return p ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes", bytes);
}

/* Return the bytes of `blocks` blocks. Uneven ones are up to half as long again, and rounded up to elements. */
static size_t bytes_of_blocks(const tt__bench_call *call, int blocks, size_t bytes, size_t world) {
    size_t all = blocks == TT__BENCH_WORLD ? world * bytes : (size_t)blocks * bytes;
    return call->uneven ? all + all / 2 + 8 * world : all;
}

tt_status tt__bench_buffers_make(tt__bench_buffers *b, const tt__bench_call *call, size_t bytes) {
    size_t world = (size_t)tt_get_world_size(b->group);
    b->counts = calloc(world, sizeof *b->counts);
    b->send_counts = calloc(world, sizeof *b->send_counts);
    if (!b->counts || !b->send_counts)
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu counts", world);
    TT__TRY(make_one(b, bytes_of_blocks(call, call->send_blocks, bytes, world), &b->send));
    return make_one(b, bytes_of_blocks(call, call->recv_blocks, bytes, world), &b->recv);
}

/* Return the count that rank r sends to each: half as much again from even ranks, half as much from odd ones. */
static int64_t uneven_count(int r, int64_t count) { return r % 2 ? count - count / 2 : count + count / 2; }

/* Set the counts for calls of `count`. Uneven ones are around it. */
static void set_counts(tt__bench_buffers *b, int64_t count) {
    for (int r = 0; r < tt_get_world_size(b->group); r++) {
        b->counts[r] = uneven_count(r, count);
        b->send_counts[r] = uneven_count(tt_get_rank(b->group), count);
    }
}

void tt__bench_buffers_release(tt__bench_buffers *b) {
    if (b->plain) { /* symmetric memory ends with the group */
        free(b->send);
        free(b->recv);
    }
    free(b->counts);
    free(b->send_counts);
    b->send = b->recv = NULL;
    b->counts = b->send_counts = NULL;
}

/* ---- time ---- */

enum { WARM_UP = 3 };
static const int64_t most_calls = 50000; /* in a repetition */

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

/* Choose how many calls take about repetition_ns, as rank 0 measures it: with a few calls, then with more, because a
 * few are not representative. */
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
    set_counts(b, count);
    TT__TRY(choose_iterations(call, b, count, times, &n));
    for (int i = 0; i < TT__BENCH_REPETITIONS; i++) {
        TT__TRY(repeat_calls(call, b, count, times->async, n, &ns));
        usec[i] = (double)ns / 1e3 / (double)n / (round_trip ? 2 : 1);
    }
    tt__bench_sort(usec, TT__BENCH_REPETITIONS);
    return TT_OK;
}
