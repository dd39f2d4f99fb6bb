/* Symmetric memory (tt_group_alloc()): every rank takes a range of its own heap, and all learn whether all could. They
 * compare twice: before any page is taken, whether there is room in all heaps; then, whether all have their pages. */
#include "comm/native/peer_memory.h"

#include "base/error.h"
#include "comm/native/native.h"
#include "comm/record/recovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Publish this rank's status, and learn whether all ranks succeeded. */
static tt_status compare_status(tt_group *group, const tt_call *call, int32_t status) {
    int32_t all[TT__MAX_RANKS];
    tt__rankset failed = {0};
    char ranks[256];
    TT__TRY(tt__exchange(group, call, &status, sizeof status, all));
    for (int r = 0; r < group->size; r++)
        if (all[r])
            tt__rankset_add(&failed, group->ranks[r]);
    if (status || !tt__rankset_count(&failed))
        return (tt_status)status;
    return tt__fail(
        TT_ERR_MEMORY,
        "%s could not allocate %llu bytes of symmetric memory (TT_SYMMETRIC_HEAP sets how much there may be)",
        tt__rankset_text(&failed, ranks, sizeof ranks), (unsigned long long)call->count);
}

static tt_status allocation_take(tt_group *group, size_t bytes, tt__allocation **out) {
    tt__world *world = group->native->world;
    tt__allocation *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        return tt__fail(TT_ERR_MEMORY, "no memory for the list of allocations");
    tt_status status = tt__shm_check_free(bytes, tt__world_local_ranks(world, world->size));
    tt__world_lock(world);
    if (!status)
        status = tt__world_take(world, bytes, true, &allocation->extent);
    tt__world_unlock(world);
    if (status) {
        free(allocation);
        return status;
    }
    allocation->at = world->peers[world->rank].shm.base + allocation->extent->offset;
    *out = allocation;
    return TT_OK;
}

static void allocation_give_back(tt_group *group, tt__allocation *allocation) {
    if (!allocation)
        return;
    tt__world_lock(group->native->world);
    tt__world_give_back(group->native->world, allocation->extent, true);
    tt__world_unlock(group->native->world);
    free(allocation);
}

tt_status tt__native_alloc(tt_group *group, const tt_call *call, void **out) {
    tt__allocation *allocation = NULL;
    tt__world *world = group->native->world;
    uint64_t bytes = call->count;
    size_t pages = bytes > SIZE_MAX / 2 ? SIZE_MAX / 2 : TT__ALIGN_UP(bytes ? bytes : 1, TT__PAGE);
    tt_status status = compare_status(group, call, (int32_t)allocation_take(group, pages, &allocation));
    if (!status) {
        status = tt__shm_commit(&world->peers[world->rank].shm, world->memory_fd, allocation->extent->offset, pages);
        group->native->goes_on = true;
        status = compare_status(group, call, (int32_t)status);
        group->native->goes_on = false;
    }
    if (status) {
        allocation_give_back(group, allocation);
        return status;
    }
    allocation->serial = ++group->native->serial;
    allocation->next = group->allocations;
    group->allocations = allocation;
    *out = allocation->at;
    return TT_OK;
}

static tt__allocation **allocation_find(tt_group *group, const void *ptr) {
    tt__allocation **at = &group->allocations;
    while (*at && (*at)->at != ptr)
        at = &(*at)->next;
    return at;
}

/* Free in step with the other ranks, after an error of this one. If the others make other calls, this rank has left,
 * and the launcher learns why even if the program does not say so. */
static tt_status free_after_failure(tt_group *group, const tt_call *call) {
    char message[TT__ERROR_TEXT_SIZE + 64];
    tt_status own;
    const char *text = tt__error_reason(&own);
    snprintf(message, sizeof message, "%s: %s", tt_status_name(own), text);
    group->native->leaving = true;
    tt_status status = tt__exchange(group, call, NULL, 0, NULL);
    if (!status)
        group->native->leaving = false;
    else if (own != TT_ERR_PEER && !tt__recovery_is_on())
        tt__error_file_write(message, false);
    return status;
}

tt_status tt__native_free(tt_group *group, const tt_call *call, void *ptr) {
    tt_call full = *call;
    tt__allocation **at = allocation_find(group, ptr), *allocation = *at;
    if (ptr && !allocation)
        return tt__fail(TT_ERR_INVALID, "free: %p is no allocation of this group's tt_group_alloc()", ptr);
    full.count = allocation ? allocation->serial : UINT64_MAX;
    if (!group->failed)
        tt__note_own_failure(group->native->world);
    bool after_failure = !group->failed && *tt__world_control(group->native->world)->own_failure;
    TT__TRY(after_failure ? free_after_failure(group, &full) : tt__exchange(group, &full, NULL, 0, NULL));
    if (allocation) {
        *at = allocation->next;
        allocation_give_back(group, allocation);
    }
    return TT_OK;
}

struct tt__local_memory {
    tt__world *world; /* kept by world->references */
    tt__extent *extent;
};

bool tt__local_memory_is_there(const tt_group *group) {
    const tt__native *native = group ? group->native : NULL;
    for (int r = 0; native && native->bases && r < group->size; r++)
        if (r != group->rank && native->bases[r])
            return true;
    return false;
}

bool tt__is_symmetric(const tt_group *group, const void *p, size_t bytes) {
    return tt__local_memory_is_there(group) && tt__in_heap(group->native->world, p, bytes);
}

tt__shared_bytes tt__group_shared_bytes(const tt_group *group) {
    tt__shared_bytes bytes = {0};
    if (!tt__local_memory_is_there(group))
        return bytes;
    tt__world *world = group->native->world;
    tt__world_lock(world);
    bytes = (tt__shared_bytes){.area = group->native->area_extent ? group->native->area_extent->bytes : 0,
                               .used = world->heap.allocated,
                               .limit = world->heap.limit};
    tt__world_unlock(world);
    return bytes;
}

static tt_status memory_take(tt__world *world, size_t pages, tt__extent **out) {
    TT__TRY(tt__shm_check_free(pages, tt__world_local_ranks(world, world->size)));
    tt__world_lock(world);
    tt_status status = tt__world_take(world, pages, true, out);
    if (!status)
        world->references++;
    tt__world_unlock(world);
    return status;
}

/* May a peer still touch memory that ended calls used? Yes after a failure, and while a group destroyed here has
 * members elsewhere. The lock is held. */
static bool peers_may_touch(const tt__world *world) {
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        if (atomic_load(&group->ended))
            return true;
    return world->retired != NULL;
}

static void memory_give_back(tt__world *world, tt__extent *extent) {
    tt__world_lock(world);
    if (peers_may_touch(world))
        tt__heap_abandon(&world->heap, extent);
    else
        tt__world_give_back(world, extent, true);
    bool last = --world->references == 0;
    tt__world_unlock(world);
    if (last)
        tt__world_end(world);
}

tt_status tt__local_memory_alloc(tt_group *group, size_t bytes, tt__local_memory **out, void **at) {
    *out = NULL;
    *at = NULL;
    TT__TRY(tt__group_usable(group));
    if (!tt__local_memory_is_there(group))
        return tt__fail(TT_ERR_UNSUPPORTED, "no other rank of the group shares memory with this one");
    tt__world *world = group->native->world;
    const tt__shm *own = &world->peers[world->rank].shm;
    size_t pages = bytes > SIZE_MAX / 2 ? SIZE_MAX / 2 : TT__ALIGN_UP(bytes ? bytes : 1, TT__PAGE);
    tt__local_memory *memory = malloc(sizeof *memory);
    if (!memory)
        return tt__fail(TT_ERR_MEMORY, "no memory for a symmetric buffer");
    memory->world = world;
    tt_status status = memory_take(world, pages, &memory->extent);
    if (!status) {
        status = tt__shm_commit(own, world->memory_fd, memory->extent->offset, pages);
        if (status)
            memory_give_back(world, memory->extent);
    }
    if (status) {
        free(memory);
        return status;
    }
    *at = own->base + memory->extent->offset;
    *out = memory;
    return TT_OK;
}

void tt__local_memory_free(tt__local_memory *memory) {
    if (!memory)
        return;
    if (memory->world->owner == getpid())
        memory_give_back(memory->world, memory->extent);
    free(memory);
}
