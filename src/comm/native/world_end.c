/* The end of a world, and of groups whose memory peers may still read. */
#include "base/process/fork.h"
#include "comm/native_group.h"
#include "comm/record/crash_watch.h"
#include "comm/record/recovery.h"

#include <stdlib.h>
#include <unistd.h>

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
