/* A plug-in group's works: their order, waiting, and the end of all of them.
 *
 * complete_task() completes a work, exactly once: with the plug-in's lock held, when all parts of its task have ended,
 * or when the group fails or is destroyed. */
#include "base/error.h"
#include "base/log.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "comm/backend/plugin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GIVE_UP_MS = 5000,  /* how long an engine may take to end what was aborted */
    AGREEMENT_MS = 3000 /* an agreement may time out this much later than its call */
};

static bool is_p2p(tt_op op) { return tt__op_is(op, TT__OP_P2P); }

static void set_task(tt_work *work, const tt__task *task) { work->state[0] = (uintptr_t)task; }

/* ---- tasks */

/* Return the i-th of the calls that `call` consists of. */
static tt_call nth_call(const tt_call *call, size_t i) {
    tt_call one = *call;
    if (call->op == TT_OP_ALL_REDUCE_COALESCED) {
        one.op = TT_OP_ALL_REDUCE;
        one.send = one.recv = call->bufs[i];
        one.count = call->recv_counts[i];
        one.recv_counts = NULL;
    } else if (call->op == TT_OP_BATCH_ISEND_IRECV) {
        const tt_p2p_op *op = &call->ops[i];
        one.op = op->is_recv ? TT_OP_RECV : TT_OP_SEND;
        one.send = op->send;
        one.recv = op->recv;
        one.count = op->count;
        one.dtype = op->dtype;
        one.root = op->peer;
        one.tag = op->tag;
    }
    return one;
}

/* Does the call move nothing? Messages and uneven calls are carried out even if they are empty. */
static bool is_empty(const tt_call *call) {
    return !call->count && call->op != TT_OP_BARRIER && call->op != TT_OP_ALL_GATHER_V &&
           call->op != TT_OP_ALL_TO_ALL_V && !is_p2p(call->op);
}

static tt__task *make_task(const tt_group *group, const tt_call *call) {
    bool several = call->op == TT_OP_ALL_REDUCE_COALESCED || call->op == TT_OP_BATCH_ISEND_IRECV;
    size_t n = several ? (size_t)call->buffers : call->op != TT_OP_MONITORED_BARRIER;
    tt__task *task = calloc(1, sizeof *task + (n + TT__CHECKS_MAX) * sizeof task->parts[0]);
    if (!task)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a call of %zu parts", n);
    tt_status status = is_p2p(call->op) ? TT_OK : tt__plugin_checks(task->parts, &task->count, group, call);
    for (size_t i = 0; i < n && !status; i++) {
        tt_call one = nth_call(call, i);
        if (!is_empty(&one))
            status = tt__part_make(&task->parts[task->count++], group, &one);
    }
    if (status) {
        tt__task_free(task);
        return NULL;
    }
    return task;
}

void tt__task_free(tt__task *task) {
    if (!task)
        return;
    for (size_t i = 0; i < task->count; i++)
        free(task->parts[i].memory);
    free(task);
}

/* May part i begin: has all ended that must come before it? */
static bool is_next(const tt_group *group, const tt__task *task, size_t i) {
    const tt__call_part *before = i ? &task->parts[i - 1] : NULL;
    if (!before || before->state == TT__PART_ENDED || is_p2p(before->call.op))
        return true;
    return !before->agrees && !before->check && !tt__plugin_of(group)->table->serial;
}

static tt_status begin_part(const tt_group *group, const tt__task *task, tt__call_part *part) {
    const tt__plugin *plugin = tt__plugin_of(group);
    if (part->agrees)
        return tt__control_ask(group, part);
    if (part->call.device != TT_DEVICE_CPU && task->parts[0].record)
        part->call.times = &part->times;
    tt_status status = plugin->table->begin[part->call.op](plugin->engine, &part->call, &part->request);
    tt__plugin_reason(plugin->table, status);
    part->refused = status == TT_ERR_UNSUPPORTED || status == TT_ERR_INVALID; /* alike on all ranks */
    return status;
}

/* Begin the parts that may begin and have not. */
static tt_status begin_parts(const tt_group *group, tt__task *task) {
    while (task->begun < task->count && is_next(group, task, task->begun)) {
        tt__call_part *part = &task->parts[task->begun];
        tt_status status = begin_part(group, task, part);
        task->refused |= part->refused;
        TT__TRY(status);
        part->state = TT__PART_BEGUN;
        task->begun++;
    }
    return TT_OK;
}

static tt_status test_part(const tt_group *group, const tt_call *whole, tt__call_part *part) {
    const tt__plugin *plugin = tt__plugin_of(group);
    bool ended = false;
    tt_status status = part->agrees ? tt__control_test(group, part, &ended)
                                    : plugin->table->test(plugin->engine, part->request, &ended, &part->source);
    if (status || ended)
        part->state = TT__PART_ENDED;
    TT__TRY(tt__plugin_reason(plugin->table, status));
    if (!ended || part->agrees)
        return TT_OK;
    tt__part_finish(part);
    return part->check ? part->check(group, whole, part) : TT_OK;
}

/* Advance the parts; *done := all have ended. */
static tt_status advance_parts(const tt_group *group, const tt_call *whole, tt__task *task, bool *done) {
    size_t ended = 0, before;
    do {
        before = task->begun;
        TT__TRY(begin_parts(group, task));
        for (size_t i = ended = 0; i < task->begun; i++) {
            tt_status status =
                task->parts[i].state == TT__PART_BEGUN ? test_part(group, whole, &task->parts[i]) : TT_OK;
            task->refused |= task->parts[i].refused;
            TT__TRY(status);
            ended += task->parts[i].state == TT__PART_ENDED;
        }
    } while (task->begun > before && task->begun < task->count);
    *done = ended == task->count;
    if (*done)
        tt__control_note_times(group, task);
    return TT_OK;
}

/* ---- works */

static void complete_task(tt_work *work, tt_status status) {
    tt__task *task = tt__task_of(work);
    if (!status && task && task->count == 1 && work->call.op == TT_OP_RECV)
        work->source = task->parts[0].source;
    work->status = status;
    work->phase = TT__DONE;
    set_task(work, NULL);
    if (work->callbacks)
        tt__callbacks_due(&tt__plugin_of(work->group)->due, work);
    atomic_store_explicit(&work->done, true, memory_order_release);
}

/* Record the thread's last error as the work's, not the group's. */
static void note_refusal(tt_work *work) {
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", tt_last_error());
    work->refused = !tt__work_scratch(work, sizeof text);
    if (work->refused)
        memcpy(work->scratch, text, sizeof text);
}

/* Advance one work as far as possible. */
static tt_status task_advance(tt_work *work) {
    tt__task *task = tt__task_of(work);
    bool done = false;
    if (work->phase == TT__DONE)
        return TT_OK;
    work->phase = TT__RUNNING;
    tt_status status = advance_parts(work->group, &work->call, task, &done);
    if (status && !task->refused) {
        tt__control_explain(work);
        return tt_last_status();
    }
    if (status)
        note_refusal(work);
    if (done || status) {
        complete_task(work, status);
        tt__task_free(task);
    }
    return TT_OK;
}

/* May the next collective begin? All ranks begin them in the same order. */
static bool task_lets_next_begin(const tt_work *work) {
    if (work->phase == TT__DONE)
        return true;
    const tt__task *task = tt__task_of(work);
    return task->begun == task->count && !tt__plugin_of(work->group)->table->serial;
}

static tt_status fail_if_aborted(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (!atomic_load(&plugin->aborted))
        return TT_OK;
    pthread_mutex_lock(&plugin->reason_lock);
    tt__fail(TT_ERR_ABORTED, "rank %d aborted the group: %s", group->ranks[group->rank], plugin->reason);
    pthread_mutex_unlock(&plugin->reason_lock);
    return TT_ERR_ABORTED;
}

/* Advance all works, those of collectives in order. */
static tt_status advance_all(tt_group *group) {
    for (tt_work *work = group->queue; work; work = work->next) {
        TT__TRY(task_advance(work));
        if (!task_lets_next_begin(work))
            break;
    }
    for (tt_work *work = group->unordered; work; work = work->next)
        TT__TRY(task_advance(work));
    return TT_OK;
}

static tt_status task_fail_timeout(tt_work *work) {
    char text[256];
    bool agreed = tt__plugin_of(work->group)->control && !is_p2p(work->call.op);
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s on rank %d was not complete within %lld ms. The back end %s does not say whom it waited for: "
                    "%s",
                    tt__plugin_call_text(&work->call, text, sizeof text), work->group->ranks[work->group->rank],
                    (long long)work->call.timeout_ms, tt__plugin_of(work->group)->table->name,
                    agreed ? "all ranks came to the call, and none has ended, so one hangs or the network does"
                           : "some rank ended, hangs, or made another call");
}

/* Is the ranks' agreement on this work, or on one before it, incomplete? Then the agreement's timeout has the better
 * text. */
static bool agrees_first(const tt_work *work) {
    const tt_work *first = is_p2p(work->call.op) || !work->group->queue ? work : work->group->queue;
    const tt__task *task = tt__task_of(first);
    return task && task->begun && task->parts[task->begun - 1].agreement;
}

static tt_status task_check_deadline(tt_work *work) {
    bool is_over = tt__now_ms() > work->deadline_ms + (agrees_first(work) ? AGREEMENT_MS : 0);
    return is_over ? task_fail_timeout(work) : TT_OK;
}

/* Check deadlines of works on devices: once a stream waits, no thread does. */
static tt_status check_devices(tt_group *group) {
    tt_work *lists[] = {group->queue, group->unordered};
    for (int i = 0; i < 2; i++)
        for (tt_work *work = lists[i]; work; work = work->next)
            if (work->call.device != TT_DEVICE_CPU && work->phase != TT__DONE)
                TT__TRY(task_check_deadline(work));
    return TT_OK;
}

static tt_status plugin_progress(tt_group *group) {
    if (group->failed) /* perhaps in another thread */
        return tt__fail(group->failed, "%s", group->failure_text);
    tt_status status = fail_if_aborted(group);
    if (!status)
        status = advance_all(group);
    if (!status)
        status = check_devices(group);
    if (!status)
        status = tt__control_watch(group);
    if (status)
        return tt__plugin_fail(group);
    tt__works_unlink(group);
    return TT_OK;
}

tt_status tt__plugin_progress(tt_group *group) {
    tt__plugin_lock(tt__plugin_of(group));
    tt_status status = plugin_progress(group);
    tt__plugin_unlock(tt__plugin_of(group));
    return status;
}

/* ---- the end of all works */

/* Test a part until it has ended, at most until the deadline. The engine was asked to abort. */
static void await_end(const tt__plugin *plugin, tt__call_part *part, int64_t deadline_ms) {
    bool ended = part->state != TT__PART_BEGUN || part->agrees;
    tt__control_forget(part);
    while (!ended && tt__now_ms() < deadline_ms) {
        if (plugin->table->test(plugin->engine, part->request, &ended, &part->source))
            ended = true;
        if (!ended)
            tt__sleep_ms(1);
    }
    if (ended)
        part->state = TT__PART_ENDED;
}

/* Give up a task. Parts that don't end keep their memory until the engine is closed. */
static void abandon_task(tt__plugin *plugin, tt__task *task) {
    int64_t deadline_ms = tt__now_ms() + (plugin->table->abort ? GIVE_UP_MS : 0);
    bool ended = true;
    for (size_t i = 0; i < task->begun; i++) {
        await_end(plugin, &task->parts[i], deadline_ms);
        ended = ended && task->parts[i].state != TT__PART_BEGUN;
    }
    if (ended) {
        tt__task_free(task);
        return;
    }
    task->next = plugin->given_up;
    plugin->given_up = task;
}

static void end_list(tt_work *work, tt__plugin *plugin, tt_status status) {
    for (; work; work = work->next) {
        tt__task *task = work->phase == TT__DONE ? NULL : tt__task_of(work);
        if (!task)
            continue;
        if (tt__is_inherited(work->group))
            tt__task_free(task); /* its requests are the parent's */
        else
            abandon_task(plugin, task); /* first: a thread that sees the work done may free its buffers */
        complete_task(work, status);
    }
}

void tt__plugin_end_works(tt_group *group, tt_status status) {
    tt__plugin *plugin = tt__plugin_of(group);
    if ((group->queue || group->unordered) && plugin->table->abort && !tt__is_inherited(group))
        plugin->table->abort(plugin->engine);
    end_list(group->queue, plugin, status);
    end_list(group->unordered, plugin, status);
    tt__works_unlink(group);
}

tt_status tt__plugin_fail(tt_group *group) {
    tt__group_note_failure(group);
    tt__control_fail(group);
    tt__plugin_end_works(group, group->failed);
    return tt__fail(group->failed, "%s", group->failure_text);
}

/* ---- waiting */

/* Return the first request of a work that the engine has not ended; NULL: none. */
static void *request_of(const tt_work *work) {
    const tt__task *task = tt__task_of(work);
    for (size_t i = 0; task && i < task->begun; i++)
        if (task->parts[i].state == TT__PART_BEGUN && !task->parts[i].agrees)
            return task->parts[i].request;
    return NULL;
}

/* Yield for a millisecond, then sleep ever longer, without the lock. An engine that can wait itself waits with the lock
 * held if nobody else wants it. */
static void pause_a_moment(const tt_work *work, int64_t since_ms) {
    tt__plugin *plugin = tt__plugin_of(work->group);
    int64_t waited = tt__now_ms() - since_ms;
    void *request = request_of(work);
    bool engine_waits = plugin->table->wait && request;
    if (engine_waits && !plugin->due.first && !atomic_load_explicit(&plugin->wanted, memory_order_relaxed)) {
        plugin->table->wait(plugin->engine, request, 5);
        return;
    }
    tt__plugin_unlock(plugin);
    if (waited < 1 || engine_waits)
        sched_yield();
    else
        tt__sleep_us(waited < 10 ? 50 : 1000);
    tt__plugin_lock(plugin);
}

/* Wait a little for the work, as nothing moved; fail if its deadline has passed. */
static tt_status wait_a_moment(tt_work *work, int64_t since_ms) {
    if (task_check_deadline(work))
        return tt__plugin_fail(work->group);
    pause_a_moment(work, since_ms);
    return TT_OK;
}

static tt_status wait_done(tt_work *work, int64_t until_ms) {
    int64_t since_ms = tt__now_ms();
    while (work->phase != TT__DONE) {
        TT__TRY(plugin_progress(work->group));
        if (work->phase != TT__DONE && tt__now_ms() >= until_ms)
            return TT_OK;
        if (work->phase != TT__DONE)
            TT__TRY(wait_a_moment(work, since_ms));
    }
    return work->status ? tt__work_error(work) : TT_OK;
}

/* Let the call's stream wait for the result. *joined: what is put on the stream from now on runs after the result. */
static tt_status join_stream(const tt_work *work, bool *joined) {
    const tt__plugin *plugin = tt__plugin_of(work->group);
    const tt__task *task = tt__task_of(work);
    *joined = task->begun == task->count;
    for (size_t i = 0; i < task->count && *joined; i++)
        if (task->parts[i].state == TT__PART_BEGUN && task->parts[i].agrees)
            *joined = false;
        else if (task->parts[i].state == TT__PART_BEGUN)
            TT__TRY(tt__plugin_reason(plugin->table, plugin->table->stream_wait(plugin->engine, task->parts[i].request,
                                                                                work->call.stream, joined)));
    return TT_OK;
}

/* Wait until the call's stream waits for the result, the result is there, or the time is `until_ms`. */
static tt_status wait_joined(tt_work *work, int64_t until_ms) {
    int64_t since_ms = tt__now_ms();
    bool joined = false;
    for (;;) {
        TT__TRY(plugin_progress(work->group));
        if (work->phase == TT__DONE)
            return work->status ? tt__work_error(work) : TT_OK;
        if (join_stream(work, &joined)) {
            tt__control_explain(work);
            return tt__plugin_fail(work->group);
        }
        work->promised |= joined;
        if (joined || tt__now_ms() >= until_ms)
            return TT_OK;
        TT__TRY(wait_a_moment(work, since_ms));
    }
}

/* The first work on a device whose call, or a wait for it, has returned, although it is still under way. */
static tt_work *first_promised(const tt_group *group) {
    tt_work *lists[] = {group->queue, group->unordered};
    for (int i = 0; i < 2; i++)
        for (tt_work *work = lists[i]; work; work = work->next)
            if (work->promised && work->phase != TT__DONE)
                return work;
    return NULL;
}

void tt__plugin_settle(tt_group *group) {
    const int64_t since_ms = tt__now_ms();
    tt_status status = group->failed ? TT_OK : fail_if_aborted(group);
    if (group->failed || status)
        return;
    status = plugin_progress(group);
    for (tt_work *work; !status && (work = first_promised(group));) {
        status = wait_a_moment(work, since_ms);
        if (!status)
            status = plugin_progress(group);
    }
    if (status)
        tt__log(TT_LOG_WARNING, "a group was destroyed while calls on a device were under way, and they failed: %s",
                tt_last_error());
}

static tt_status wait_for_task(tt_work *work, int64_t until_ms) {
    return work->call.device == TT_DEVICE_CPU ? wait_done(work, until_ms) : wait_joined(work, until_ms);
}

tt_status tt__plugin_drain(tt_group *group, int64_t timeout_ms) {
    int64_t since_ms = tt__now_ms(), deadline_ms = tt__deadline_ms(timeout_ms);
    while (group->queue) {
        if (group->queue->deadline_ms > deadline_ms) {
            group->queue->deadline_ms = deadline_ms;
            group->queue->call.timeout_ms = timeout_ms;
        }
        TT__TRY(plugin_progress(group));
        if (group->queue)
            TT__TRY(wait_a_moment(group->queue, since_ms));
    }
    return TT_OK;
}

tt_status tt__plugin_wait(tt_work *work, int64_t until_ms, bool *done) {
    tt__plugin *plugin = tt__plugin_of(work->group);
    tt__plugin_lock(plugin);
    bool elsewhere = plugin->user != tt__this_thread();
    if (elsewhere)
        tt__control_wait_elsewhere(work->group, 1);
    work->waiters++; /* kept, also if its owner, or a callback of its own, forgets it */
    tt_status status = wait_for_task(work, until_ms);
    *done = work->phase == TT__DONE;
    work->waiters--;
    if (elsewhere)
        tt__control_wait_elsewhere(work->group, -1);
    tt__work_let_go(work);
    tt__plugin_unlock(plugin);
    return status;
}

/* ---- calls */

/* Make a work with its task; begin it if no other must come first. */
static tt_work *task_begin(tt_group *group, const tt_call *call) {
    tt_work *work = tt__work_take(group, call);
    tt__task *task = work ? make_task(group, &work->call) : NULL;
    if (!task) {
        if (work)
            tt__work_give_back(work);
        return NULL;
    }
    set_task(work, task);
    work->deadline_ms = tt__deadline_ms(call->timeout_ms);
    work->owned = true;
    tt__work_enqueue(work);
    plugin_progress(group);
    return work;
}

/* Wait for the work and let go of it; on a device it may go on. */
static tt_status task_wait_and_forget(tt_work *work) {
    tt_status status = wait_for_task(work, INT64_MAX);
    work->owned = false;
    tt__work_let_go(work);
    return status;
}

static tt_status plugin_submit(tt_group *group, const tt_call *call, tt_work **out) {
    TT__TRY(plugin_progress(group));
    TT__TRY(tt__plugin_check_call(group, call));
    if (!out && !is_p2p(call->op) && call->device == TT_DEVICE_CPU)
        TT__TRY(tt__plugin_drain(group, call->timeout_ms));
    if (call->device != TT_DEVICE_CPU)
        TT__TRY(tt__plugin_watch(group));
    tt_work *work = task_begin(group, call);
    tt__plugin_watch_more(tt__plugin_of(group));
    if (!work)
        return tt_last_status();
    if (!out || work->refused)
        return task_wait_and_forget(work);
    atomic_fetch_add_explicit(&group->owned, 1, memory_order_relaxed);
    *out = work;
    return TT_OK;
}

tt_status tt__plugin_submit(tt_group *group, const tt_call *call, tt_work **out) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (out)
        *out = NULL;
    tt__plugin_lock(plugin);
    plugin->user = tt__this_thread();
    tt_status status = plugin_submit(group, call, out);
    tt__plugin_unlock(plugin);
    return status;
}

void tt__plugin_forget(tt_work *work) {
    tt_group *group = work->group;
    tt__plugin *plugin = tt__plugin_of(group);
    bool inherited = tt__is_inherited(group);
    if (!inherited) /* the parent's thread may hold it */
        tt__plugin_lock(plugin);
    work->owned = false;
    tt__work_let_go(work);
    tt__group_drop(group);
    if (!inherited)
        tt__plugin_unlock(plugin);
}

void tt__plugin_add_callback(tt_work *work, tt__callback *callback) {
    tt__plugin *plugin = tt__plugin_of(work->group);
    tt__plugin_lock(plugin);
    tt__callback_attach(&plugin->due, work, callback);
    tt__plugin_unlock(plugin);
}
