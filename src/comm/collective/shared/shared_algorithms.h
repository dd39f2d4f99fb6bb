/* The algorithms on shared memory. docs/collectives.md compares them. */
#ifndef TT_COMM_COLLECTIVE_SHARED_SHARED_ALGORITHMS_H
#define TT_COMM_COLLECTIVE_SHARED_SHARED_ALGORITHMS_H

#include "comm/native_group.h"
#include "comm/reduce/reduce_tree.h"
#include "comm/shared/arrival.h"

/* Do the elements of a reduction travel with the arrival word even where they lie in symmetric memory? */
static inline bool tt__rides(const tt_group *group, size_t bytes) {
    return bytes <= TT__NEAR_MAX || bytes * (size_t)(group->size - 1) <= TT__RIDE_MAX;
}

/* Return up to how many bytes each rank reduces all elements of a reduction by itself. */
static inline size_t tt__inline_max(const tt_group *group, tt_op op) {
    return op == TT_OP_ALL_REDUCE ? group->native->inline_max : TT__INLINE_MAX;
}

/* Reductions at which all ranks have arrived, as call `seq`. arrived: reduce what came with the words, or lies in
 * symmetric memory, into `result` (call->count). own_slice: reduce this rank's slice of all symmetric buffers into all
 * of them, or into the root's. */
void tt__reduce_arrived(const tt_group *group, uint32_t seq, const tt_call *call, void *result);
void tt__reduce_own_slice(const tt_group *group, uint32_t seq, const tt_call *call);

/* Before the arrival: give the others copies of what they are to reduce of a plain buffer. */
void tt__carried_give(const tt_group *group, uint32_t seq, const tt_call *call);

/* tt__offer_of() of blocks_shared.c's operations, and of all_reduce_coalesced. */
void tt__blocks_offer(const tt_work *work, tt__offer *offer, void *room);
void tt__coalesced_offer(const tt_work *work, tt__offer *offer, void *room);

extern const tt__algorithm tt__all_reduce_inline, tt__all_reduce_carried, tt__all_reduce_symmetric,
    tt__all_reduce_staged;
extern const tt__algorithm tt__reduce_inline, tt__reduce_symmetric, tt__reduce_staged;
extern const tt__algorithm tt__coalesced_inline, tt__coalesced_symmetric, tt__coalesced_staged;
extern const tt__algorithm tt__reduce_scatter_blocks, tt__broadcast_blocks, tt__gather_blocks, tt__scatter_blocks,
    tt__all_gather_blocks, tt__all_gather_v_blocks, tt__all_to_all_blocks, tt__all_to_all_v_blocks;
extern const tt__algorithm tt__barrier_words, tt__exchange_words;

/* ---- the elements of a reduction: of one buffer, or, of a coalesced call, of several as if they lay one after the
 * other (coalesced_shared.c) */

/* Return where elements from..from+n-1 lie in one piece; NULL if they don't. */
void *tt__elements_at(const tt_call *call, size_t from, size_t n);

/* Copy elements from..from+n-1 to `dst`, or from `src`. */
void tt__elements_gather(const tt_call *call, size_t from, size_t n, void *dst);
void tt__elements_scatter(const tt_call *call, size_t from, size_t n, const void *src);

#endif
