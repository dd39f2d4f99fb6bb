/* The table of algorithms, and what a call publishes to the other ranks of its host. */
#ifndef TT_COMM_COLLECTIVE_ALGORITHMS_H
#define TT_COMM_COLLECTIVE_ALGORITHMS_H

#include "comm/native_group.h"
#include "comm/op.h"

/* All algorithms. On shared memory the first that serves is taken. */
extern const tt__algorithm *const tt__algorithms[];
extern const size_t tt__algorithm_count;

/* Return an algorithm's number in the table, from 1, for the recorder; the name for a number, "?" for none. */
uint8_t tt__algorithm_number(const tt__algorithm *algorithm);
const char *tt__algorithm_name(uint8_t number);

/* Is this a collective that another engine carries out? Then it is done when all ranks have arrived. */
static inline bool tt__only_agrees(const tt_work *work) {
    return work->group->native->only_agrees && !tt__op_is(work->call.op, TT__OP_EXCHANGE);
}

/* Set what the work publishes with its arrival word, by the same rule on all ranks. room: TT__INLINE_MAX bytes,
 * aligned, where a payload may be put together; the caller keeps them until the call is published. */
void tt__offer_of(const tt_work *work, tt__offer *offer, void *room);

#endif
