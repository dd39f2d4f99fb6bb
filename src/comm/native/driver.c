/* The driver: runs the machines of works, in order.
 *
 * Works of a group wait in its queue. On shared memory, call k+1 is published when call k is agreed on and this rank
 * has done its own part of k, since there are two slots and one count of steps; k may still wait for others then. On
 * messages a call begins at once, unless one before it makes calls of its own on inner groups, which must come in the
 * same order on all ranks. Sends and receives wait for no other work. */
#include "comm/collective/choose.h"
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/op.h"
#include "comm/record/call_record.h"
#include "comm/shared/arrival.h"
#include "comm/shared/doorbell.h"
#include "comm/watch/verdicts.h"

static bool on_shared_memory(const tt_work *work) {
    return work->group->native->shared && !tt__op_is(work->call.op, TT__OP_BY_MESSAGES);
}

/* ---- one work */

static void number_call(tt_work *work) {
    if (work->hidden)
        tt__note_hidden(work->group, work->seq);
    tt__record_note_seq(work->record, work->record_number, work->seq, tt__newest_number(work->group, work->hidden));
}

void tt__work_publish(tt_work *work) {
    _Alignas(8) unsigned char room[TT__INLINE_MAX];
    tt__offer offer = {0};
    tt__offer_of(work, &offer, room);
    tt__publish(work, &offer);
    work->phase = TT__PUBLISHED;
    work->wait = (tt__wait){TT__ARRIVAL, work->seq, 0, work->group->size};
    if (!work->parent)
        number_call(work);
}

/* Log which algorithm serves the call, once for each operation and power of two of bytes. */
static void log_algorithm(const tt_work *work) {
    static _Atomic uint64_t logged[TT_OPS];
    uint64_t bytes = (uint64_t)work->call.count * tt_dtype_size(work->call.dtype);
    uint64_t bit = UINT64_C(1) << (bytes ? 63 - __builtin_clzll(bytes) : 0);
    if (atomic_fetch_or_explicit(&logged[work->call.op], bit, memory_order_relaxed) & bit)
        return;
    tt__log(TT_LOG_DEBUG, "%s of %llu bytes among %d ranks: algorithm %s%s", tt_op_name(work->call.op),
            (unsigned long long)bytes, work->group->size, work->algorithm->name,
            work->group->native->shared ? ", in shared memory" : "");
}

static tt_status begin_running(tt_work *work) {
    work->algorithm = tt__choose(work);
    if (!work->algorithm)
        return tt_last_status();
    if (work->call.op < TT_OP_NEW_GROUP && tt__log_wanted(TT_LOG_DEBUG))
        log_algorithm(work);
    work->packed_as = tt__choose_packed(work);
    work->children = (work->packed_as ? work->packed_as : work->algorithm)->children;
    work->phase = TT__RUNNING;
    if (!work->parent)
        tt__record_note_algorithm(work->record, work->record_number, tt__algorithm_number(work->algorithm));
    return TT_OK;
}

/* Agree on a work whose call all ranks have published. */
static tt_status work_agree(tt_work *work) {
    tt__wake_peers(work->group); /* wake peers first: what follows may be a long reduction */
    if (!tt__agree(work))
        return tt__fail_words(work);
    work->wait = (tt__wait){.what = TT__CHILD};
    return begin_running(work);
}

static tt_status work_start(tt_work *work) {
    if (!work->parent)
        tt__record_note_begun(work->record, work->record_number);
    if (on_shared_memory(work)) {
        tt__work_publish(work);
        return TT_OK;
    }
    TT__TRY(tt__world_messages(work->group->native->world));
    if (!tt__op_is(work->call.op, TT__OP_BY_MESSAGES)) {
        if (!++work->group->native->seq)
            ++work->group->native->seq; /* 0 is what sends and receives have */
        work->seq = work->group->native->seq;
        if (!work->parent)
            number_call(work);
    }
    work->word = (uint32_t)(tt__signature(work) >> 32);
    if (work->seq)
        tt__note_begun(work);
    if (tt__op_is(work->call.op, TT__OP_P2P))
        TT__TRY(tt__check_receivers(work));
    return begin_running(work);
}

static bool work_is_ready(tt_work *work) {
    switch (work->wait.what) {
    case TT__MESSAGES:
        return atomic_load_explicit(&work->pending, memory_order_acquire) <= work->wait.target;
    case TT__CHILD:
        return !work->child || atomic_load_explicit(&work->child->done, memory_order_acquire);
    default:
        return tt__ready(work->group, &work->wait);
    }
}

/* Return the status of the messages, or of the child, that the work waited for. */
static tt_status wait_outcome(tt_work *work) {
    if (work->wait.what == TT__MESSAGES)
        return tt__check_messages(work);
    if (work->wait.what != TT__CHILD || !work->child)
        return TT_OK;
    tt_work *child = work->child;
    tt_status status = child->status ? tt__work_error(child) : TT_OK;
    work->child = NULL;
    child->parent = NULL;
    tt__work_let_go(child);
    return status;
}

/* Begin the call that the machine asks for, as a work of the inner group. */
static tt_status begin_child(tt_work *work) {
    tt_group *group = work->child_call.group;
    tt_work *child = tt__work_take(group, &work->child_call.call);
    if (!child)
        return tt_last_status();
    child->parent = work;
    child->record = work->record;
    child->record_number = work->record_number;
    child->deadline_ms = work->deadline_ms;
    work->child = child;
    work->wait = (tt__wait){.what = TT__CHILD};
    tt__work_enqueue(child);
    tt__group_advance(group);
    return group->failed ? tt_last_status() : TT_OK;
}

static tt__run run_step(tt_work *work) {
    work->steps++;
    switch (work->algorithm->next(work)) {
    case TT__NEXT_DONE: /* also of messages that failed while next() ran */
        return tt__check_messages(work) ? TT__RUN_FAILED : TT__RUN_DONE;
    case TT__NEXT_WAIT:
        tt__wake_peers(work->group);
        return TT__RUN_WAITS;
    case TT__NEXT_CALL:
        return begin_child(work) ? TT__RUN_FAILED : TT__RUN_WAITS;
    case TT__NEXT_LOST_MESSAGE:
        tt__check_messages(work);
        return TT__RUN_FAILED;
    case TT__NEXT_REFUSED:
        return TT__RUN_REFUSED;
    default:
        return TT__RUN_FAILED;
    }
}

tt__run tt__work_run(tt_work *work) {
    tt__run run = TT__RUN_WAITS;
    if (work->phase == TT__QUEUED && work_start(work))
        return TT__RUN_FAILED;
    while (run == TT__RUN_WAITS && work->phase != TT__DONE && work_is_ready(work)) {
        if (work->phase == TT__PUBLISHED ? work_agree(work) : wait_outcome(work))
            return TT__RUN_FAILED;
        run = run_step(work);
    }
    return run;
}

/* Advance one work as far as possible without waiting. An error fails the group. */
static tt_status work_advance(tt_work *work) {
    uint32_t steps = work->steps;
    tt__run run = tt__work_run(work);
    work->group->native->world->progress_count += work->steps != steps;
    switch (run) {
    case TT__RUN_DONE:
        tt__work_complete(work, TT_OK);
        return TT_OK;
    case TT__RUN_REFUSED:
        work->refused = true;
        tt__work_complete(work, tt_last_status());
        return TT_OK;
    case TT__RUN_FAILED:
        return tt_last_status();
    default:
        return TT_OK;
    }
}

static bool driver_lets_next_begin(const tt_work *work) {
    if (work->phase == TT__DONE)
        return true;
    if (work->phase != TT__RUNNING)
        return false;
    return on_shared_memory(work) ? work->part_done : !work->children;
}

/* ---- all works */

static void advance_unordered(tt_group *group) {
    for (tt_work *work = group->unordered; work; work = work->next)
        if (work->phase != TT__DONE && work_advance(work)) {
            tt__group_fail(group);
            return;
        }
}

static bool fail_if_differing(tt_group *group) {
    if (!group->native->mismatch_seq || group->failed)
        return false;
    tt__fail_differing(group, group->native->mismatch_seq);
    tt__group_fail(group);
    return true;
}

void tt__group_advance(tt_group *group) {
    if (group->native->asking || (group->native->parent && group->native->parent->native->asking) ||
        fail_if_differing(group))
        return;
    for (tt_work *work = group->queue; work; work = work->next) {
        if (work->phase != TT__DONE && work_advance(work)) {
            tt__group_fail(group);
            break;
        }
        if (!driver_lets_next_begin(work))
            break;
    }
    advance_unordered(group);
    tt__wake_peers(group);
    tt__works_unlink(group);
}

bool tt__world_has_works(const tt__world *world) {
    for (const tt_group *group = world->groups; group; group = group->native->next_group)
        if (atomic_load_explicit(&group->works, memory_order_relaxed))
            return true;
    return false;
}

bool tt__world_progress(tt__world *world) {
    if (world->messages && tt__messages_progress(world->messages))
        world->progress_count++;
    for (tt_group *group = world->groups, *next; group; group = next) {
        next = group->native->next_group;
        if (group->native->mismatch_seq || atomic_load_explicit(&group->works, memory_order_relaxed))
            tt__group_advance(group);
    }
    return tt__world_has_works(world);
}
