#include "comm/native/local_memory.h"

#include "base/error.h"
#include "comm/native/native.h"

#include <stdlib.h>
#include <unistd.h>

struct tt__local_memory {
    tt__world *world; /* which it keeps: world->references */
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

static tt_status memory_take(tt__world *world, size_t pages, tt__extent **out) {
    TT__TRY(tt__shm_check_free(pages, tt__world_local_ranks(world, world->size)));
    tt__world_lock(world);
    tt_status status = tt__world_take(world, pages, true, out);
    if (!status)
        world->references++;
    tt__world_unlock(world);
    return status;
}

/* May a peer still touch what ended calls used? After a failure, or while a group that was destroyed here has members
 * elsewhere. The lock is held. */
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
