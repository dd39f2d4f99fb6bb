/* This process's memory behind the control page: group areas and symmetric allocations. */
#ifndef TT_COMM_SHARED_HEAP_H
#define TT_COMM_SHARED_HEAP_H

#include "comm/shared/shm.h"

/* A range of the heap. The list covers the heap without gaps, in order. */
typedef struct tt__extent {
    struct tt__extent *next;
    size_t offset, bytes; /* in the rank's memory */
    bool used;
} tt__extent;

/* This process's memory behind the control page. */
typedef struct tt__heap {
    const tt__shm *shm;
    tt__extent *extents;
    size_t limit, allocated; /* of what tt_group_alloc() gives */
} tt__heap;

/* Make the heap of `shm`, all of it free but for the control page; `limit` of allocations. TT_ERR_MEMORY. */
tt_status tt__heap_init(tt__heap *heap, const tt__shm *shm, size_t limit);
void tt__heap_end(tt__heap *heap);

/* Take `bytes` (whole pages); their pages are not there yet. `limited`: as a tt_group_alloc(), which counts. */
tt_status tt__heap_take(tt__heap *heap, size_t bytes, bool limited, tt__extent **out);

/* Free an extent; its pages go back to the system. NULL is allowed. */
void tt__heap_give_back(tt__heap *heap, tt__extent *extent, bool limited);

/* Free what was allocated, but never give out its range again, since a peer may still write there. */
void tt__heap_abandon(tt__heap *heap, tt__extent *extent);

#endif
