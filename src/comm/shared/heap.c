/* This process's memory: group areas and symmetric allocations, by first fit. Everything is whole pages, so that freed
 * pages go back to the system, and taken ones are zero.
 *
 * Ranges may lie elsewhere in other ranks, so ranks publish their offsets. A destroyed group's ranges are freed when no
 * peer can read them any more. */
#include "comm/shared/heap.h"

#include "base/error.h"

#include <stdlib.h>

tt_status tt__heap_init(tt__heap *heap, const tt__shm *shm, size_t limit) {
    tt__extent *all = calloc(1, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for the heap's list");
    all->offset = TT__HEAP_AT;
    all->bytes = shm->size - TT__HEAP_AT;
    *heap = (tt__heap){.shm = shm, .extents = all, .limit = limit};
    return TT_OK;
}

void tt__heap_end(tt__heap *heap) {
    while (heap->extents) {
        tt__extent *extent = heap->extents;
        heap->extents = extent->next;
        free(extent);
    }
}

/* Cut `extent` after `bytes`; the rest becomes a free extent. */
static tt_status extent_split(tt__extent *extent, size_t bytes) {
    if (extent->bytes == bytes)
        return TT_OK;
    tt__extent *rest = malloc(sizeof *rest);
    if (!rest)
        return tt__fail(TT_ERR_MEMORY, "no memory for the heap's list");
    *rest = (tt__extent){extent->next, extent->offset + bytes, extent->bytes - bytes, false};
    extent->next = rest;
    extent->bytes = bytes;
    return TT_OK;
}

/* Join `extent` with the next one while both are free. */
static void extent_merge(tt__extent *extent) {
    while (!extent->used && extent->next && !extent->next->used) {
        tt__extent *next = extent->next;
        extent->bytes += next->bytes;
        extent->next = next->next;
        free(next);
    }
}

static tt_status fail_full(const tt__heap *heap, size_t bytes) {
    return tt__fail(
        TT_ERR_MEMORY,
        "%zu bytes don't fit the symmetric heap of %zu bytes, of which %zu are taken (TT_SYMMETRIC_HEAP sets it)",
        bytes, heap->limit, heap->allocated);
}

tt_status tt__heap_take(tt__heap *heap, size_t bytes, bool limited, tt__extent **out) {
    if (limited && bytes > heap->limit - heap->allocated)
        return fail_full(heap, bytes);
    tt__extent *extent = heap->extents;
    while (extent && (extent->used || extent->bytes < bytes))
        extent = extent->next;
    if (!extent)
        return fail_full(heap, bytes);
    TT__TRY(extent_split(extent, bytes));
    extent->used = true;
    if (limited)
        heap->allocated += bytes;
    *out = extent;
    return TT_OK;
}

void tt__heap_give_back(tt__heap *heap, tt__extent *extent, bool limited) {
    if (!extent)
        return;
    tt__shm_release(heap->shm, extent->offset, extent->bytes);
    if (limited)
        heap->allocated -= extent->bytes;
    extent->used = false;
    for (tt__extent *e = heap->extents; e; e = e->next)
        extent_merge(e);
}

void tt__heap_abandon(tt__heap *heap, tt__extent *extent) {
    tt__shm_release(heap->shm, extent->offset, extent->bytes);
    heap->allocated -= extent->bytes;
}
