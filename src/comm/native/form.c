/* Making native groups: from an area, announced to the other ranks, to a group that can be used. */
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/collective/choose.h"
#include "comm/shared/placement.h"

/* Take the group's area of the heap. With several hosts (0: not yet known) the group may have an inner one of this
 * host's ranks, whose area lies behind its own. */
static tt_status take_area(tt_group *group) {
    size_t bytes = group->native->world->hosts == 1 ? TT__AREA_BYTES : 2 * TT__AREA_BYTES;
    tt__world *world = group->native->world;
    const tt__shm *own = &world->peers[world->rank].shm;
    tt__world_lock(world);
    tt_status status = tt__world_take(world, bytes, false, &group->native->area_extent);
    for (size_t at = 0; !status && at < bytes; at += TT__AREA_BYTES)
        status = tt__shm_commit(own, world->memory_fd, group->native->area_extent->offset + at, TT__AREA_COMMITTED);
    if (status) {
        tt__world_give_back(world, group->native->area_extent, false);
        group->native->area_extent = NULL;
    }
    tt__world_unlock(world);
    for (size_t at = 0; !status && at < bytes; at += TT__AREA_BYTES)
        ((tt__area *)(void *)(own->base + group->native->area_extent->offset + at))->group = TT__FORMING;
    return status;
}

tt_group *tt__native_prepare(tt__world *world, int room, int64_t timeout_ms) {
    tt_group *group = tt__native_group_make(world, room, timeout_ms);
    if (group && take_area(group)) {
        tt__native_group_free(group);
        group = NULL;
    }
    return group;
}

void tt__native_discard(tt_group *group) {
    if (!group)
        return;
    tt__world_lock(group->native->world);
    tt__world_give_back(group->native->world, group->native->area_extent, false);
    tt__world_unlock(group->native->world);
    tt__native_group_free(group);
}

/* Find the peers' areas; an impossible offset counts as none. */
static void find_areas(tt_group *group, const uint64_t *offsets) {
    group->native->shared = true;
    for (int r = 0; r < group->size; r++) {
        const tt__shm *shm = &group->native->world->peers[group->ranks[r]].shm;
        if (shm->base && offsets[r] >= TT__HEAP_AT && offsets[r] % TT__PAGE == 0 &&
            offsets[r] <= shm->size - TT__AREA_BYTES) {
            group->native->bases[r] = shm->base;
            group->native->areas[r] = (tt__area *)(void *)(shm->base + offsets[r]);
        }
        group->native->shared &= group->native->areas[r] != NULL;
    }
}

/* Add the group to the world's list, inner groups first: the group's works wait for theirs. */
static void add_to_world(tt_group *group) {
    tt__world *world = group->native->world;
    tt_group *groups[] = {group, group->native->cross, group->native->local};
    for (int i = 0; i < 3; i++) {
        if (!groups[i])
            continue;
        groups[i]->native->next_group = world->groups;
        world->groups = groups[i];
        if (world->messages)
            tt__messages_expect(world->messages, groups[i]->id);
    }
}

/* Up to how many bytes does each rank reduce all elements of an all_reduce by itself? */
static size_t inline_max_of(const tt_group *group) {
    size_t others = group->size > 1 ? (size_t)group->size - 1 : 1, shared = TT__RIDE_MAX_SHARED / others;
    return group->native->spin || shared < TT__INLINE_MAX ? TT__INLINE_MAX : shared;
}

void tt__native_begin(tt_group *group, uint32_t id, const int *ranks, int size, const uint64_t *offsets) {
    tt__world *world = group->native->world;
    group->id = id;
    group->size = size;
    for (int r = 0; r < size; r++) {
        group->ranks[r] = ranks[r];
        if (ranks[r] == world->rank)
            group->rank = r;
    }
    find_areas(group, offsets);
    group->native->spin = tt__ranks_fit_cpus(group);
    group->native->inline_max = inline_max_of(group);
    if (group->native->spin && group->native->shared && !(world->tuning && world->tuning->on_shared_memory))
        tt__all_reduce_fast_begin(group);
    tt_status status = tt__make_inner_groups(group);
    atomic_store_explicit(&group->native->areas[group->rank]->group, id, memory_order_release);
    tt__world_lock(world);
    world->references++;
    add_to_world(group);
    tt__recorder_name_group(&tt__world_control(world)->recorder, id, ranks, size);
    if (status) /* the others expect this rank: announce why it does not take part */
        tt__group_fail(group);
    tt__world_unlock(world);
}
