/* Calls become works. A synchronous call that finds the queue empty, on shared memory, doesn't enter it: it runs alone,
 * without the lock. */
#include "comm/native/native.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/op.h"
#include "comm/record/call_record.h"
#include "comm/shared/arrival.h"
#include "comm/shared/doorbell.h"

static void record_work(tt_work *work, int flags) {
    work->hidden = work->group->native->goes_on || tt__is_librarys(&work->call);
    work->record = tt__record_call(work->group, &work->call, 0, flags);
    work->record_number = atomic_load_explicit(&work->record->number, memory_order_relaxed);
    tt__record_ready(work->record, flags & TT__RECORD_ASYNC ? TT__CALL_QUEUED : TT__CALL_BEGUN);
}

static tt_status run_to_end(tt_work *work) {
    tt_group *group = work->group;
    tt__run run;
    while ((run = tt__work_run(work)) == TT__RUN_WAITS)
        TT__TRY(tt__wait_alone(work));
    if (run == TT__RUN_DONE) {
        work->phase = TT__DONE;
        tt__record_done(work->record, work->record_number, TT__CALL_DONE, true);
        tt__wake_peers(group);
        return TT_OK;
    }
    tt_status status = tt_last_status();
    tt__world_lock(group->native->world);
    tt__group_fail(group);
    tt__world_unlock(group->native->world);
    return status;
}

/* Run a call that is alone in the group to its end, beginning with what it waits for. */
static tt_status run_on(tt_work *work) {
    atomic_store_explicit(&work->group->alone, true, memory_order_relaxed);
    tt_status status = run_to_end(work);
    atomic_store_explicit(&work->group->alone, false, memory_order_relaxed);
    if (status)
        tt__record_done(work->record, work->record_number, TT__CALL_FAILED, true);
    return status;
}

/* Prepare a call that runs alone, without queue and lock: no other thread touches the group. */
static tt_work *prepare_alone(tt_group *group, const tt_call *call) {
    tt_work *work = &group->native->sync_work;
    work->call = *call;
    work->stage = 0;
    work->part_done = false;
    work->deadline_ms = 0;
    return work;
}

static tt_status run_alone(tt_group *group, const tt_call *call) {
    tt_work *work = prepare_alone(group, call);
    record_work(work, 0);
    tt__work_publish(work);
    return run_on(work);
}

tt_status tt__native_go_on(tt_group *group, const tt_call *call, tt__record_slot *call_record, uint64_t word,
                           const tt__algorithm *algorithm, uint32_t step) {
    tt_work *work = prepare_alone(group, call);
    work->record = call_record;
    work->record_number = atomic_load_explicit(&call_record->number, memory_order_relaxed);
    work->seq = (uint32_t)word;
    work->word = tt__word_signature(word);
    work->phase = algorithm ? TT__RUNNING : TT__PUBLISHED;
    work->wait = (tt__wait){algorithm ? TT__STEP : TT__ARRIVAL, algorithm ? step : work->seq, 0, group->size};
    work->algorithm = algorithm;
    work->stage = algorithm != NULL;
    group->native->wake_pending = true;
    return run_on(work);
}

/* A caller returns to its program: let the engine's thread take over what is under way. */
static void leave_what_is_left(tt__world *world) {
    if (world->messages && tt__world_has_works(world))
        tt__messages_leave_soon(world->messages);
}

static tt_status submit_wait_and_forget(tt_work *work) {
    tt__world *world = work->group->native->world;
    tt__wait_done(work, INT64_MAX);
    tt_status status = work->status ? tt__work_error(work) : TT_OK;
    work->owned = false;
    tt__work_let_go(work);
    leave_what_is_left(world);
    return status;
}

/* Lower the work's deadline to that of a call behind it: when that passes, the group fails, and the work with it. */
static void limit_timeout(tt_work *work, int64_t deadline_ms, int64_t timeout_ms) {
    if (work->deadline_ms <= deadline_ms)
        return;
    work->deadline_ms = deadline_ms;
    work->call.timeout_ms = timeout_ms;
}

/* Complete the works before this one. On messages works run side by side, so the last of them may be done first. */
static tt_status complete_earlier(tt_group *group, int64_t deadline_ms, int64_t timeout_ms) {
    while (group->queue && !group->failed) {
        limit_timeout(group->queue, deadline_ms, timeout_ms);
        tt__wait_done(group->queue, INT64_MAX);
        tt__works_unlink(group);
    }
    return group->failed ? tt__group_check(group) : TT_OK;
}

static tt_status submit_queued(tt_group *group, const tt_call *call, tt_work **out) {
    int64_t deadline_ms = tt__deadline_ms(call->timeout_ms);
    if (!out && !tt__op_is(call->op, TT__OP_P2P))
        TT__TRY(complete_earlier(group, deadline_ms, call->timeout_ms));
    tt_work *work = tt__work_take(group, call);
    if (!work)
        return tt_last_status();
    work->owned = true;
    work->deadline_ms = deadline_ms;
    record_work(work, out ? TT__RECORD_ASYNC : 0);
    tt__work_enqueue(work);
    tt__group_advance(group);
    if (!out)
        return submit_wait_and_forget(work);
    atomic_fetch_add_explicit(&group->owned, 1, memory_order_relaxed);
    *out = work;
    if (group->native->world->messages)
        tt__messages_leave(group->native->world->messages);
    return TT_OK;
}

static tt_status fail_overlap(const tt_call *call) {
    return tt__fail(TT_ERR_STATE,
                    "%s: another synchronous call on the group is under way, in another thread, or in this one, which "
                    "runs a callback within it. Calls on one group must not overlap",
                    tt_op_name(call->op));
}

tt_status tt__native_submit(tt_group *group, const tt_call *call, tt_work **out) {
    tt__world *world = group->native->world;
    if (__builtin_expect(atomic_load_explicit(&group->alone, memory_order_relaxed), 0))
        return fail_overlap(call);
    atomic_store_explicit(&group->native->user, tt__this_thread(), memory_order_relaxed);
    if (!out && group->native->shared && !tt__op_is(call->op, TT__OP_BY_MESSAGES) &&
        !atomic_load_explicit(&group->works, memory_order_acquire))
        return run_alone(group, call);
    tt__world_lock(world);
    tt_status status = group->failed ? tt__group_check(group) : submit_queued(group, call, out);
    tt__world_unlock(world);
    return status;
}

tt_status tt__native_wait(tt_work *work, int64_t until_ms, bool *done) {
    tt__world *world = work->group->native->world;
    tt__world_lock(world);
    work->waiters++; /* kept until it has been read: another thread may free it meanwhile */
    tt__wait_done(work, until_ms);
    tt_status status = work->status ? tt__work_error(work) : TT_OK;
    *done = work->phase == TT__DONE;
    work->waiters--;
    tt__work_let_go(work);
    leave_what_is_left(world);
    tt__world_unlock(world);
    return status;
}

tt_status tt__native_progress(tt_group *group) {
    tt__world_lock(group->native->world);
    tt__world_progress(group->native->world);
    leave_what_is_left(group->native->world);
    tt_status status = group->failed ? tt__group_check(group) : TT_OK;
    tt__world_unlock(group->native->world);
    return status;
}

void tt__native_forget(tt_work *work) {
    tt__world *world = work->group->native->world;
    if (tt__is_inherited(work->group))
        tt__world_own(world);
    tt__world_lock(world);
    tt_group *group = work->group;
    work->owned = false;
    tt__work_let_go(work);
    tt__group_drop(group);
    tt__world_unlock(world);
}

void tt__native_add_callback(tt_work *work, tt__callback *callback) {
    tt__world *world = work->group->native->world;
    tt__world_lock(world);
    tt__callback_attach(&world->due, work, callback);
    tt__world_unlock(world);
}

tt_status tt__exchange(tt_group *group, const tt_call *call, const void *mine, size_t bytes, void *all) {
    tt_call exchange = *call;
    exchange.send = mine;
    exchange.recv = all;
    exchange.buffers = bytes;
    return tt__native_submit(group, &exchange, NULL);
}
