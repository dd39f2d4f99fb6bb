#include "comm/world.h"

#include "base/error.h"
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

void tt__world_wake(tt__world *world) {
    tt__control *self = tt__world_control(world);
    if (world->forked)
        return;
    if (self && atomic_load_explicit(&self->sleepers, memory_order_relaxed))
        tt__doorbell_ring(self);
    if (world->threaded)
        tt__messages_wake(world->messages);
}
