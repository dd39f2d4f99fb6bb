/* The native engine: a process joins a job and shares memory with the ranks of its host; its groups, their making and their end. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/collective/algorithms.h"
#include "comm/group.h"
#include "comm/rendezvous/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- groups */

/* With several hosts (0: not yet known) the group may have an inner one of this host's ranks, whose area lies behind its own. */
static tt_status take_area(tt_group *group) {
    size_t bytes = group->world->hosts == 1 ? TT__AREA_BYTES : 2 * TT__AREA_BYTES;
    tt__world *world = group->world;
    const tt__shm *own = &world->peers[world->rank].shm;
    tt__world_lock(world);
    tt_status status = tt__heap_take(world, bytes, false, &group->area_extent);
    for (size_t at = 0; !status && at < bytes; at += TT__AREA_BYTES)
        status = tt__shm_commit(own, world->memory_fd, group->area_extent->offset + at, TT__AREA_COMMITTED);
    if (status) {
        tt__heap_give_back(world, group->area_extent, false);
        group->area_extent = NULL;
    }
    tt__world_unlock(world);
    for (size_t at = 0; !status && at < bytes; at += TT__AREA_BYTES)
        ((tt__area *)(void *)(own->base + group->area_extent->offset + at))->group = TT__FORMING;
    return status;
}

tt_group *tt__native_prepare(tt__world *world, int room, int64_t timeout_ms) {
    tt_group *group = tt__group_make(&tt__native_engine, 0, room, NULL, timeout_ms);
    if (!group)
        return NULL;
    group->world = world;
    group->areas = calloc((size_t)room, sizeof *group->areas);
    group->bases = calloc((size_t)room, sizeof *group->bases);
    if (!group->areas || !group->bases)
        tt__fail(TT_ERR_MEMORY, "no memory for a group of %d ranks", room);
    if (!group->areas || !group->bases || take_area(group)) {
        tt__group_free(group);
        return NULL;
    }
    group->alone = (tt_work){.group = group, .source = -1};
    return group;
}

void tt__native_discard(tt_group *group) {
    if (!group)
        return;
    tt__world_lock(group->world);
    tt__heap_give_back(group->world, group->area_extent, false);
    tt__world_unlock(group->world);
    tt__group_free(group);
}

/* Where the peers' areas lie; a place that can't be is none. */
static void find_areas(tt_group *group, const uint64_t *offsets) {
    group->shared = true;
    for (int r = 0; r < group->size; r++) {
        const tt__shm *shm = &group->world->peers[group->ranks[r]].shm;
        if (shm->base && offsets[r] >= TT__HEAP_AT && offsets[r] % TT__PAGE == 0 &&
            offsets[r] <= shm->size - TT__AREA_BYTES) {
            group->bases[r] = shm->base;
            group->areas[r] = (tt__area *)(void *)(shm->base + offsets[r]);
        }
        group->shared &= group->areas[r] != NULL;
    }
}

/* Inner groups first: what comes of their works is what the group's wait for. */
static void enlist(tt_group *group) {
    tt__world *world = group->world;
    tt_group *groups[] = {group, group->cross, group->local};
    for (int i = 0; i < 3; i++) {
        if (!groups[i])
            continue;
        groups[i]->next_group = world->groups;
        world->groups = groups[i];
        if (world->messages)
            tt__messages_expect(world->messages, groups[i]->id);
    }
}

void tt__native_begin(tt_group *group, uint32_t id, const int *ranks, int size, const uint64_t *offsets) {
    tt__world *world = group->world;
    group->id = id;
    group->size = size;
    for (int r = 0; r < size; r++) {
        group->ranks[r] = ranks[r];
        if (ranks[r] == world->rank)
            group->rank = r;
    }
    find_areas(group, offsets);
    group->spin = tt__ranks_fit_cpus(group);
    group->at_once = group->spin && group->shared && !(world->tuning && world->tuning->on_shared_memory);
    tt_status status = tt__make_inner_groups(group);
    atomic_store_explicit(&group->areas[group->rank]->group, id, memory_order_release);
    tt__world_lock(world);
    world->references++;
    enlist(group);
    tt__recorder_name_group(&tt__world_control(world)->recorder, id, ranks, size);
    if (status) /* the others count on this rank: they learn why it is none of them */
        tt__group_fail(group);
    tt__world_unlock(world);
}

static void leave_list(tt_group *group) {
    tt_group **at = &group->world->groups;
    while (*at && *at != group)
        at = &(*at)->next_group;
    if (*at)
        *at = group->next_group;
}

/* Nobody will receive in the group any more. */
static void forget_messages(const tt_group *group) {
    const tt_group *groups[] = {group, group->cross, group->local};
    for (int i = 0; i < 3 && group->world->messages && !group->world->forked; i++)
        if (groups[i])
            tt__messages_forget(group->world->messages, groups[i]->id);
}

/* Its memory is free when the peers can't read it any more: see heap.c. */
static void release(tt_group *group) {
    tt__world *world = group->world;
    tt__world_own(world);
    tt__world_lock(world);
    tt__world_settle(world);
    leave_list(group);
    if (group->local)
        leave_list(group->local);
    if (group->cross)
        leave_list(group->cross);
    forget_messages(group);
    group->next_group = world->retired;
    world->retired = group;
    bool last = --world->references == 0;
    tt__world_unlock(world);
    if (last)
        tt__world_end(world);
}

/* ---- joining */

/* `group` has room for all, and its area is the first thing that every rank took of its memory. */
static tt_status begin_first_group(tt_group *group) {
    tt__world *world = group->world;
    uint64_t *offsets = calloc((size_t)world->size, sizeof *offsets);
    int *ranks = calloc((size_t)world->size, sizeof *ranks);
    tt_status status = TT_OK;
    if (!offsets || !ranks)
        status = tt__fail(TT_ERR_MEMORY, "no memory for a group of %d ranks", world->size);
    for (int r = 0; r < world->size && !status; r++) {
        ranks[r] = r;
        offsets[r] = TT__HEAP_AT;
    }
    if (!status)
        tt__native_begin(group, 0, ranks, world->size, offsets);
    free(offsets);
    free(ranks);
    return status;
}

/* Whoever comes through this barrier knows that nobody needs the store any more. */
static tt_status leave_store(tt_group *group, int64_t deadline_ms) {
    int64_t left = tt__left_ms(deadline_ms);
    group->world->joining = true;
    tt_status status = tt_barrier_with(
        TT_ARGS(tt_barrier_args, group, .timeout_ms = left ? left : 1, .file = "tt_init_process_group"));
    group->world->joining = false;
    return status;
}

/* Where all share memory, what rank 0 forces came with its card. */
static tt_status agree_on_algorithms(tt__world *world, const tt__member *member) {
    if (world->hosts > 1)
        return tt__tuning_agree(world, member);
    return world->size == 1 && member->algorithms ? tt__tuning_force(world, member->algorithms) : TT_OK;
}

/* From a world that knows itself alone to one whose ranks are all there. */
static tt_status join(tt__world *world, tt_group *group, const tt__member *member, int64_t deadline_ms) {
    if (world->size > 1)
        TT__TRY(tt__join(world, member, deadline_ms));
    TT__TRY(agree_on_algorithms(world, member));
    tt__progress_attach(&tt__world_control(world)->recorder);
    world->watched =
        tt__recorder_publish(&tt__world_control(world)->recorder, world->memory_fd, offsetof(tt__control, recorder));
    return begin_first_group(group);
}

tt_status tt__native_join(tt_group **out, const tt__member *member) {
    int64_t deadline_ms = tt__deadline_ms(member->timeout_ms);
    tt__world *world;
    tt_group *group = NULL;
    *out = NULL;
    TT__TRY(tt__world_make(&world, member->rank, member->world, member->heartbeat_ms, &member->launcher));
    tt_status status = tt__world_make_memory(world, member->world < TT__MAX_WORLD ? member->world : TT__MAX_WORLD);
    if (!status && !(group = tt__native_prepare(world, world->size, member->timeout_ms)))
        status = tt_last_status();
    bool joined = !status && !(status = join(world, group, member, deadline_ms));
    if (joined)
        status = leave_store(group, deadline_ms);
    if (joined && !status)
        tt__log(TT_LOG_DEBUG, "joined %d ranks on %d host%s: back end native, %s", world->size, world->hosts,
                world->hosts == 1 ? "" : "s", group->shared ? "shared memory" : "messages");
    if (status && world->size > 1)
        status = tt__joining_failed(member->store, member->prefix, world->rank, world->size);
    if (!joined) {
        tt__native_discard(group);
        group = NULL;
    }
    if (group && status)
        tt_destroy_process_group(group); /* with it ends the world */
    else if (status)
        tt__world_end(world);
    else
        *out = group;
    return status;
}

const tt__engine tt__native_engine = {
    .name = "native",
    .submit = tt__native_submit,
    .new_group = tt__native_new_group,
    .split = tt__native_split,
    .alloc = tt__native_alloc,
    .free = tt__native_free,
    .wait = tt__native_wait,
    .progress = tt__native_progress,
    .forget = tt__native_forget,
    .abort = tt__native_abort,
    .retire = tt__native_retire,
    .release = release,
};
