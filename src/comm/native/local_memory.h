/* Memory that peers read and write as what tt_group_alloc() gives, but that each rank takes and frees by itself, in any
 * order: for buffers whose lives the garbage collector of a language decides. Where it lies is published with each call
 * anyway. NCCL: ncclMemAlloc(); MPI: MPI_Alloc_mem(). */
#ifndef TT_COMM_NATIVE_LOCAL_MEMORY_H
#define TT_COMM_NATIVE_LOCAL_MEMORY_H

#include "base/export.h"

#include <tutti/comm.h>

TT_BEGIN_DECLS

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

/* Free it, when no call on it is under way. From any thread. In a forked child, whose copy is the parent's memory, it
 * does nothing. NULL is allowed. */
TT__EXPORT void tt__local_memory_free(tt__local_memory *memory);

TT_END_DECLS

#endif
