/* Descriptors that the ranks of a group, all on one host, hand each other: of memory that isn't the host's. */
#ifndef TT_COMM_NATIVE_DESCRIPTORS_H
#define TT_COMM_NATIVE_DESCRIPTORS_H

#include "base/export.h"

#include <tutti/comm.h>

enum { TT__TRADE_RANKS = 16 }; /* the most that trade */

/* Can this group's ranks trade: a native group, not forked, of 2 to TT__TRADE_RANKS ranks that share memory? Only of
 * this rank's own view. */
TT__EXPORT bool tt__group_can_trade(const tt_group *group);

/* Give every other rank the descriptor `own`, which stays the caller's (-1: none), and receive each one's in theirs
 * (size), the caller's to close; -1: that rank had none, and this rank's place. Collective; the group can trade on all
 * ranks. TT_ERR_UNSUPPORTED, on all ranks: the kernel, or a rank's sandbox, refuses it; the group goes on. Any other
 * error ends the group. `who` is named in errors. */
TT__EXPORT tt_status tt__group_trade(tt_group *group, int own, int *theirs, const char *who);

/* Where `ptr`, which tt_group_alloc() gave, lies in this rank's memory: for tt__peer_memory() on other ranks. -1: no
 * peer can reach it. */
TT__EXPORT int64_t tt__symmetric_offset(const tt_group *group, const void *ptr);

/* Rank `peer`'s memory at its `offset`, mapped here; NULL: it can't be reached from here. Its owner alone writes to it.
 * Valid while the group is held. */
TT__EXPORT const void *tt__peer_memory(const tt_group *group, int peer, int64_t offset);

#endif
