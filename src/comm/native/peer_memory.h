/* Symmetric memory of other ranks, for layers above that move data through it themselves. */
#ifndef TT_COMM_NATIVE_PEER_MEMORY_H
#define TT_COMM_NATIVE_PEER_MEMORY_H

#include "base/export.h"

#include <tutti/comm.h>

/* Where `ptr`, which tt_group_alloc() gave, lies in this rank's memory: for tt__peer_memory() on other ranks. -1: no
 * peer can reach it. */
TT__EXPORT int64_t tt__symmetric_offset(const tt_group *group, const void *ptr);

/* Rank `peer`'s memory at its `offset`, mapped here; NULL: it can't be reached from here. Its owner alone writes to it.
 * Valid while the group is held. */
TT__EXPORT const void *tt__peer_memory(const tt_group *group, int peer, int64_t offset);

#endif
