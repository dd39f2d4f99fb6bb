/* Collective calls drawn at random, and what must come of them.
 *
 * A drawn call says all that its ranks must agree on; what each of them sends follows from it, so every rank can check
 * its own result alone. Values are few and small: sums and products of eight of them are exact in every element
 * type. */
#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H

#include "support/storm.h"

#include "base/dtype.h"

#include <tutti/backend.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* CALLS_WORLD: most ranks with exact results; CALLS_RANKS: most ranks at all, if results are not checked. */
enum { CALLS_WORLD = 8, CALLS_RANKS = 16, CALLS_GUARD = 32, CALLS_PARTS = 3 };

typedef struct drawn {
    tt_op op;
    tt_dtype dtype;
    tt_reduce_op reduce;
    int root;
    size_t count; /* elements; in an uneven call the most of a part */
    uint64_t salt;
} drawn;

static inline bool drawn_reduces(tt_op op) {
    return op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_REDUCE_SCATTER ||
           op == TT_OP_ALL_REDUCE_COALESCED;
}

static inline bool drawn_has_root(tt_op op) {
    return op == TT_OP_REDUCE || op == TT_OP_BROADCAST || op == TT_OP_GATHER || op == TT_OP_SCATTER;
}

static inline bool drawn_is_uneven(tt_op op) { return op == TT_OP_ALL_GATHER_V || op == TT_OP_ALL_TO_ALL_V; }

static inline bool drawn_is_float(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

static inline tt_reduce_op drawn_reduce_op(uint64_t *state, tt_dtype dtype) {
    static const tt_reduce_op of_floats[] = {TT_SUM, TT_AVG, TT_PRODUCT, TT_MIN, TT_MAX, TT_PREMUL_SUM},
                              of_integers[] = {TT_SUM, TT_PRODUCT, TT_MIN, TT_MAX, TT_BAND, TT_BOR, TT_BXOR};
    return drawn_is_float(dtype) ? of_floats[storm_below(state, 6)] : of_integers[storm_below(state, 7)];
}

/* Any collective, of at most max_bytes a rank and part. */
static inline drawn drawn_call(uint64_t *state, int world, size_t max_bytes) {
    static const tt_op ops[] = {
        TT_OP_BARRIER,   TT_OP_ALL_REDUCE, TT_OP_REDUCE,       TT_OP_REDUCE_SCATTER,
        TT_OP_BROADCAST, TT_OP_ALL_GATHER, TT_OP_ALL_GATHER_V, TT_OP_GATHER,
        TT_OP_SCATTER,   TT_OP_ALL_TO_ALL, TT_OP_ALL_TO_ALL_V, TT_OP_ALL_REDUCE_COALESCED,
    };
    drawn call = {.op = ops[storm_below(state, sizeof ops / sizeof *ops)], .dtype = (tt_dtype)storm_below(state, 10)};
    size_t limit = max_bytes / tt_dtype_size(call.dtype);
    call.reduce = drawn_reduces(call.op) ? drawn_reduce_op(state, call.dtype) : TT_SUM;
    call.root = drawn_has_root(call.op) ? (int)storm_below(state, (size_t)world) : 0;
    call.count = storm_below(state, storm_below(state, 2) ? limit + 1 : 100);
    call.salt = storm_draw(state);
    return call;
}

static inline uint64_t drawn_hash(const drawn *call, uint64_t a, uint64_t b) {
    uint64_t state = call->salt ^ a << 48 ^ b;
    return storm_draw(&state);
}

/* The bytes that rank `from` sends to rank `to` in an uneven call (all_gather_v: to everybody). */
static inline size_t drawn_part(const drawn *call, int from, int to) {
    if (!drawn_is_uneven(call->op))
        return call->count;
    uint64_t both = (uint64_t)from * CALLS_RANKS + (call->op == TT_OP_ALL_TO_ALL_V ? (uint64_t)to : 0);
    return (size_t)(drawn_hash(call, both, UINT64_C(1) << 40) % (call->count + 1));
}

/* Where the part of `from` for `to` begins: in the sender's buffer; in the receiver's. */
static inline size_t drawn_sent_at(const drawn *call, int from, int to) {
    size_t at = 0;
    for (int r = 0; r < to; r++)
        at += drawn_part(call, from, r);
    return at;
}

static inline size_t drawn_got_at(const drawn *call, int from, int to) {
    size_t at = 0;
    for (int r = 0; r < from; r++)
        at += drawn_part(call, r, to);
    return at;
}

/* How many elements rank `rank` sends; receives. Calls in place have only recv. */
static inline size_t drawn_sends(const drawn *call, int rank, int world) {
    switch (call->op) {
    case TT_OP_REDUCE_SCATTER:
    case TT_OP_ALL_TO_ALL:
        return call->count * (size_t)world;
    case TT_OP_SCATTER:
        return rank == call->root ? call->count * (size_t)world : 0;
    case TT_OP_ALL_GATHER:
    case TT_OP_GATHER:
        return call->count;
    case TT_OP_ALL_GATHER_V:
        return drawn_part(call, rank, 0);
    case TT_OP_ALL_TO_ALL_V:
        return drawn_sent_at(call, rank, world);
    default:
        return 0;
    }
}

static inline size_t drawn_gets(const drawn *call, int rank, int world) {
    switch (call->op) {
    case TT_OP_ALL_GATHER:
    case TT_OP_ALL_TO_ALL:
        return call->count * (size_t)world;
    case TT_OP_GATHER:
        return rank == call->root ? call->count * (size_t)world : 0;
    case TT_OP_ALL_GATHER_V:
    case TT_OP_ALL_TO_ALL_V:
        return drawn_got_at(call, world, rank);
    case TT_OP_BARRIER:
        return 0;
    default:
        return call->count;
    }
}

static inline bool drawn_in_place(tt_op op) {
    return op == TT_OP_ALL_REDUCE || op == TT_OP_REDUCE || op == TT_OP_BROADCAST || op == TT_OP_ALL_REDUCE_COALESCED;
}

/* ---- elements */

/* x, which is -1, 1 or 2, as an element of this type holds it. */
static inline int64_t drawn_held(int64_t x, tt_dtype dtype) {
    return dtype == TT_U8     ? (uint8_t)x
           : dtype == TT_I8   ? (int8_t)x
           : dtype == TT_I16  ? (int16_t)x
           : dtype == TT_BOOL ? x & 1
                              : x;
}

static inline int64_t drawn_value(const drawn *call, int rank, size_t i) {
    static const int64_t values[] = {-1, 1, 2, 1};
    return drawn_held(values[drawn_hash(call, (uint64_t)rank, i) & 3], call->dtype);
}

static inline void drawn_put(void *buf, size_t i, tt_dtype dtype, int64_t x) {
    switch (dtype) {
    case TT_F32:
        ((float *)buf)[i] = (float)x;
        break;
    case TT_F64:
        ((double *)buf)[i] = (double)x;
        break;
    case TT_I32:
        ((int32_t *)buf)[i] = (int32_t)x;
        break;
    case TT_I64:
        ((int64_t *)buf)[i] = x;
        break;
    case TT_F16:
        ((uint16_t *)buf)[i] = tt__f16_of_float((float)x);
        break;
    case TT_BF16:
        ((uint16_t *)buf)[i] = tt__bf16_of_float((float)x);
        break;
    case TT_I16:
        ((int16_t *)buf)[i] = (int16_t)x;
        break;
    case TT_U8:
    case TT_I8:
    case TT_BOOL:
        ((uint8_t *)buf)[i] = (uint8_t)x;
        break;
    }
}

static inline double drawn_get(const void *buf, size_t i, tt_dtype dtype) {
    switch (dtype) {
    case TT_F32:
        return (double)((const float *)buf)[i];
    case TT_F64:
        return ((const double *)buf)[i];
    case TT_I32:
        return ((const int32_t *)buf)[i];
    case TT_I64:
        return (double)((const int64_t *)buf)[i];
    case TT_F16:
        return (double)tt__float_of_f16(((const uint16_t *)buf)[i]);
    case TT_BF16:
        return (double)tt__float_of_bf16(((const uint16_t *)buf)[i]);
    case TT_I8:
        return ((const int8_t *)buf)[i];
    case TT_I16:
        return ((const int16_t *)buf)[i];
    case TT_U8:
    case TT_BOOL:
        return ((const uint8_t *)buf)[i];
    }
    return NAN;
}

static inline int64_t drawn_combined(int64_t a, int64_t b, tt_dtype dtype, tt_reduce_op op) {
    if (dtype == TT_BOOL)
        return op == TT_SUM || op == TT_MAX || op == TT_BOR ? a | b : op == TT_BXOR ? a ^ b : a & b;
    switch (op) {
    case TT_PRODUCT:
        return drawn_held(a * b, dtype);
    case TT_MIN:
        return a < b ? a : b;
    case TT_MAX:
        return a > b ? a : b;
    case TT_BAND:
        return a & b;
    case TT_BOR:
        return a | b;
    case TT_BXOR:
        return a ^ b;
    default:
        return drawn_held(a + b, dtype);
    }
}

/* The factor of TT_PREMUL_SUM. */
static inline double drawn_factor(int rank) { return rank + 1; }

static inline double drawn_reduced(const drawn *call, int world, size_t i) {
    int64_t premul = call->reduce == TT_PREMUL_SUM, all = drawn_value(call, 0, i);
    for (int r = 1; r < world; r++)
        all = drawn_combined(all, drawn_value(call, r, i) * (premul ? r + 1 : 1), call->dtype, call->reduce);
    return call->reduce == TT_AVG ? (double)all / world : (double)all;
}

/* The expected element i of rank's recv. */
static inline double drawn_expected(const drawn *call, int rank, int world, size_t i) {
    size_t mine = (size_t)rank * call->count;
    switch (call->op) {
    case TT_OP_ALL_REDUCE:
    case TT_OP_ALL_REDUCE_COALESCED:
        return drawn_reduced(call, world, i);
    case TT_OP_REDUCE:
        return rank == call->root ? drawn_reduced(call, world, i) : (double)drawn_value(call, rank, i);
    case TT_OP_REDUCE_SCATTER:
        return drawn_reduced(call, world, mine + i);
    case TT_OP_BROADCAST:
        return (double)drawn_value(call, call->root, i);
    case TT_OP_SCATTER:
        return (double)drawn_value(call, call->root, mine + i);
    case TT_OP_ALL_TO_ALL:
        return (double)drawn_value(call, (int)(i / call->count), mine + i % call->count);
    case TT_OP_ALL_GATHER:
    case TT_OP_GATHER:
        return (double)drawn_value(call, (int)(i / call->count), i % call->count);
    default: { /* uneven */
        int from = 0;
        while (i >= drawn_part(call, from, rank))
            i -= drawn_part(call, from++, rank);
        return (double)drawn_value(call, from,
                                   (call->op == TT_OP_ALL_TO_ALL_V ? drawn_sent_at(call, from, rank) : 0) + i);
    }
    }
}

static inline double drawn_tolerance(const drawn *call) {
    if (call->reduce != TT_AVG)
        return 0;
    return call->dtype == TT_BF16 ? 0.02 : call->dtype == TT_F16 ? 0.003 : 1e-5;
}

/* ---- making it */

/* Buffers of one rank for one call, each at least drawn_bytes() large. */
static inline size_t drawn_bytes(int world, size_t max_bytes) { return max_bytes * (size_t)world + CALLS_GUARD; }

static inline void drawn_fill(const drawn *call, int rank, int world, void *send, void *recv) {
    size_t sends = drawn_sends(call, rank, world), gets = drawn_gets(call, rank, world),
           size = tt_dtype_size(call->dtype);
    for (size_t i = 0; i < sends; i++)
        drawn_put(send, i, call->dtype, drawn_value(call, rank, i));
    if (drawn_in_place(call->op))
        for (size_t i = 0; i < gets; i++)
            drawn_put(recv, i, call->dtype, drawn_value(call, rank, i));
    else
        memset(recv, 0xee, gets * size);
    memset((char *)recv + gets * size, 0xa5, CALLS_GUARD);
}

/* "" if the result is right, else what is wrong. */
static inline const char *drawn_check(const drawn *call, int rank, int world, const void *recv, char *text,
                                      size_t size) {
    size_t gets = drawn_gets(call, rank, world), stride = gets > 3000 ? 37 : 1;
    for (size_t i = 0; i < gets; i = i + stride < gets || i == gets - 1 ? i + stride : gets - 1) {
        double want = drawn_expected(call, rank, world, i), have = drawn_get(recv, i, call->dtype);
        if (!(fabs(want - have) <= drawn_tolerance(call))) {
            snprintf(text, size, "element %zu of %zu is %g instead of %g", i, gets, have, want);
            return text;
        }
    }
    for (size_t i = 0; i < CALLS_GUARD; i++)
        if (((const unsigned char *)recv)[gets * tt_dtype_size(call->dtype) + i] != 0xa5)
            return "something was written behind the result";
    return "";
}

static inline void drawn_print(const drawn *call, const char *where) {
    fprintf(stderr, "%s: %s(%s x %zu, %s, root %d)\n", where, tt_op_name(call->op), tt_dtype_name(call->dtype),
            call->count, tt_reduce_op_name(call->reduce), call->root);
}

static inline tt_status drawn_make_uneven(tt_group *group, const drawn *call, int rank, int world, const void *send,
                                          void *recv, tt_work **work) {
    int64_t send_counts[CALLS_RANKS], recv_counts[CALLS_RANKS];
    for (int r = 0; r < world; r++) {
        send_counts[r] = (int64_t)drawn_part(call, rank, r);
        recv_counts[r] = (int64_t)drawn_part(call, r, rank);
    }
    if (call->op == TT_OP_ALL_GATHER_V)
        return tt_all_gather_v(group, send, recv, recv_counts, NULL, call->dtype, .work = work);
    return tt_all_to_all_v(group, send, send_counts, NULL, recv, recv_counts, NULL, call->dtype, .work = work);
}

static inline tt_status drawn_make_coalesced(tt_group *group, const drawn *call, int rank, void *recv, tt_work **work) {
    void *bufs[CALLS_PARTS];
    size_t third = call->count / CALLS_PARTS, size = tt_dtype_size(call->dtype);
    int64_t counts[CALLS_PARTS];
    for (size_t i = 0; i < CALLS_PARTS; i++) {
        bufs[i] = (char *)recv + i * third * size;
        counts[i] = (int64_t)(i + 1 < CALLS_PARTS ? third : call->count - i * third);
    }
    return tt_all_reduce_coalesced(group, bufs, counts, CALLS_PARTS, call->dtype, call->reduce,
                                   .factor = drawn_factor(rank), .work = work);
}

/* work: NULL = synchronous. */
static inline tt_status drawn_make(tt_group *group, const drawn *call, int rank, int world, const void *send,
                                   void *recv, tt_work **work) {
    size_t n = call->count;
    tt_dtype dtype = call->dtype;
    switch (call->op) {
    case TT_OP_BARRIER:
        return tt_barrier(group, .work = work);
    case TT_OP_ALL_REDUCE:
        return tt_all_reduce(group, recv, n, dtype, call->reduce, .factor = drawn_factor(rank), .work = work);
    case TT_OP_REDUCE:
        return tt_reduce(group, recv, n, dtype, call->reduce, call->root, .factor = drawn_factor(rank), .work = work);
    case TT_OP_REDUCE_SCATTER:
        return tt_reduce_scatter(group, send, recv, n, dtype, call->reduce, .factor = drawn_factor(rank), .work = work);
    case TT_OP_BROADCAST:
        return tt_broadcast(group, recv, n, dtype, call->root, .work = work);
    case TT_OP_ALL_GATHER:
        return tt_all_gather(group, send, recv, n, dtype, .work = work);
    case TT_OP_GATHER:
        return tt_gather(group, send, recv, n, dtype, call->root, .work = work);
    case TT_OP_SCATTER:
        return tt_scatter(group, send, recv, n, dtype, call->root, .work = work);
    case TT_OP_ALL_TO_ALL:
        return tt_all_to_all(group, send, recv, n, dtype, .work = work);
    case TT_OP_ALL_REDUCE_COALESCED:
        return drawn_make_coalesced(group, call, rank, recv, work);
    default:
        return drawn_make_uneven(group, call, rank, world, send, recv, work);
    }
}

#endif
