/* The table of algorithms, and what a call tells the other ranks of its host. */
#ifndef TT_COMM_COLLECTIVE_ALGORITHMS_H
#define TT_COMM_COLLECTIVE_ALGORITHMS_H

#include "comm/collective/choose.h"
#include "comm/native_group.h"
#include "comm/op.h"

/* All of them; on shared memory the first that serves is taken. */
extern const tt__algorithm *const tt__algorithms[];
extern const size_t tt__algorithm_count;

/* Number 1.. in the table, for the recorder; its name, "?" outside. */
uint8_t tt__algorithm_number(const tt__algorithm *algorithm);
const char *tt__algorithm_name(uint8_t number);

/* The algorithm for a work that all ranks have agreed on, or that goes by messages; the same on all ranks. NULL:
 * TT_ERR_UNSUPPORTED, recorded. */
const tt__algorithm *tt__choose(const tt_work *work);

/* Of a work on messages whose algorithm packs several buffers into one: the algorithm of all_reduce for that. NULL: of
 * any other work. */
const tt__algorithm *tt__choose_packed(const tt_work *work);

/* A collective that another engine carries out: that all ranks have come is enough. */
static inline bool tt__only_agrees(const tt_work *work) {
    return work->group->native->only_agrees && !tt__op_is(work->call.op, TT__OP_EXCHANGE);
}

/* What to publish with the call: the same rule on all ranks. room: TT__INLINE_MAX bytes, aligned, where a payload may
 * be put together; the caller's until the call is published. */
void tt__offer_of(const tt_work *work, tt__offer *offer, void *room);

#endif
