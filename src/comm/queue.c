/* The native engine's works: their order, and who runs their machines.
 *
 * Works of a group wait in its queue. On shared memory a call is published when the one before it is agreed on and its rank's part of it
 * is done, since there are two slots and one count of steps; then both may wait for the others at once. On messages a call begins at once, unless one
 * before it makes calls of its own on inner groups, which must come in the same order on all ranks. Sends and receives wait for nobody.
 *
 * A synchronous call that finds the queue empty, on shared memory, doesn't enter it: it runs alone, without the lock. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/collective/algorithms.h"
#include "comm/collective/p2p.h"
#include "comm/group.h"

static bool on_shared_memory(const tt_work *work) { return work->group->shared && !tt__by_messages(work->call.op); }

/* ---- one work */

/* A child that its parent does not wait for any more. */
static void orphan(tt_work *child) {
    child->parent = NULL;
    child->record = NULL;
    if (child->phase == TT__DONE)
        tt__work_give_back(child);
}

void tt__work_complete(tt_work *work, tt_status status) {
    if (status)
        tt__cancel_messages(work);
    if (work->child)
        orphan(work->child);
    work->child = NULL;
    work->status = status;
    work->phase = TT__DONE;
    if (work->record && !work->parent && !work->group->world->forked)
        tt__record_done(work->record, work->record_number, status ? TT__CALL_FAILED : TT__CALL_DONE, true);
    atomic_fetch_sub_explicit(&work->group->works, 1, memory_order_release);
    atomic_store_explicit(&work->done, true, memory_order_release);
}

static void publish(tt_work *work) {
    _Alignas(8) unsigned char room[TT__INLINE_MAX];
    tt__offer offer = {0};
    tt__offer_of(work, &offer, room);
    tt__publish(work, &offer);
    work->phase = TT__PUBLISHED;
    work->wait = (tt__wait){TT__ARRIVAL, work->seq, 0, work->group->size};
    if (!work->parent)
        work->record->seq = work->seq;
}

/* Log which algorithm serves the call, once for each operation and power of two of bytes. */
static void log_algorithm(const tt_work *work) {
    static _Atomic uint64_t logged[TT_OPS];
    uint64_t bytes = work->call.count * tt_dtype_size(work->call.dtype);
    uint64_t bit = UINT64_C(1) << (bytes ? 63 - __builtin_clzll(bytes) : 0);
    if (atomic_fetch_or_explicit(&logged[work->call.op], bit, memory_order_relaxed) & bit)
        return;
    tt__log(TT_LOG_DEBUG, "%s of %llu bytes among %d ranks: algorithm %s%s", tt_op_name(work->call.op),
            (unsigned long long)bytes, work->group->size, work->algorithm->name,
            work->group->shared ? ", in shared memory" : "");
}

static tt_status begin_running(tt_work *work) {
    work->algorithm = tt__choose(work);
    if (!work->algorithm)
        return tt_last_status();
    if (work->call.op < TT_OP_NEW_GROUP && tt__log_wanted(TT_LOG_DEBUG))
        log_algorithm(work);
    work->children = work->algorithm->children;
    work->phase = TT__RUNNING;
    if (!work->parent)
        work->record->algorithm = tt__algorithm_number(work->algorithm);
    return TT_OK;
}

/* All have come. */
static tt_status agree(tt_work *work) {
    tt__wake_peers(work->group); /* nobody should sleep through what may be a long reduction */
    TT__TRY(tt__agree(work));
    return begin_running(work);
}

static tt_status start(tt_work *work) {
    if (!work->parent)
        tt__record_ready(work->record, TT__CALL_BEGUN);
    if (on_shared_memory(work)) {
        publish(work);
        return TT_OK;
    }
    TT__TRY(tt__world_messages(work->group->world));
    if (!tt__by_messages(work->call.op)) {
        if (!++work->group->seq)
            ++work->group->seq; /* 0 is what sends and receives have */
        work->seq = work->group->seq;
        if (!work->parent)
            work->record->seq = work->seq;
    }
    work->word = tt__signature(work);
    if (work->seq)
        tt__note_begun(work);
    return begin_running(work);
}

static bool is_ready(tt_work *work) {
    switch (work->wait.what) {
    case TT__MESSAGES:
        return atomic_load_explicit(&work->pending, memory_order_acquire) <= work->wait.target;
    case TT__CHILD:
        return !work->child || atomic_load_explicit(&work->child->done, memory_order_acquire);
    default:
        return tt__ready(work->group, &work->wait);
    }
}

/* What came of messages or of the child that the work waited for. */
static tt_status outcome(tt_work *work) {
    if (work->wait.what == TT__MESSAGES)
        return tt__check_messages(work);
    if (work->wait.what != TT__CHILD || !work->child)
        return TT_OK;
    tt_work *child = work->child;
    tt_status status = child->status ? tt__work_error(child) : TT_OK;
    work->child = NULL;
    tt__work_give_back(child);
    return status;
}

/* Move one work as far as it goes without waiting. An error fails the group. */
static tt_status advance(tt_work *work) {
    if (work->phase == TT__QUEUED)
        TT__TRY(start(work));
    if (work->phase == TT__PUBLISHED) {
        if (!is_ready(work))
            return TT_OK;
        TT__TRY(agree(work));
        work->wait = (tt__wait){.what = TT__CHILD};
    }
    while (work->phase == TT__RUNNING && is_ready(work)) {
        TT__TRY(outcome(work));
        work->group->world->moves++;
        switch (work->algorithm->next(work)) {
        case TT__NEXT_DONE: /* also of messages that failed while next() ran */
            TT__TRY(tt__check_messages(work));
            tt__work_complete(work, TT_OK);
            break;
        case TT__NEXT_REFUSED:
            work->refused = true;
            tt__work_complete(work, tt_last_status());
            break;
        case TT__NEXT_FAILED:
            return tt_last_status();
        default:
            break;
        }
    }
    return TT_OK;
}

static bool lets_next_begin(const tt_work *work) {
    if (work->phase == TT__DONE)
        return true;
    if (work->phase != TT__RUNNING)
        return false;
    return on_shared_memory(work) ? work->part_done : !work->children;
}

/* Nobody waits for it and nobody owns it: it can be used again. */
static void recycle(tt_work *work) {
    if (!work->owned && !work->parent)
        tt__work_give_back(work);
}

/* Take done works out of a list. Returns the last that stays. */
static tt_work *unlink_done(tt_work **list) {
    tt_work *last = NULL;
    for (tt_work **at = list; *at;) {
        tt_work *work = *at;
        if (work->phase == TT__DONE) {
            *at = work->next;
            recycle(work);
        } else {
            last = work;
            at = &work->next;
        }
    }
    return last;
}

void tt__group_unlink(tt_group *group) {
    group->queue_end = unlink_done(&group->queue);
    unlink_done(&group->loose);
}

static void advance_loose(tt_group *group) {
    for (tt_work *work = group->loose; work; work = work->next)
        if (work->phase != TT__DONE && advance(work)) {
            tt__group_fail(group);
            return;
        }
}

static bool fail_if_differing(tt_group *group) {
    if (!group->differs || group->failed)
        return false;
    tt__fail_differing(group, group->differs);
    tt__group_fail(group);
    return true;
}

void tt__group_advance(tt_group *group) {
    if (group->asking || (group->parent && group->parent->asking) || fail_if_differing(group))
        return;
    for (tt_work *work = group->queue; work; work = work->next) {
        if (work->phase != TT__DONE && advance(work)) {
            tt__group_fail(group);
            break;
        }
        if (!lets_next_begin(work))
            break;
    }
    advance_loose(group);
    tt__group_unlink(group);
    tt__wake_peers(group);
}

/* ---- calls */

static void enqueue(tt_group *group, tt_work *work) {
    atomic_fetch_add_explicit(&group->works, 1, memory_order_relaxed);
    work->next = NULL;
    if (tt__is_p2p(work->call.op)) {
        work->next = group->loose;
        group->loose = work;
        return;
    }
    if (group->queue_end)
        group->queue_end->next = work;
    else
        group->queue = work;
    group->queue_end = work;
}

static void record(tt_work *work, int flags) {
    work->record = tt__record_call(work->group, &work->call, 0, flags);
    work->record_number = atomic_load_explicit(&work->record->number, memory_order_relaxed);
    tt__record_ready(work->record, flags & TT__RECORD_ASYNC ? TT__CALL_QUEUED : TT__CALL_BEGUN);
}

static tt_status run_to_end(tt_work *work) {
    tt_group *group = work->group;
    TT__TRY(tt__wait_alone(work));
    tt_status status = TT_OK;
    if (work->phase == TT__PUBLISHED) {
        status = tt__agree(work);
        if (!status)
            status = begin_running(work);
    }
    while (!status) {
        switch (work->algorithm->next(work)) {
        case TT__NEXT_DONE:
            work->phase = TT__DONE;
            tt__record_done(work->record, work->record_number, TT__CALL_DONE, true);
            tt__wake_peers(group);
            return TT_OK;
        case TT__NEXT_WAIT:
            TT__TRY(tt__wait_alone(work));
            break;
        default:
            status = tt_last_status();
        }
    }
    tt__world_lock(group->world);
    tt__group_fail(group);
    tt__world_unlock(group->world);
    return status;
}

/* The call that runs alone in the group, from what it waits for on. */
static tt_status run_on(tt_work *work) {
    tt_status status = run_to_end(work);
    if (status)
        tt__record_done(work->record, work->record_number, TT__CALL_FAILED, true);
    return status;
}

/* Without queue and lock: nobody else touches the group. */
static tt_work *prepare_alone(tt_group *group, const tt_call *call) {
    tt_work *work = &group->alone;
    work->call = *call;
    work->stage = 0;
    work->part_done = false;
    work->deadline_ms = 0;
    return work;
}

static tt_status run_alone(tt_group *group, const tt_call *call) {
    tt_work *work = prepare_alone(group, call);
    record(work, 0);
    publish(work);
    return run_on(work);
}

tt_status tt__native_go_on(tt_group *group, const tt_call *call, tt__record *call_record, uint32_t seq, uint64_t word,
                           const tt__algorithm *algorithm, uint32_t step) {
    tt_work *work = prepare_alone(group, call);
    work->record = call_record;
    work->record_number = atomic_load_explicit(&call_record->number, memory_order_relaxed);
    work->seq = seq;
    work->word = (uint32_t)(word >> 32) & ~1U;
    work->phase = algorithm ? TT__RUNNING : TT__PUBLISHED;
    work->wait = (tt__wait){algorithm ? TT__STEP : TT__ARRIVAL, algorithm ? step : seq, 0, group->size};
    work->algorithm = algorithm;
    work->stage = algorithm != NULL;
    group->unrung = true;
    return run_on(work);
}

static tt_status wait_and_forget(tt_work *work) {
    tt__wait_done(work);
    tt_status status = work->status ? tt__work_error(work) : TT_OK;
    work->owned = false;
    tt__work_give_back(work);
    return status;
}

/* A call behind this work has less time: if it runs out, the group fails, and the work with it. */
static void hurry(tt_work *work, int64_t deadline_ms, int64_t timeout_ms) {
    if (work->deadline_ms <= deadline_ms)
        return;
    work->deadline_ms = deadline_ms;
    work->call.timeout_ms = timeout_ms;
}

/* On messages works run side by side, so the last of them may be done first. */
static tt_status complete_earlier(tt_group *group, int64_t deadline_ms, int64_t timeout_ms) {
    while (group->queue && !group->failed) {
        hurry(group->queue, deadline_ms, timeout_ms);
        tt__wait_done(group->queue);
        tt__group_unlink(group);
    }
    return group->failed ? tt__group_check(group) : TT_OK;
}

static tt_status submit_queued(tt_group *group, const tt_call *call, tt_work **out) {
    int64_t deadline_ms = tt__deadline_ms(call->timeout_ms);
    if (!out && !tt__is_p2p(call->op))
        TT__TRY(complete_earlier(group, deadline_ms, call->timeout_ms));
    tt_work *work = tt__work_take(group, call);
    if (!work)
        return tt_last_status();
    work->owned = true;
    work->deadline_ms = deadline_ms;
    record(work, out ? TT__RECORD_ASYNC : 0);
    enqueue(group, work);
    tt__group_advance(group);
    if (!out)
        return wait_and_forget(work);
    group->owned++;
    *out = work;
    if (group->world->messages)
        tt__messages_leave(group->world->messages);
    return TT_OK;
}

tt_status tt__native_submit(tt_group *group, const tt_call *call, tt_work **out) {
    tt__world *world = group->world;
    atomic_store_explicit(&group->user, tt__this_thread(), memory_order_relaxed);
    if (!out && group->shared && !tt__by_messages(call->op) &&
        !atomic_load_explicit(&group->works, memory_order_acquire))
        return run_alone(group, call);
    tt__world_lock(world);
    tt_status status = group->failed ? tt__group_check(group) : submit_queued(group, call, out);
    tt__world_unlock(world);
    return status;
}

tt_status tt__native_wait(tt_work *work) {
    tt__world *world = work->group->world;
    tt__world_lock(world);
    tt__wait_done(work);
    tt__world_unlock(world);
    return work->status ? tt__work_error(work) : TT_OK;
}

tt_status tt__native_progress(tt_group *group) {
    tt__world_lock(group->world);
    tt__world_progress(group->world);
    tt_status status = group->failed ? tt__group_check(group) : TT_OK;
    tt__world_unlock(group->world);
    return status;
}

void tt__native_forget(tt_work *work) {
    tt__world *world = work->group->world;
    if (tt__is_inherited(work->group))
        tt__world_own(world);
    tt__world_lock(world);
    work->group->owned--;
    work->owned = false;
    if (work->phase == TT__DONE)
        tt__work_give_back(work);
    tt__world_unlock(world);
}

/* ---- for machines */

tt__next tt__work_wait_ranks(tt_work *work, uint32_t step, int next, int end) {
    work->wait = (tt__wait){TT__STEP, step, next, end};
    return TT__NEXT_WAIT;
}

tt__next tt__work_wait_steps(tt_work *work, uint32_t step) {
    return tt__work_wait_ranks(work, step, 0, work->group->size);
}

tt__next tt__work_wait_last(tt_work *work, uint32_t step) {
    work->part_done = true;
    return tt__work_wait_steps(work, step);
}

tt_status tt__work_begin_child(tt_work *work, tt_group *group, const tt_call *call) {
    tt_work *child = tt__work_take(group, call);
    if (!child)
        return tt_last_status();
    child->parent = work;
    child->record = work->record;
    child->record_number = work->record_number;
    child->deadline_ms = work->deadline_ms;
    work->child = child;
    enqueue(group, child);
    tt__group_advance(group);
    return group->failed ? tt_last_status() : TT_OK;
}

tt__next tt__work_wait_child(tt_work *work) {
    work->wait = (tt__wait){.what = TT__CHILD};
    return TT__NEXT_WAIT;
}
