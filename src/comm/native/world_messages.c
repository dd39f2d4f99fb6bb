/* The world's message engine: its making, and its callbacks into the rest of comm (message.h). */
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/record/call_record.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/shared/doorbell.h"
#include "comm/watch/verdicts.h"

#include <stdio.h>
#include <stdlib.h>

/* How often the thread checks a work on shared memory while no caller does. */
enum { POLL_MS = 1 };

static int64_t world_advance(void *arg) {
    tt__world *world = arg;
    uint32_t count = world->progress_count;
    world->progress(world);
    if (world->progress_count != count)
        tt__world_wake(world);
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        if (group->native->shared && atomic_load_explicit(&group->works, memory_order_relaxed))
            return POLL_MS;
    return -1;
}

static void run_callbacks(void *arg) {
    tt__world *world = arg;
    if (!world->due.first)
        return;
    tt__world_unlock(world);
    tt__world_lock(world);
}

static bool own_call_text(void *arg, uint32_t id, uint32_t seq, char *text, size_t size, uint32_t *word) {
    const tt__world *world = arg;
    return tt__find_call(world, world->rank, id, seq, text, size, word);
}

static bool may_call(void *arg, uint32_t id) { return tt__may_call(arg, id); }

static bool own_p2p_text(void *arg, uint32_t id, uint32_t record, char *text, size_t size) {
    const tt__world *world = arg;
    return tt__find_p2p(world, world->rank, id, record, text, size);
}

static void on_word(void *arg, uint32_t id, uint32_t seq, uint32_t word) {
    tt_group *group = tt__find_group(arg, id);
    if (group)
        tt__on_word(group, seq, word);
}

static bool ring_peer(void *arg, int rank, int *number, unsigned char **base, size_t *bytes, tt__ring_board **board) {
    const tt__world *world = arg;
    const tt__peer *peer = &world->peers[rank];
    if (!peer->local || !peer->control)
        return false;
    *number = tt__world_local_ranks(world, rank);
    *base = peer->shm.base;
    *bytes = peer->shm.size;
    *board = &peer->control->rings;
    return true;
}

static tt_status ring_memory(void *arg, size_t bytes, uint64_t *offset) {
    tt__world *world = arg;
    tt__extent *extent;
    bytes = TT__ALIGN_UP(bytes, TT__PAGE);
    TT__TRY(tt__world_take(world, bytes, false, &extent));
    tt_status status = tt__shm_commit(&world->peers[world->rank].shm, world->memory_fd, extent->offset, bytes);
    if (status)
        tt__world_give_back(world, extent, false);
    else
        *offset = extent->offset;
    return status;
}

static void world_wake_peer(void *arg, int rank) {
    tt__control *control = ((tt__world *)arg)->peers[rank].control;
    if (control && atomic_load_explicit(&control->sleepers, memory_order_relaxed))
        tt__doorbell_ring(control);
}

static tt_status joining_look(void *arg, const tt__rankset *absent) {
    tt__joining_watch *watch = ((tt__world *)arg)->joining_watch;
    return watch && tt__joining_watch_due(watch) ? tt__joining_watch_look(watch, absent) : TT_OK;
}

tt_status tt__world_messages(tt__world *world) {
    if (world->messages)
        return TT_OK;
    if (!world->hostnames && !(world->hostnames = calloc((size_t)world->size, sizeof *world->hostnames)))
        return tt__fail(TT_ERR_MEMORY, "no memory for the names of hosts");
    for (int r = 0; r < world->size; r++)
        world->hostnames[r] = world->peers[r].hostname;
    const tt__messages_config config = {.rank = world->rank,
                                        .size = world->size,
                                        .heartbeat_ms = world->heartbeat_ms,
                                        .lock = &world->lock,
                                        .world = world,
                                        .hostnames = world->hostnames,
                                        .advance = world_advance,
                                        .unlocked = run_callbacks,
                                        .call_text = own_call_text,
                                        .may_call = may_call,
                                        .record_text = own_p2p_text,
                                        .on_word = on_word,
                                        .waiting = &tt__world_control(world)->recorder.waiting,
                                        .offset_ns = &tt__world_control(world)->recorder.offset_ns,
                                        .joining_look = joining_look,
                                        .ring_peer = ring_peer,
                                        .ring_memory = ring_memory,
                                        .wake = world_wake_peer};
    return tt__messages_new(&world->messages, &config);
}
