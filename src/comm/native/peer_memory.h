/* Memory of other ranks of a group on one host: descriptors of device memory, which ranks hand each other
 * (peer_memory.c), and symmetric memory that one rank takes alone (alloc.c). */
#ifndef TT_COMM_NATIVE_PEER_MEMORY_H
#define TT_COMM_NATIVE_PEER_MEMORY_H

#include "base/export.h"

#include <tutti/comm.h>

TT_BEGIN_DECLS

/* ---- peer_memory.c */

enum { TT__TRADE_RANKS = 16 }; /* the most that trade */

/* Can this group's ranks trade: a native group, not forked, of 2 to TT__TRADE_RANKS ranks that share memory? As far as
 * this rank can tell. */
TT__EXPORT bool tt__group_can_trade(const tt_group *group);

/* Give every other rank the descriptor `own` (-1: none), which stays the caller's. theirs (size) := each rank's
 * descriptor, the caller's to close; -1 for this rank, and for ranks that had none. Collective; tt__group_can_trade()
 * is true on all ranks. TT_ERR_UNSUPPORTED, on all ranks: the kernel, or a rank's sandbox, refuses it; the group goes
 * on. Any other error ends the group. `who` is named in errors. */
TT__EXPORT tt_status tt__group_trade(tt_group *group, int own, int *theirs, const char *who);

/* Where `ptr`, which tt_group_alloc() gave, lies in this rank's memory: for tt__peer_memory() on other ranks. -1: no
 * peer can reach it. */
TT__EXPORT int64_t tt__symmetric_offset(const tt_group *group, const void *ptr);

/* Rank `peer`'s memory at its `offset`, mapped here; NULL: it can't be reached from here. Its owner alone writes to it.
 * Valid while the group is held. */
TT__EXPORT const void *tt__peer_memory(const tt_group *group, int peer, int64_t offset);

/* ---- alloc.c
 *
 * Memory that peers can use in place, as that of tt_group_alloc(), but that each rank takes and frees by itself, in any
 * order: for buffers that a garbage collector frees. It needs no agreement, since each call publishes where its buffers
 * lie. NCCL: ncclMemAlloc(); MPI: MPI_Alloc_mem(). */

typedef struct tt__local_memory tt__local_memory;

/* Can this rank have such memory: does it share memory with another rank of the group? */
TT__EXPORT bool tt__local_memory_is_there(const tt_group *group);

/* Do `bytes` at `p` lie in this rank's symmetric memory, however they were taken? */
TT__EXPORT bool tt__is_symmetric(const tt_group *group, const void *p, size_t bytes);

/* Take `bytes`, zeroed, whole pages. Not collective, does not wait. *at lives until tt__local_memory_free(), also after
 * the group is destroyed: the process leaves the job when its last group is destroyed and its last such memory freed.
 * Errors: TT_ERR_MEMORY; TT_ERR_UNSUPPORTED, where tt__local_memory_is_there() says no. From any thread. */
TT__EXPORT TT_NODISCARD tt_status tt__local_memory_alloc(tt_group *group, size_t bytes, tt__local_memory **out,
                                                         void **at);

/* Free it. No call on it may be under way. From any thread. Does nothing in a forked child, which shares the parent's
 * memory. NULL is allowed. */
TT__EXPORT void tt__local_memory_free(tt__local_memory *memory);

/* Shared memory that this process has made, in bytes. */
typedef struct tt__shared_bytes {
    size_t area;        /* of this group alone: what its calls go through */
    size_t used, limit; /* symmetric memory of all groups of the process: taken, and the most that can be */
} tt__shared_bytes;

/* Zeros where the group shares no memory. From any thread. */
TT__EXPORT tt__shared_bytes tt__group_shared_bytes(const tt_group *group);

TT_END_DECLS

#endif
