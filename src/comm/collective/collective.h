/* What the collectives share: the way of a call to its engine, and shares of a buffer.
 *
 * One file an algorithm. Algorithms are listed in algorithms.c; the public calls are in comm/call. */
#ifndef TT_COMM_COLLECTIVE_H
#define TT_COMM_COLLECTIVE_H

#include "base/error.h"
#include "comm/group.h"

/* Hand a checked call to the group's engine. */
static inline tt_status tt__submit(tt_group *group, const tt_call *call, tt_work **work) {
    return group->engine->submit(group, call, work);
}

static inline int64_t tt__timeout_of(const tt_group *group, int64_t timeout_ms) {
    return timeout_ms > 0 ? timeout_ms : group->timeout_ms;
}

/* Elements at..at+n-1 of `count` are rank r's share of a reduction: whole cache lines, the last ranks' shares may be empty. */
typedef struct tt__slice {
    size_t at, n;
} tt__slice;
tt__slice tt__slice_of(size_t count, tt_dtype dtype, int world, int r);

/* Elements to be reduced that ride with the arrival word even where they lie in symmetric memory. */
static inline bool tt__rides(const tt_group *group, size_t bytes) {
    return bytes <= TT__NEAR_MAX || bytes * (size_t)(group->size - 1) <= TT__RIDE_MAX;
}

static inline tt_call tt__all_reduce_call(const tt_all_reduce_args *a) {
    return (tt_call){.op = TT_OP_ALL_REDUCE,
                     .dtype = a->dtype,
                     .reduce_op = a->op,
                     .factor = a->factor,
                     .count = a->count,
                     .send = a->buf,
                     .recv = a->buf,
                     .timeout_ms = tt__timeout_of(a->group, a->timeout_ms),
                     .file = a->file,
                     .line = a->line};
}

/* Do the whole call, if it is of the kind that can be done so: all_reduce_at_once.c. Otherwise nothing has happened. */
bool tt__all_reduce_at_once(const tt_all_reduce_args *args, tt_status *status);

/* tt__offer_of() of blocks_shared.c's operations, and of all_reduce_coalesced. */
void tt__blocks_offer(const tt_work *work, tt__offer *offer, void *room);
void tt__coalesced_offer(const tt_work *work, tt__offer *offer, void *room);

static inline unsigned char *tt__stage_in(const tt_group *group, int r, size_t piece) {
    return group->areas[r]->stage_in[piece % TT__STAGE_DEPTH];
}

static inline unsigned char *tt__stage_out(const tt_group *group, int r, size_t piece) {
    return group->areas[r]->stage_out[piece % TT__STAGE_DEPTH];
}

/* What serves all_reduce on shared memory:
 *
 *   symmetric on all ranks, and more
 *   than TT__RIDE_MAX bytes           reduce_symmetric.c  2 synchronisations, no copy
 *   else up to TT__INLINE_MAX bytes   reduce_inline.c     1 synchronisation (2 where some are symmetric), every rank
 *                                                         reduces all
 *   else                              reduce_staged.c     2 synchronisations a piece, overlapped
 *
 * Up to TT__INLINE_MAX bytes symmetric buffers go inline, too, where ranks share CPUs, since a synchronisation costs more
 * there than reducing everything everywhere. all_reduce_at_once.c is a short way through the first two. reduce is served
 * alike. */
extern const tt__algorithm tt__all_reduce_inline, tt__all_reduce_symmetric, tt__all_reduce_staged;
extern const tt__algorithm tt__reduce_inline, tt__reduce_symmetric, tt__reduce_staged;
extern const tt__algorithm tt__coalesced_inline, tt__coalesced_symmetric, tt__coalesced_staged;
extern const tt__algorithm tt__reduce_scatter_blocks, tt__broadcast_blocks, tt__gather_blocks, tt__scatter_blocks,
    tt__all_gather_blocks, tt__all_gather_v_blocks, tt__all_to_all_blocks, tt__all_to_all_v_blocks;
extern const tt__algorithm tt__monitored_barrier_messages;
extern const tt__algorithm tt__barrier_words, tt__exchange_words, tt__exchange_bruck;

#endif
