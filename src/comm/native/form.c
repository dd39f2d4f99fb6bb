/* Making native groups: an area is announced to the other ranks, and becomes a group that can be used.
 *
 * A group over several hosts has inner groups:
 *   local   the ranks of this host, which share memory
 *   cross   the ranks with this rank's number on their hosts; only if all hosts have equally many ranks */
#include "base/error.h"
#include "comm/collective/choose.h"
#include "comm/native/native.h"
#include "comm/shared/placement.h"

#include <stdlib.h>
#include <string.h>

/* An inner group has the id of its group with one of these bits set, which other ids leave free. */
static const uint32_t LOCAL_BIT = UINT32_C(1) << 30, CROSS_BIT = UINT32_C(1) << 31;

static int host_of(const tt_group *group, int r) { return group->native->world->peers[group->ranks[r]].host; }

/* Count the ranks among the first `end` that are on rank r's host. */
static int count_on_host(const tt_group *group, int r, int end) {
    int n = 0;
    for (int i = 0; i < end; i++)
        n += host_of(group, i) == host_of(group, r);
    return n;
}

static int first_on_host(const tt_group *group, int r) {
    int first = 0;
    while (host_of(group, first) != host_of(group, r))
        first++;
    return first;
}

/* Return how many ranks each host has, 0 if they differ; *most: on the fullest host. */
static int ranks_a_host(const tt_group *group, int *most) {
    int each = count_on_host(group, 0, group->size);
    bool alike = true;
    *most = each;
    for (int r = 1; r < group->size; r++) {
        int n = count_on_host(group, r, group->size);
        alike &= n == each;
        *most = n > *most ? n : *most;
    }
    return alike ? each : 0;
}

/* Describe the summation tree. left[i]: the first leaf on the left side of the join whose right side begins with leaf
 * i. Leaves are `stride` apart, from `first` on. */
static void describe_tree(int n, int first, int stride, int *left) {
    int p = 1, starts[TT__MAX_RANKS];
    while (2 * p <= n)
        p *= 2;
    for (int unit = 0, leaf = 0; unit < p; unit++) {
        starts[unit] = first + leaf++ * stride;
        if (unit < n - p) /* a folded pair */
            left[first + leaf++ * stride] = starts[unit];
    }
    for (int width = 1; width < p; width *= 2)
        for (int unit = 0; unit + width < p; unit += 2 * width)
            left[starts[unit + width]] = starts[unit];
}

/* Does the one summation order first sum each block of `each` consecutive ranks? */
static bool blocks_are_subtrees(int n, int each) {
    int whole[TT__MAX_RANKS] = {0}, composed[TT__MAX_RANKS] = {0};
    describe_tree(n, 0, 1, whole);
    for (int first = 0; first < n; first += each)
        describe_tree(each, first, 1, composed);
    describe_tree(n / each, 0, each, composed);
    return !memcmp(whole, composed, (size_t)n * sizeof *whole);
}

/* Fill in by_host and place, for `each` ranks a host. */
static tt_status order_by_host(tt_group *group, int each) {
    int n = group->size, hosts = 0;
    if (!(group->native->by_host = calloc(2 * (size_t)n, sizeof *group->native->by_host)))
        return tt__fail(TT_ERR_MEMORY, "no memory for the hosts of %d ranks", n);
    group->native->place = group->native->by_host + n;
    for (int r = 0; r < n; r++) {
        int number = count_on_host(group, r, r), first = first_on_host(group, r);
        group->native->place[r] = number ? group->native->place[first] + number : hosts++ * each;
        group->native->by_host[group->native->place[r]] = r;
    }
    return TT_OK;
}

/* Are ranks numbered host by host? */
static bool hosts_are_blocks(const tt_group *group) {
    bool blocks = true;
    for (int r = 0; r < group->size; r++)
        blocks &= group->native->place[r] == r;
    return blocks;
}

static tt_group *make_inner(tt_group *group, uint32_t bit, const int *members, int n) {
    tt_group *inner = tt__native_group_make(group->native->world, n, group->timeout_ms);
    if (!inner)
        return NULL;
    for (int i = 0; i < n; i++) {
        inner->ranks[i] = group->ranks[members[i]];
        if (members[i] == group->rank)
            inner->rank = i;
    }
    inner->native->parent = group;
    inner->id = group->id | bit;
    return inner;
}

/* Give the inner group its areas, which lie behind those of the group: see take_area(). */
static void share_memory(tt_group *local, const tt_group *group, const int *members) {
    for (int i = 0; i < local->size; i++) {
        local->native->areas[i] = group->native->areas[members[i]] + 1;
        local->native->bases[i] = group->native->bases[members[i]];
    }
    local->native->shared = true;
    local->native->spin = tt__ranks_fit_cpus(local);
    atomic_store_explicit(&local->native->areas[local->rank]->group, local->id, memory_order_release);
}

/* Set local, cross and subtrees of the group, where they are useful. */
static tt_status make_inner_groups(tt_group *group) {
    int most, each = ranks_a_host(group, &most), members[TT__MAX_RANKS] = {0}, n = 0;
    if (group->native->shared || most == 1)
        return TT_OK;
    for (int r = 0; r < group->size; r++)
        if (host_of(group, r) == host_of(group, group->rank))
            members[n++] = r;
    if (!(group->native->local = make_inner(group, LOCAL_BIT, members, n)))
        return tt_last_status();
    share_memory(group->native->local, group, members);
    if (!each)
        return TT_OK;
    TT__TRY(order_by_host(group, each));
    n = 0;
    for (int at = group->native->place[group->rank] % each; at < group->size; at += each)
        members[n++] = group->native->by_host[at];
    if (!(group->native->cross = make_inner(group, CROSS_BIT, members, n)))
        return tt_last_status();
    group->native->cross->native->spin = group->native->local->native->spin;
    group->native->subtrees = hosts_are_blocks(group) && blocks_are_subtrees(group->size, each);
    return TT_OK;
}

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
    tt_status status = make_inner_groups(group);
    atomic_store_explicit(&group->native->areas[group->rank]->group, id, memory_order_release);
    tt__world_lock(world);
    world->references++;
    add_to_world(group);
    tt__recorder_name_group(&tt__world_control(world)->recorder, id, ranks, size);
    if (status) /* the others expect this rank: announce why it does not take part */
        tt__group_fail(group);
    tt__world_unlock(world);
}
