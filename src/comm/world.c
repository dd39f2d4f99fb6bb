#include "comm/world.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

tt_status tt__world_make(tt__world **out, int rank, int size, int64_t heartbeat_ms, const tt__launcher *launcher) {
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
                         .launcher = *launcher,
                         .memory_fd = -1,
                         .listener = -1,
                         .watched = -1};
    pthread_mutex_init(&world->lock, NULL);
    *out = world;
    return TT_OK;
}

tt_status tt__world_make_memory(tt__world *world, int ranks) {
    tt__peer *self = &world->peers[world->rank];
    TT__TRY(tt__shm_heap_bytes(ranks, &world->heap.limit));
    TT__TRY(tt__shm_create(&self->shm, &world->memory_fd, world->rank, world->size, world->heap.limit));
    self->control = tt__shm_control(&self->shm);
    self->local = true;
    return tt__heap_init(world);
}

void tt__world_own(tt__world *world) {
    if (world->forked || world->owner == getpid())
        return;
    world->forked = true;
    world->asking = 0;
    pthread_mutex_init(&world->lock, NULL);
}

void tt__world_settle(tt__world *world) {
    while (world->asking) { /* for less than a second */
        tt__world_unlock(world);
        sched_yield();
        tt__world_lock(world);
    }
}

void tt__world_end(tt__world *world) {
    tt__world_own(world);
    tt__messages_close(world->messages, world->forked);
    if (world->peers[world->rank].control)
        tt__progress_detach(&tt__world_control(world)->recorder);
    while (world->retired) {
        tt_group *group = world->retired;
        world->retired = group->next_group;
        tt__group_free(group);
    }
    for (int r = 0; r < world->size; r++) {
        tt__peer *peer = &world->peers[r];
        tt__shm_unmap(&peer->shm);
        if (peer->socket >= 0)
            close(peer->socket);
        if (peer->pidfd >= 0)
            close(peer->pidfd);
    }
    if (world->memory_fd >= 0)
        close(world->memory_fd);
    if (world->listener >= 0)
        close(world->listener);
    if (world->watched >= 0)
        close(world->watched);
    free(world->hostnames);
    tt__heap_end(world);
    if (!world->forked)
        pthread_mutex_destroy(&world->lock); /* a forked child's may be locked for ever */
    free(world->tuning);
    free(world->peers);
    free(world);
}

bool tt__world_progress(tt__world *world) {
    bool left = false;
    if (world->messages && tt__messages_progress(world->messages))
        world->moves++;
    for (tt_group *group = world->groups, *next; group; group = next) {
        next = group->next_group;
        if (group->differs || atomic_load_explicit(&group->works, memory_order_relaxed))
            tt__group_advance(group);
        left |= atomic_load_explicit(&group->works, memory_order_relaxed) != 0;
    }
    return left;
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
