/* The symmetric heap: allocations at the same offset in every rank.
 *
 * All ranks make the same allocations in the same order and take the first range that fits, so they agree on the place without asking.
 * They do ask whether everybody gets the memory: first, before any page is taken, whether there is room for all; then whether all have their
 * pages. Everything is whole pages, so that what is freed goes back to the system and what is given is zero. */
#include "base/error.h"
#include "comm/collective/collective.h"

#include <stdlib.h>
#include <string.h>

tt_status tt__heap_init(tt_group *group) {
    group->heap = calloc(1, sizeof *group->heap);
    if (!group->heap)
        return tt__fail(TT_ERR_MEMORY, "no memory for the symmetric heap's list");
    group->heap->bytes = group->heap_bytes;
    return TT_OK;
}

void tt__heap_free(tt_group *group) {
    while (group->heap) {
        tt__extent *extent = group->heap;
        group->heap = extent->next;
        free(extent);
    }
}

/* Cut `extent` after `bytes`; the rest becomes a free extent. */
static tt_status split(tt__extent *extent, size_t bytes) {
    if (extent->bytes == bytes)
        return TT_OK;
    tt__extent *rest = malloc(sizeof *rest);
    if (!rest)
        return tt__fail(TT_ERR_MEMORY, "no memory for the symmetric heap's list");
    *rest = (tt__extent){extent->next, extent->offset + bytes, extent->bytes - bytes, false};
    extent->next = rest;
    extent->bytes = bytes;
    return TT_OK;
}

/* Join `extent` with the next one while both are free. */
static void merge(tt__extent *extent) {
    while (!extent->used && extent->next && !extent->next->used) {
        tt__extent *next = extent->next;
        extent->bytes += next->bytes;
        extent->next = next->next;
        free(next);
    }
}

static void give_back(tt_group *group, tt__extent *extent) {
    extent->used = false;
    for (tt__extent *e = group->heap; e; e = e->next)
        merge(e);
}

/* Take a range of this rank's heap; its pages are not there yet. On failure nothing is taken. */
static tt_status take(tt_group *group, size_t bytes, tt__extent **out) {
    tt__extent *extent = group->heap;
    while (extent && (extent->used || extent->bytes < bytes))
        extent = extent->next;
    if (!extent)
        return tt__fail(TT_ERR_MEMORY,
                        "%zu bytes don't fit the symmetric heap of %zu bytes (TT_SYMMETRIC_HEAP sets it)", bytes,
                        group->heap_bytes);
    TT__TRY(tt__shm_check_free(bytes, group->world));
    TT__TRY(split(extent, bytes));
    extent->used = true;
    *out = extent;
    return TT_OK;
}

/* Ranks whose status, sent along with the current call, is not TT_OK. */
static uint64_t failed_ranks(const tt_group *group) {
    uint64_t failed = 0;
    for (int r = 0; r < group->world; r++) {
        int32_t status;
        memcpy(&status, tt__payload(group, r, group->seq, sizeof status), sizeof status);
        failed |= (uint64_t)(status != TT_OK) << r;
    }
    return failed;
}

/* Tell the others how far I am with an allocation, and learn whether all are as far. */
static tt_status compare(tt_group *group, const tt__call *call, int32_t status) {
    bool symmetric;
    char ranks[128];
    TT__TRY(tt__meet(group, call, &status, sizeof status, NULL, &symmetric));
    uint64_t failed = failed_ranks(group);
    if (!failed || status)
        return (tt_status)status;
    tt__ranks_text(failed, ranks, sizeof ranks);
    return tt__fail(TT_ERR_MEMORY, "%s could not allocate %llu bytes of symmetric memory", ranks,
                    (unsigned long long)call->count);
}

tt_status tt__group_alloc_at(tt_group *group, size_t bytes, void **out, const char *file, int line) {
    tt__extent *extent = NULL;
    TT__TRY(tt__group_usable(group));
    if (!out)
        return tt__fail(TT_ERR_INVALID, "alloc: `out` is NULL");
    *out = NULL;
    TT__TRY(tt__work_drain(group));
    const tt__shm *shm = &group->peers[group->rank].shm;
    const tt__call call = {.op = TT__OP_ALLOC, .count = bytes, .file = file, .line = line};
    size_t pages = bytes > SIZE_MAX / 2 ? SIZE_MAX / 2 : TT__ALIGN_UP(bytes ? bytes : 1, TT__PAGE);
    tt_status status = compare(group, &call, (int32_t)take(group, pages, &extent));
    if (!status) {
        status = tt__shm_commit(shm, group->memory_fd, TT__HEAP_AT + extent->offset, pages);
        status = compare(group, &call, (int32_t)status);
    }
    if (!status) {
        *out = shm->base + TT__HEAP_AT + extent->offset;
    } else if (extent) {
        tt__shm_release(shm, TT__HEAP_AT + extent->offset, extent->bytes);
        give_back(group, extent);
    }
    return status;
}

static tt__extent *find(const tt_group *group, const void *ptr) {
    const unsigned char *heap = group->peers[group->rank].shm.base + TT__HEAP_AT;
    for (tt__extent *extent = group->heap; extent; extent = extent->next)
        if (extent->used && heap + extent->offset == ptr)
            return extent;
    return NULL;
}

tt_status tt__group_free_at(tt_group *group, void *ptr, const char *file, int line) {
    bool symmetric;
    TT__TRY(tt__group_usable(group));
    tt__extent *extent = ptr ? find(group, ptr) : NULL;
    if (ptr && !extent)
        return tt__fail(TT_ERR_INVALID, "free: %p is no allocation of this group's tt_group_alloc()", ptr);
    TT__TRY(tt__work_drain(group));
    const tt__call call = {
        .op = TT__OP_FREE, .count = extent ? extent->offset : UINT64_MAX, .file = file, .line = line};
    TT__TRY(tt__meet(group, &call, NULL, 0, NULL, &symmetric));
    if (extent) {
        tt__shm_release(&group->peers[group->rank].shm, TT__HEAP_AT + extent->offset, extent->bytes);
        give_back(group, extent);
    }
    return TT_OK;
}
