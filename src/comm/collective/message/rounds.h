/* What algorithms on messages are made of: rounds, memory, partial results, units that halve, blocks. At the end, the
 * algorithms.
 *
 * A round is a set of sends and receives; it is over when all of them are done. A round's messages are posted in two
 * portions. `early` posts those that don't depend on the round before, while that is still under way: so a peer's data
 * never wait for this rank to ask for them. `post` posts the rest. `take` uses what has arrived. So the order is, with
 * | for "all of the round is done",
 *
 *   early(0) post(0) early(1) | take(0) post(1) early(2) | take(1) post(2) early(3) | ...
 *
 * and memory that early(r+1) receives into must not be used by take(r): two areas, used in turn, are enough.
 *
 * Messages of a round may overtake each other; `step` tells those between the same two ranks apart. Messages of no
 * bytes are sent, too: they carry the word by which ranks detect calls that differ. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_ROUNDS_H
#define TT_COMM_COLLECTIVE_MESSAGE_ROUNDS_H

#include "comm/native_group.h"

#include <tutti/backend.h>

#include <stdbool.h>
#include <string.h>

typedef struct tt__rounds {
    tt_status (*plan)(tt_work *work); /* ends with tt__rounds_plan() */
    void (*early)(tt_work *work, uint32_t round);
    void (*post)(tt_work *work, uint32_t round);
    void (*take)(tt_work *work, uint32_t round); /* each of these three may be NULL */
} tt__rounds;

/* What rounds keep in work->state; an algorithm's own variables follow it in one struct. */
typedef struct tt__round_state {
    uint32_t count;   /* rounds */
    uint32_t room;    /* messages a round may have */
    uint32_t used[2]; /* messages of rounds with even and odd numbers */
} tt__round_state;

/* Plan `count` rounds of at most `room` messages. TT_ERR_MEMORY. */
tt_status tt__rounds_plan(tt_work *work, uint32_t count, uint32_t room);

void tt__round_send(tt_work *work, uint32_t round, int to, uint32_t step, const void *data, size_t bytes);
void tt__round_recv(tt_work *work, uint32_t round, int from, uint32_t step, void *data, size_t bytes);

/* The machine. */
tt__next tt__rounds_next(tt_work *work, const tt__rounds *rounds);

/* Return the elements of one segment, where `streams` of them are in memory at a time. Long buffers go segment by
 * segment, so that one is reduced while the next is on its way, and what was received is still in the cache. */
size_t tt__segment(size_t count, size_t size, int streams);

/* Count the segments, at least 1. */
static inline uint32_t tt__segments(size_t count, size_t segment) {
    return count ? (uint32_t)((count + segment - 1) / segment) : 1;
}

/* Return the elements of segment s. */
static inline size_t tt__segment_count(size_t count, size_t segment, uint32_t s) {
    size_t at = (size_t)s * segment;
    return at >= count ? 0 : count - at < segment ? count - at : segment;
}

/* Return the rank i places after (or, if negative, before) this one. */
static inline int tt__neighbour(const tt_group *group, int i) {
    return ((group->rank + i) % group->size + group->size) % group->size;
}

/* Return the least k with 2^k >= n. */
static inline int tt__log2_ceil(int n) {
    int k = 0;
    while ((1 << k) < n)
        k++;
    return k;
}

/* ---- memory
 *
 * The buffers of a coalesced call are packed one after the other at the beginning of the work's scratch memory; every
 * algorithm of all_reduce runs on that. */

/* Allocate the machine's memory in the work's scratch memory; once, in the plan. TT_ERR_MEMORY. */
tt_status tt__machine_scratch(tt_work *work, size_t bytes);
unsigned char *tt__machine_memory(const tt_work *work);

/* The buffer that is reduced in place: the call's own, or of a coalesced one the packed ones (`data` is valid after
 * tt__machine_scratch()). */
typedef struct tt__operand {
    unsigned char *data;
    size_t count;
} tt__operand;
tt__operand tt__operand_of(const tt_work *work);

/* ---- partial results
 *
 * Ranks exchange these if an algorithm joins step by step. (Others bring all ranks' elements, the leaves, to one
 * place.) To end with the same bits, leaves are scaled (averages) and widened (f16, bf16 to f32) first, then only
 * joined, and rounded once at the end. The arithmetic is that of reduce_tree.h. */

typedef struct tt__partial {
    tt_dtype from;   /* of the call */
    tt_dtype dtype;  /* of partial results: f32 for f16 and bf16 */
    size_t size;     /* bytes of one */
    tt_reduce_op op; /* that joins two: a sum for averages */
    double scale;    /* of this rank's leaf */
    int divisor;     /* of the result: for an average of integers; else 1 */
    bool as_is;      /* a leaf is a partial result as it is */
} tt__partial;

/* `ranks`: of the group. */
tt__partial tt__partial_of(const tt_call *call, int ranks);

/* Describe what is sent by algorithms that collect all leaves on one rank: the elements as they are, with the call's
 * op. A premultiplied sum travels as partial results instead, since only the sender knows its factor. */
tt__partial tt__wire_of(const tt_call *call, int ranks);

/* dst (count) := this rank's leaf. dst may be leaf where sizes are equal. */
void tt__partial_leaf(const tt__partial *partial, void *dst, const void *leaf, size_t count);

/* dst (count) := left op right. dst may be one of them. */
void tt__partial_join(const tt__partial *partial, void *dst, const void *left, const void *right, size_t count);

/* dst (count) := partial results of all ranks, divided and rounded to the call's type. dst may be src. */
void tt__partial_finish(const tt__partial *partial, void *dst, const void *src, size_t count);

/* ---- halving
 *
 * Vector halving with distance doubling, in the one summation order: the reduce_scatter inside
 * all_reduce_halving_doubling.c and reduce_scatter_halving.c.
 *
 * unit      what the balanced tree joins: p of them, the largest power of two not above N. The first N-p units are
 *           pairs of adjacent ranks, of which the even one acts, after its neighbour gave it all its elements (the
 *           "fold"); the others are single ranks.
 * position  a piece of the vector; there are p. Unit u ends with position bits-reversed(u).
 * level k   units u and u ^ 2^k, which hold sums over adjacent blocks of 2^k units and of the same positions, exchange
 *           halves of them: the one with bit k clear keeps the lower half. Each joins left and right as the tree
 *           does. */

typedef struct tt__halving {
    int units, levels, folded; /* p, log2 p, N-p */
    int unit;                  /* of this rank; that of its pair if it gave its elements away */
    bool gives;                /* it is the odd one of a pair */
} tt__halving;

tt__halving tt__halving_of(int rank, int ranks);

/* Return the rank that acts for a unit. */
static inline int tt__unit_rank(const tt__halving *h, int unit) {
    return unit < h->folded ? 2 * unit : unit + h->folded;
}

/* Return the first position, and the number of positions, that a unit holds before level k (k = levels: at the end). */
int tt__halving_first(const tt__halving *h, int unit, int k);
static inline int tt__halving_held(const tt__halving *h, int k) { return h->units >> k; }

/* Return the unit whose position is `position`. */
int tt__halving_unit_of(const tt__halving *h, int position);

/* ---- blocks: where a rank's elements lie in a call's buffers, even or uneven */

typedef struct tt__rank_block {
    unsigned char *data;
    size_t bytes;
} tt__rank_block;

/* Return rank r's block in recv. */
static inline tt__rank_block tt__recv_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->recv_offsets ? call->recv_offsets[r] : r * call->count;
    int64_t n = call->recv_counts ? call->recv_counts[r] : call->count;
    return (tt__rank_block){(unsigned char *)call->recv + (size_t)at * size, (size_t)n * size};
}

/* Return rank r's block in send, for reading. */
static inline tt__rank_block tt__send_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->send_offsets ? call->send_offsets[r] : r * call->count;
    int64_t n = call->send_counts ? call->send_counts[r] : call->count;
    return (tt__rank_block){(unsigned char *)(uintptr_t)call->send + (size_t)at * size, (size_t)n * size};
}

/* Copy a rank's own block to its place in recv, unless it lies there already. */
static inline void tt__copy_block(tt__rank_block to, const void *from) {
    if (to.bytes && to.data != from)
        memcpy(to.data, from, to.bytes);
}

/* ---- algorithms; terms, steps and bytes of each are in its file */

/* The most ranks that algorithms serve which send to all at once. */
enum { TT__DIRECT_RANKS = 64 };

extern const tt__algorithm tt__barrier_dissemination;
extern const tt__algorithm tt__all_reduce_direct, tt__all_reduce_slices, tt__all_reduce_halving_doubling,
    tt__all_reduce_ring, tt__all_reduce_coalesced_packed;
extern const tt__algorithm tt__reduce_direct, tt__reduce_slices, tt__reduce_binomial;
extern const tt__algorithm tt__reduce_scatter_direct, tt__reduce_scatter_halving;
extern const tt__algorithm tt__broadcast_direct, tt__broadcast_binomial, tt__broadcast_chain, tt__broadcast_scatter;
extern const tt__algorithm tt__all_gather_direct, tt__all_gather_ring, tt__all_gather_bruck, tt__all_gather_doubling;
extern const tt__algorithm tt__all_gather_neighbor_exchange, tt__all_gather_v_direct, tt__all_gather_v_ring;
extern const tt__algorithm tt__gather_direct, tt__gather_binomial, tt__scatter_direct, tt__scatter_binomial;
extern const tt__algorithm tt__all_to_all_direct, tt__all_to_all_pairwise, tt__all_to_all_bruck;
extern const tt__algorithm tt__all_to_all_v_direct, tt__all_to_all_v_pairwise;
extern const tt__algorithm tt__exchange_bruck, tt__monitored_barrier_messages;
extern const tt__algorithm tt__send_message, tt__recv_message, tt__batch_messages;

#endif
