/* The native engine: a process joins a job and shares memory with the ranks of its host; the end of its groups. */
#include "comm/native/native.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "base/process/limits.h"
#include "comm/record/crash_watch.h"
#include "comm/record/recovery.h"
#include "comm/shared/placement.h"

#include <stdlib.h>

static void leave_list(tt_group *group) {
    tt_group **at = &group->native->world->groups;
    while (*at && *at != group)
        at = &(*at)->native->next_group;
    if (*at)
        *at = group->native->next_group;
}

/* Drop the messages of a group in which nobody will receive any more. */
static void forget_messages(const tt_group *group) {
    const tt_group *groups[] = {group, group->native->cross, group->native->local};
    for (int i = 0; i < 3 && group->native->world->messages && !group->native->world->forked; i++)
        if (groups[i])
            tt__messages_forget(group->native->world->messages, groups[i]->id);
}

/* Release the group. Its memory is freed when the peers can't read it any more: tt__world_take(). */
static void native_release(tt_group *group) {
    tt__world *world = group->native->world;
    tt__world_own(world);
    tt__world_lock(world);
    tt__world_settle(world);
    leave_list(group);
    if (group->native->local)
        leave_list(group->native->local);
    if (group->native->cross)
        leave_list(group->native->cross);
    forget_messages(group);
    group->native->next_group = world->retired;
    world->retired = group;
    bool last = --world->references == 0;
    tt__world_unlock(world);
    if (last)
        tt__world_end(world);
}

/* ---- joining */

/* Begin the first group, of all ranks. Its area is the first range that every rank took of its heap. */
static tt_status begin_first_group(tt_group *group) {
    tt__world *world = group->native->world;
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

/* Wait until no rank needs the store any more. */
static tt_status leave_store(tt_group *group, int64_t deadline_ms) {
    int64_t left = tt__left_ms(deadline_ms);
    group->native->world->in_first_barrier = true;
    tt_status status = tt_barrier_with(
        TT_ARGS(tt_barrier_args, group, .timeout_ms = left ? left : 1, .file = "tt_init_process_group"));
    group->native->world->in_first_barrier = false;
    return status;
}

/* Divide this machine's CPUs among its ranks, for the threads of operators (tensor/device/parallel.h). */
static void share_cpus(const tt__world *world) {
    const uint64_t *masks[TT__MAX_HOST_RANKS];
    int ranks = 0, me = 0, strangers = 0;
    for (int r = 0; r < world->size; r++) {
        const tt__peer *peer = &world->peers[r];
        if (r == world->rank)
            me = ranks;
        if (peer->control && ranks < TT__MAX_HOST_RANKS)
            masks[ranks++] = peer->control->cpu_mask;
        else
            strangers += peer->same_machine;
    }
    tt__set_cpu_share(tt__cpu_share_of(masks, ranks, me, strangers, tt__world_control(world)->cpu_quota));
}

/* Join the job: meet all ranks, and begin the first group. */
static tt_status native_join(tt__world *world, tt_group *group, const tt__member *member, int64_t deadline_ms) {
    if (world->size > 1)
        TT__TRY(tt__join(world, member, deadline_ms));
    else if (member->algorithms)
        TT__TRY(tt__tuning_force(world, member->algorithms));
    share_cpus(world);
    tt__progress_attach(&tt__world_control(world)->recorder);
    tt__recovery_attach(&tt__world_control(world)->recorder);
    world->watched =
        tt__recorder_publish(&tt__world_control(world)->recorder, world->memory_fd, offsetof(tt__control, recorder));
    tt__fork_fd_drop(world->watched);
    tt__crash_watch(world->watched);
    return begin_first_group(group);
}

static const tt__engine native_engine = {
    .name = "native",
    .submit = tt__native_submit,
    .new_group = tt__native_new_group,
    .split = tt__native_split,
    .alloc = tt__native_alloc,
    .free = tt__native_free,
    .wait = tt__native_wait,
    .note_step = tt__native_note_step,
    .progress = tt__native_progress,
    .forget = tt__native_forget,
    .add_callback = tt__native_add_callback,
    .abort = tt__native_abort,
    .retire = tt__native_retire,
    .release = native_release,
};

tt_status tt__native_join(tt_group **out, const tt__member *member) {
    int64_t deadline_ms = tt__deadline_ms(member->timeout_ms);
    tt__world *world;
    tt_group *group = NULL;
    *out = NULL;
    TT__TRY(tt__world_make(&world, member->rank, member->world, member->heartbeat_ms, &member->agent_store));
    world->engine = &native_engine;
    world->progress = tt__world_progress;
    tt_status status = tt__world_make_memory(world);
    if (!status && !(group = tt__native_prepare(world, world->size, member->timeout_ms)))
        status = tt_last_status();
    bool joined = !status && !(status = native_join(world, group, member, deadline_ms));
    if (joined)
        status = leave_store(group, deadline_ms);
    if (joined && !status)
        tt__log(TT_LOG_DEBUG, "joined %d ranks on %d host%s: back end native, %s", world->size, world->hosts,
                world->hosts == 1 ? "" : "s", group->native->shared ? "shared memory" : "messages");
    if (status && world->size > 1)
        status = tt__joining_failed(&(tt__rendezvous){.store = member->store,
                                                      .prefix = member->prefix,
                                                      .rank = world->rank,
                                                      .world = world->size,
                                                      .notes = member->notes});
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
