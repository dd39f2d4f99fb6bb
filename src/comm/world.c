#include "comm/world.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/fork_fds.h"
#include "comm/native_group.h"
#include "comm/record/crash_watch.h"
#include "comm/record/recovery.h"
#include "comm/shared/doorbell.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

tt_status tt__world_make(tt__world **out, int rank, int size, int64_t heartbeat_ms,
                         const tt__agent_store *agent_store) {
    tt__world *world = calloc(1, sizeof *world);
    tt__peer *peers = calloc((size_t)size, sizeof *peers);
    *out = NULL;
    if (!world || !peers) {
        free(world);
        free(peers);
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of %d ranks", size);
    }
    for (int r = 0; r < size; r++)
        peers[r].socket = peers[r].pidfd = -1;
    *world = (tt__world){.rank = rank,
                         .size = size,
                         .hosts = size == 1,
                         .owner = getpid(),
                         .heartbeat_ms = heartbeat_ms,
                         .peers = peers,
                         .agent_store = *agent_store,
                         .memory_fd = -1,
                         .listener = -1,
                         .watched = -1};
    pthread_mutex_init(&world->lock, NULL);
    *out = world;
    return TT_OK;
}

tt_status tt__world_make_memory(tt__world *world) {
    tt__peer *self = &world->peers[world->rank];
    size_t limit;
    TT__TRY(tt__shm_heap_bytes(&limit));
    TT__TRY(tt__shm_create(&self->shm, &world->memory_fd, world->rank, world->size, limit));
    self->control = tt__shm_control(&self->shm);
    self->local = true;
    return tt__heap_init(&world->heap, &self->shm, limit);
}

int tt__world_local_ranks(const tt__world *world, int end) {
    int n = 0;
    for (int r = 0; r < end; r++)
        n += world->peers[r].local;
    return n;
}

void tt__world_own(tt__world *world) {
    if (world->forked || world->owner == getpid())
        return;
    world->forked = true;
    world->asking = 0;
    world->elsewhere = 0;
    tt__callbacks_drop(&world->due);
    pthread_mutex_init(&world->lock, NULL);
}

void tt__world_settle(tt__world *world) {
    while (world->asking) { /* for less than a second */
        tt__world_unlock(world);
        sched_yield();
        tt__world_lock(world);
    }
}

static void close_marked(int fd) {
    tt__fork_fd_forget(fd);
    if (fd >= 0)
        close(fd);
}

void tt__world_end(tt__world *world) {
    tt__world_own(world);
    tt__messages_close(world->messages, world->forked);
    if (world->peers[world->rank].control) {
        tt__progress_detach(&tt__world_control(world)->recorder);
        tt__recovery_detach(&tt__world_control(world)->recorder);
    }
    while (world->retired) {
        tt_group *group = world->retired;
        world->retired = group->native->next_group;
        tt__native_group_free(group);
    }
    for (int r = 0; r < world->size; r++) {
        tt__peer *peer = &world->peers[r];
        tt__shm_unmap(&peer->shm);
        close_marked(peer->socket);
        if (peer->pidfd >= 0)
            close(peer->pidfd);
    }
    if (world->memory_fd >= 0)
        close(world->memory_fd);
    if (world->listener >= 0)
        close(world->listener);
    tt__crash_unwatch(world->watched);
    close_marked(world->watched);
    free(world->hostnames);
    tt__heap_end(&world->heap);
    if (!world->forked)
        pthread_mutex_destroy(&world->lock); /* a forked child's may be locked for ever */
    free(world->tuning);
    free(world->peers);
    free(world);
}

void tt__world_wake(tt__world *world) {
    tt__control *self = tt__world_control(world);
    if (world->forked)
        return;
    if (self && atomic_load_explicit(&self->sleepers, memory_order_relaxed))
        tt__doorbell_ring(self);
    if (world->threaded)
        tt__messages_wake(world->messages);
}

/* ---- memory */

/* Have all peers left the group, so that none reads its memory any more? One may still be about to enter it; a late one
 * may still write a failed group's. */
static bool group_is_over(const tt_group *group) {
    if (group->failed)
        return false;
    for (int r = 0; r < group->size; r++) {
        const tt__area *area = group->native->areas[r];
        uint32_t state = area ? atomic_load_explicit(&area->state, memory_order_acquire) : TT__LEFT;
        uint32_t id = area ? atomic_load_explicit(&area->group, memory_order_acquire) : 0;
        if (area && state == TT__MEMBER && (id == group->id || id == TT__FORMING))
            return false;
    }
    return true;
}

/* Give back what destroyed groups had. */
static void free_retired(tt__world *world) {
    for (tt_group **at = &world->retired; *at;) {
        tt_group *group = *at;
        if (!group_is_over(group)) {
            at = &group->native->next_group;
            continue;
        }
        *at = group->native->next_group;
        while (group->allocations) {
            tt__allocation *allocation = group->allocations;
            group->allocations = allocation->next;
            tt__heap_give_back(&world->heap, allocation->extent, true);
            free(allocation);
        }
        tt__heap_give_back(&world->heap, group->native->area_extent, false);
        group->native->area_extent = NULL;
        tt__native_group_free(group);
    }
}

tt_status tt__world_take(tt__world *world, size_t bytes, bool limited, tt__extent **out) {
    free_retired(world);
    return tt__heap_take(&world->heap, bytes, limited, out);
}

void tt__world_give_back(tt__world *world, tt__extent *extent, bool limited) {
    tt__heap_give_back(&world->heap, extent, limited);
}
