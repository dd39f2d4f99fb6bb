/* The native back end: a group of ranks that share one host's memory; its making and its end. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"
#include "comm/transport/connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Release everything of a group, also of a half-made one. */
static void release(tt_group *group) {
    for (int r = 0; group->peers && r < group->world; r++) {
        tt__peer *peer = &group->peers[r];
        tt__shm_unmap(&peer->shm);
        if (peer->socket >= 0)
            close(peer->socket);
        if (peer->pidfd >= 0)
            close(peer->pidfd);
    }
    if (group->memory_fd >= 0)
        close(group->memory_fd);
    tt__heap_free(group);
    free(group->peers);
    free(group);
}

static tt_group *new_group(const tt__member *member) {
    tt_group *group = calloc(1, sizeof *group);
    tt__peer *peers = calloc((size_t)member->world, sizeof *peers);
    if (!group || !peers) {
        free(group);
        free(peers);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", member->world);
    }
    for (int r = 0; r < member->world; r++)
        peers[r].socket = peers[r].pidfd = -1;
    *group = (tt_group){.rank = member->rank,
                        .world = member->world,
                        .timeout_ms = member->timeout_ms,
                        .heartbeat_ms = member->heartbeat_ms,
                        .peers = peers,
                        .launcher = member->launcher,
                        .owner = getpid(),
                        .memory_fd = -1};
    return group;
}

static tt_status make_own_memory(tt_group *group) {
    tt__peer *self = &group->peers[group->rank];
    TT__TRY(tt__shm_heap_bytes(group->world, &group->heap_bytes));
    TT__TRY(tt__shm_create(&self->shm, &group->memory_fd, group->rank, group->heap_bytes));
    self->control = tt__shm_control(&self->shm);
    return TT_OK;
}

static tt_status meet_others(tt_group *group, const tt__member *member, int64_t deadline_ms) {
    tt__card cards[TT__MAX_WORLD];
    int listener = -1;
    TT__TRY(tt__card_make(&cards[group->rank], group->world, group->heap_bytes));
    TT__TRY(tt__listen(&listener, group->world, &cards[group->rank]));
    tt_status status = tt__cards_exchange(member->store, member->prefix, group->rank, group->world, deadline_ms, cards);
    if (!status && (status = tt__connect_all(group, listener, cards, deadline_ms)))
        tt__joining_failed(member->store, member->prefix, group->rank, group->world);
    close(listener);
    /* Places in the heap are the same everywhere, so the smallest heap is everybody's. */
    for (int r = 0; !status && r < group->world; r++)
        if (cards[r].heap_bytes < group->heap_bytes)
            group->heap_bytes = cards[r].heap_bytes;
    return status;
}

/* Whoever comes through this barrier knows that nobody needs the store any more. */
static tt_status leave_store(tt_group *group, int64_t deadline_ms) {
    int64_t timeout_ms = group->timeout_ms, left = tt__left_ms(deadline_ms);
    group->timeout_ms = left ? left : 1;
    tt_status status = tt__barrier_at(group, "tt_init_process_group", 0);
    group->timeout_ms = timeout_ms;
    return status;
}

tt_status tt__native_join(tt_group **out, const tt__member *member) {
    int64_t deadline_ms = tt__deadline_ms(member->timeout_ms);
    *out = NULL;
    tt_group *group = new_group(member);
    if (!group)
        return tt_last_status();
    tt_status status = make_own_memory(group);
    if (!status && group->world > 1)
        status = meet_others(group, member, deadline_ms);
    if (!status)
        status = tt__heap_init(group);
    if (!status)
        status = leave_store(group, deadline_ms);
    if (status) {
        release(group);
        return status;
    }
    group->spin = tt__ranks_fit_cpus(group);
    *out = group;
    return TT_OK;
}

/* A child that the rank forked releases its copy of the group without a word: the rank goes on. */
static void say_left(tt_group *group) {
    tt__control *self = group->peers[group->rank].control;
    if (group->failed || group->owner != getpid())
        return;
    self->left_seq = group->seq;
    atomic_store_explicit(&self->state, TT__LEFT, memory_order_release);
    group->unrung = true;
    tt__ring(group);
}

void tt_destroy_process_group(tt_group *group) {
    if (!group || group->destroyed)
        return;
    say_left(group);
    if (group->holders)
        tt__group_retire(group);
    else
        release(group);
}

void tt__group_hold(tt_group *group) { group->holders++; }

void tt__group_let_go(tt_group *group) {
    if (--group->holders == 0 && group->destroyed)
        release(group);
}

int tt_get_rank(const tt_group *group) { return group ? group->rank : -1; }

int tt_get_world_size(const tt_group *group) { return group ? group->world : -1; }

int64_t tt_group_timeout_ms(const tt_group *group) { return group ? group->timeout_ms : -1; }

void tt_group_set_timeout_ms(tt_group *group, int64_t timeout_ms) {
    if (group)
        group->timeout_ms = timeout_ms > 0 ? timeout_ms : TT_DEFAULT_TIMEOUT_MS;
}
