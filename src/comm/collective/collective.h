/* What the collectives share: the way of a public call to its engine, and shares of a buffer.
 *
 * One file an algorithm; <name>.c checks the public call. Algorithms are listed in algorithms.c. */
#ifndef TT_COMM_COLLECTIVE_H
#define TT_COMM_COLLECTIVE_H

#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"

/* `name` points to the caller's options, or, if its version of the struct is another, to a copy in this version. */
#define TT__CALL_ARGS(type, name)                                     \
    type name##_copy;                                                 \
    if (__builtin_expect(!args || size != offsetof(type, tt_end), 0)) \
        TT__ARGS_COPY(name##_copy, args, size);                       \
    const type *name = args && size == offsetof(type, tt_end) ? args : &name##_copy

/* What a call must look like before anything is sent. `root` 0 and TT_SUM where there is none. */
tt_status tt__check_call(tt_group *group, const char *name, const void *buf, size_t count, tt_dtype dtype,
                         tt_reduce_op op, int root);

/* The same for a list of counts, one of each rank: it is there, and their sum fits memory. `offsets`: NULL, or one of each rank, too. */
tt_status tt__check_counts(tt_group *group, const char *name, const void *buf, const size_t *counts,
                           const size_t *offsets, tt_dtype dtype);

/* Every list of offsets that the caller left out, one after the other, in room of the group's: `which` 0 or 1. NULL: no memory. */
const size_t *tt__offsets_of(tt_group *group, int which, const size_t *counts);

/* Hand a checked call to the group's engine. */
static inline tt_status tt__submit(tt_group *group, const tt_call *call, tt_work **work) {
    return group->engine->submit(group, call, work);
}

/* Check and hand over a call of even blocks: gather, scatter, all_gather or all_to_all. Its timeout is still the caller's option. *work is NULL after
 * an error. */
tt_status tt__submit_blocks(tt_group *group, tt_call *call, tt_work **work);

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

tt_call tt__all_reduce_call(const tt_all_reduce_args *args);

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

extern const tt__algorithm tt__all_reduce_inline, tt__all_reduce_symmetric, tt__all_reduce_staged;
extern const tt__algorithm tt__reduce_inline, tt__reduce_symmetric, tt__reduce_staged;
extern const tt__algorithm tt__coalesced_inline, tt__coalesced_symmetric, tt__coalesced_staged;
extern const tt__algorithm tt__reduce_scatter_blocks, tt__broadcast_blocks, tt__gather_blocks, tt__scatter_blocks,
    tt__all_gather_blocks, tt__all_gather_v_blocks, tt__all_to_all_blocks, tt__all_to_all_v_blocks;
extern const tt__algorithm tt__monitored_barrier_messages;
extern const tt__algorithm tt__barrier_words, tt__exchange_words, tt__exchange_bruck;

#endif
