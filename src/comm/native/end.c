/* The end of works and of groups. A rank that leaves or fails says so in its area, and to other hosts by a message. */
#include "base/error.h"
#include "base/process/fork.h"
#include "comm/native/native.h"
#include "comm/native_group.h"
#include "comm/record/crash_watch.h"
#include "comm/record/recovery.h"
#include "comm/shared/arrival.h"
#include "comm/shared/doorbell.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- one work */

static void cancel_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used && !work->group->native->world->forked; i++)
        if (!work->messages[i].done)
            tt__message_cancel(work->group->native->world->messages, &work->messages[i], TT_ERR_ABORTED);
}

/* Detach a child from its parent, which does not wait for it any more. */
static void orphan_child(tt_work *child) {
    child->parent = NULL;
    child->record = NULL;
    tt__work_let_go(child);
}

/* Wake the threads that sleep until something happens to this work. */
static void wake_waiters(const tt_work *work) {
    if (work->waiters && (work->waiters > 1 || work->waiter != tt__this_thread()))
        tt__world_wake(work->group->native->world);
}

void tt__work_complete(tt_work *work, tt_status status) {
    if (status)
        cancel_messages(work);
    if (work->child)
        orphan_child(work->child);
    work->child = NULL;
    work->status = status;
    work->phase = TT__DONE;
    if (work->record && !work->parent && !work->group->native->world->forked)
        tt__record_done(work->record, work->record_number, status ? TT__CALL_FAILED : TT__CALL_DONE, true);
    if (work->callbacks)
        tt__callbacks_due(&work->group->native->world->due, work);
    wake_waiters(work);
    atomic_store_explicit(&work->done, true, memory_order_release);
}

/* ---- the group */

/* Return the number of the last call published. On shared memory a thread without the lock may have begun the next: the
 * arrival words show it. */
static uint32_t last_call(const tt_group *group) {
    const tt__area *self = group->native->areas[group->rank];
    if (!group->native->shared)
        return group->native->seq;
    uint32_t even = (uint32_t)atomic_load_explicit(&self->slots[0].word, memory_order_acquire),
             odd = (uint32_t)atomic_load_explicit(&self->slots[1].word, memory_order_acquire);
    return (int32_t)(even - odd) > 0 ? even : odd;
}

static void end_announce(tt_group *group, tt_status status, const char *text) {
    tt__world *world = group->native->world;
    tt__area *self = group->native->areas[group->rank];
    if (group->native->announced || world->forked)
        return;
    group->native->announced = true;
    if (world->threaded && !group->native->parent)
        tt__news_send(world->messages, group->id, group->ranks, group->size,
                      status == TT_ERR_ABORTED ? TT__NEWS_ABORTED
                      : status                 ? TT__NEWS_FAILED
                                               : TT__NEWS_LEFT,
                      status, tt__calls_made(group, last_call(group)), text);
    if (!self)
        return;
    snprintf(self->failure_text, sizeof self->failure_text, "%s", text);
    self->failure = status;
    self->calls_made = tt__calls_made(group, last_call(group));
    atomic_store_explicit(&self->state, status ? TT__FAILED : TT__LEFT, memory_order_release);
    tt__ring_peers(group);
}

static void fail_works(tt_group *group, tt_status status) {
    for (tt_work *work = group->queue; work; work = work->next)
        if (work->phase != TT__DONE)
            tt__work_complete(work, status);
    for (tt_work *work = group->unordered; work; work = work->next)
        if (work->phase != TT__DONE)
            tt__work_complete(work, status);
    tt__works_unlink(group);
}

/* Is another rank at fault, which the text names already? All other errors are this rank's own. */
static bool is_about_another(tt_status status) {
    return status == TT_ERR_PEER || status == TT_ERR_TIMEOUT || status == TT_ERR_MISMATCH || status == TT_ERR_ABORTED;
}

tt_status tt__group_fail(tt_group *group) {
    tt_status status = tt_last_status();
    char text[sizeof group->failure_text];
    if (group->failed)
        return group->failed;
    if (group->native->parent && !group->native->parent->failed)
        return tt__group_fail(group->native->parent); /* peers learn why before the works of this one end */
    tt__group_note_failure(group);
    if (is_about_another(status))
        snprintf(text, sizeof text, "%s", group->failure_text);
    else
        snprintf(text, sizeof text, "rank %d failed: %.*s", group->native->world->rank, (int)sizeof text - 40,
                 group->failure_text);
    end_announce(group, status, text);
    if (group->native->local)
        tt__group_fail(group->native->local);
    if (group->native->cross)
        tt__group_fail(group->native->cross);
    fail_works(group, status);
    if (!group->native->parent && status == TT_ERR_PEER && !group->native->leaving && !tt__recovery_is_on())
        tt__error_file_write(group->failure_text, true);
    tt__world_wake(group->native->world);
    return status;
}

static void retire_one(tt_group *group) {
    if (group->failed)
        return;
    end_announce(group, TT_OK, tt__world_control(group->native->world)->own_failure);
    fail_works(group, TT_ERR_STATE);
}

void tt__note_own_failure(tt__world *world) {
    tt__control *control = tt__world_control(world);
    tt_status status;
    const char *text = tt__error_reason(&status);
    if (status)
        snprintf(control->own_failure, sizeof control->own_failure, "%s: %s", tt_status_name(status), text);
    else
        control->own_failure[0] = '\0';
}

void tt__native_note_step(tt_group *group) {
    tt__world_lock(group->native->world);
    tt__note_step(group);
    tt__world_unlock(group->native->world);
}

void tt__native_retire(tt_group *group) {
    tt__world_own(group->native->world);
    if (!group->failed && !group->native->world->forked)
        tt__note_own_failure(group->native->world);
    tt__world_lock(group->native->world);
    tt__world_settle(group->native->world); /* another thread of ours may be finding out why a group failed */
    retire_one(group);
    if (group->native->local)
        retire_one(group->native->local);
    if (group->native->cross)
        retire_one(group->native->cross);
    tt__callbacks_settle(&group->native->world->due, &group->native->world->lock, group);
}

void tt__native_abort(tt_group *group, const char *reason) {
    tt__saved_error saved;
    tt__error_save(&saved);
    tt__world_own(group->native->world);
    tt__world_lock(group->native->world);
    tt__fail(TT_ERR_ABORTED, "rank %d aborted the group: %s", group->native->world->rank, reason);
    tt__group_fail(group);
    tt__world_unlock(group->native->world);
    tt__error_restore(&saved);
}

/* ---- the end of the world, and of groups whose memory peers may still read */

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

/* Have all peers left the group, so that none reads its memory any more? A peer may still be about to enter it; into a
 * failed group a late peer may still write. */
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

/* Free the memory of destroyed groups that no peer can read any more. */
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
