/* This process's memory: group areas and symmetric allocations, by first fit. Everything is whole pages, so that what is freed goes back to the
 * system and what is given is zero.
 *
 * Ranges may lie elsewhere in other ranks: whoever tells of one says where it is. A destroyed group's ranges are free when no peer can read them any more. */
#include "base/error.h"
#include "comm/group.h"

#include <stdlib.h>

tt_status tt__heap_init(tt__world *world) {
    tt__extent *all = calloc(1, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for the heap's list");
    all->offset = TT__HEAP_AT;
    all->bytes = world->peers[world->rank].shm.size - TT__HEAP_AT;
    world->heap.extents = all;
    return TT_OK;
}

void tt__heap_end(tt__world *world) {
    while (world->heap.extents) {
        tt__extent *extent = world->heap.extents;
        world->heap.extents = extent->next;
        free(extent);
    }
}

/* Cut `extent` after `bytes`; the rest becomes a free extent. */
static tt_status split(tt__extent *extent, size_t bytes) {
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
static void merge(tt__extent *extent) {
    while (!extent->used && extent->next && !extent->next->used) {
        tt__extent *next = extent->next;
        extent->bytes += next->bytes;
        extent->next = next->next;
        free(next);
    }
}

/* No peer can look into the group's memory any more: all have left it, too. One may still be about to enter it. A failed group's may still be
 * written by a late one. */
static bool is_over(const tt_group *group) {
    if (group->failed)
        return false;
    for (int r = 0; r < group->size; r++) {
        const tt__area *area = group->areas[r];
        uint32_t state = area ? atomic_load_explicit(&area->state, memory_order_acquire) : TT__LEFT;
        uint32_t id = area ? atomic_load_explicit(&area->group, memory_order_acquire) : 0;
        if (area && state == TT__MEMBER && (id == group->id || id == TT__FORMING))
            return false;
    }
    return true;
}

/* Give back what destroyed groups had. */
static void sweep(tt__world *world) {
    for (tt_group **at = &world->retired; *at;) {
        tt_group *group = *at;
        if (!is_over(group)) {
            at = &group->next_group;
            continue;
        }
        *at = group->next_group;
        while (group->allocations) {
            tt__allocation *allocation = group->allocations;
            group->allocations = allocation->next;
            tt__heap_give_back(world, allocation->extent, true);
            free(allocation);
        }
        tt__heap_give_back(world, group->area_extent, false);
        group->area_extent = NULL;
        tt__group_free(group);
    }
}

static tt_status fail_full(const tt__world *world, size_t bytes) {
    return tt__fail(
        TT_ERR_MEMORY,
        "%zu bytes don't fit the symmetric heap of %zu bytes, of which %zu are taken (TT_SYMMETRIC_HEAP sets it)",
        bytes, world->heap.limit, world->heap.allocated);
}

tt_status tt__heap_take(tt__world *world, size_t bytes, bool limited, tt__extent **out) {
    sweep(world);
    if (limited && bytes > world->heap.limit - world->heap.allocated)
        return fail_full(world, bytes);
    tt__extent *extent = world->heap.extents;
    while (extent && (extent->used || extent->bytes < bytes))
        extent = extent->next;
    if (!extent)
        return fail_full(world, bytes);
    TT__TRY(split(extent, bytes));
    extent->used = true;
    if (limited)
        world->heap.allocated += bytes;
    *out = extent;
    return TT_OK;
}

void tt__heap_give_back(tt__world *world, tt__extent *extent, bool limited) {
    if (!extent)
        return;
    tt__shm_release(&world->peers[world->rank].shm, extent->offset, extent->bytes);
    if (limited)
        world->heap.allocated -= extent->bytes;
    extent->used = false;
    for (tt__extent *e = world->heap.extents; e; e = e->next)
        merge(e);
}
