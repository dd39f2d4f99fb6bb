/* The table of algorithms, and what a call tells the other ranks of its host. */
#ifndef TT_COMM_ALGORITHMS_H
#define TT_COMM_ALGORITHMS_H

#include "comm/group.h"

/* All of them; on shared memory the first that serves is taken. */
extern const tt__algorithm *const tt__algorithms[];
extern const size_t tt__algorithm_count;

/* Number 1.. in the table, for the recorder; its name, "?" outside. */
uint8_t tt__algorithm_number(const tt__algorithm *algorithm);
const char *tt__algorithm_name(uint8_t number);

/* The algorithm for a work that all ranks have agreed on, or that goes by messages; the same on all ranks. NULL: TT_ERR_UNSUPPORTED, recorded. */
const tt__algorithm *tt__choose(const tt_work *work);

/* What to publish with the call: the same rule on all ranks. room: TT__INLINE_MAX bytes, aligned, where a payload may be put together; the caller's
 * until the call is published. */
void tt__offer_of(const tt_work *work, tt__offer *offer, void *room);

#endif
