/* The operations of `tutti bench`, each as one call on prepared buffers. */
#include "cli/bench/bench_calls.h"

#include "base/error.h"
#include "base/parse.h"

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

const tt__bench_call *tt__bench_call_named(const char *name) {
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(calls[i].name, name))
            return &calls[i];
    return NULL;
}

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

/* Count the bytes of `blocks` blocks; uneven ones are up to half as long again, and rounded up to elements. */
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

void tt__bench_buffers_set(tt__bench_buffers *b, int64_t count) {
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

tt_status tt__bench_parse_size(char *text, size_t *bytes) {
    static const char suffixes[] = "KMG";
    size_t n = strlen(text);
    const char *suffix = n ? strchr(suffixes, text[n - 1]) : NULL;
    int64_t value;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (suffix)
        text[n - 1] = '\0';
    tt_status status = tt__parse_i64("--sizes", text, 1, (INT64_C(1) << 40) >> shift, &value);
    if (!status)
        *bytes = (size_t)value << shift;
    return status;
}
