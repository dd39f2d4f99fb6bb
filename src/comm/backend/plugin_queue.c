/* A plug-in group's works: their order, waiting, and the end of all of them.
 *
 * Who completes a work, exactly once: complete(), in the thread that uses the group, when all parts of its task have ended, or when the group fails or
 * is destroyed. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/backend/plugin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GIVE_UP_MS = 5000 /* how long an engine may take to end what was aborted */ };

static bool is_loose(tt_op op) { return op == TT_OP_SEND || op == TT_OP_RECV || op == TT_OP_BATCH_ISEND_IRECV; }

/* The work's own variable is its task. */
static tt__task *task_of(const tt_work *work) { return (tt__task *)(uintptr_t)work->state[0]; }
static void set_task(tt_work *work, const tt__task *task) { work->state[0] = (uintptr_t)task; }

/* ---- tasks */

/* The i-th call that `call` is made of. */
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
        one.send = one.recv = op->buf;
        one.count = op->count;
        one.dtype = op->dtype;
        one.root = op->peer;
        one.tag = op->tag;
    }
    return one;
}

/* Nothing is to be moved. Messages and uneven calls tell something even if they are empty. */
static bool is_empty(const tt_call *call) {
    return !call->count && call->op != TT_OP_BARRIER && call->op != TT_OP_ALL_GATHER_V &&
           call->op != TT_OP_ALL_TO_ALL_V && !is_loose(call->op);
}

static tt__task *make_task(const tt_group *group, const tt_call *call) {
    bool several = call->op == TT_OP_ALL_REDUCE_COALESCED || call->op == TT_OP_BATCH_ISEND_IRECV;
    size_t n = several ? call->buffers : 1;
    tt__task *task = calloc(1, sizeof *task + n * sizeof task->parts[0]);
    if (!task)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a call of %zu parts", n);
    for (size_t i = 0; i < n; i++) {
        tt_call one = nth_call(call, i);
        if (is_empty(&one))
            continue;
        if (tt__part_make(&task->parts[task->count++], group, &one)) {
            tt__task_free(task);
            return NULL;
        }
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

/* Begin the parts that are not; one at a time if the engine wants it so. */
static tt_status begin_parts(const tt_group *group, tt__task *task) {
    const tt__plugin *plugin = tt__plugin_of(group);
    while (task->begun < task->count) {
        tt__part *part = &task->parts[task->begun];
        if (plugin->table->serial && task->begun && !is_loose(part->call.op) && part[-1].state != TT__PART_ENDED)
            return TT_OK;
        TT__TRY(plugin->table->begin[part->call.op](plugin->engine, &part->call, &part->request));
        part->state = TT__PART_BEGUN;
        task->begun++;
    }
    return TT_OK;
}

/* Advance; *done: all parts have ended. */
static tt_status test_parts(const tt_group *group, tt__task *task, bool *done) {
    const tt__plugin *plugin = tt__plugin_of(group);
    *done = task->begun == task->count;
    for (size_t i = 0; i < task->begun; i++) {
        tt__part *part = &task->parts[i];
        bool ended = part->state == TT__PART_ENDED;
        if (!ended) {
            tt_status status = plugin->table->test(plugin->engine, part->request, &ended, &part->source);
            if (status || ended)
                part->state = TT__PART_ENDED;
            TT__TRY(status);
            if (ended)
                tt__part_finish(part);
        }
        *done = *done && ended;
    }
    return TT_OK;
}

/* ---- works */

static void complete(tt_work *work, tt_status status) {
    tt__task *task = task_of(work);
    if (!status && task && task->count == 1 && work->call.op == TT_OP_RECV)
        work->source = task->parts[0].source;
    work->status = status;
    work->phase = TT__DONE;
    set_task(work, NULL);
    atomic_fetch_sub_explicit(&work->group->works, 1, memory_order_relaxed);
    atomic_store_explicit(&work->done, true, memory_order_release);
}

/* Move one work as far as it goes. */
static tt_status advance(tt_work *work) {
    tt__task *task = task_of(work);
    bool done = false;
    work->phase = TT__RUNNING;
    TT__TRY(begin_parts(work->group, task));
    TT__TRY(test_parts(work->group, task, &done));
    if (done && task->begun == task->count) {
        complete(work, TT_OK);
        tt__task_free(task);
    }
    return TT_OK;
}

/* Take done works out of a list. Returns the last that stays. */
static tt_work *unlink_done(tt_work **list) {
    tt_work *last = NULL;
    for (tt_work **at = list; *at;) {
        tt_work *work = *at;
        if (work->phase == TT__DONE) {
            *at = work->next;
            if (!work->owned)
                tt__work_give_back(work);
        } else {
            last = work;
            at = &work->next;
        }
    }
    return last;
}

static void unlink_all_done(tt_group *group) {
    group->queue_end = unlink_done(&group->queue);
    unlink_done(&group->loose);
}

static tt_status fail_if_aborted(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    if (!atomic_load(&plugin->aborted))
        return TT_OK;
    pthread_mutex_lock(&plugin->lock);
    tt__fail(TT_ERR_ABORTED, "rank %d aborted the group: %s", group->rank, plugin->reason);
    pthread_mutex_unlock(&plugin->lock);
    return TT_ERR_ABORTED;
}

/* All works, those of collectives in order. */
static tt_status advance_all(tt_group *group) {
    bool serial = tt__plugin_of(group)->table->serial;
    for (tt_work *work = group->queue; work; work = work->next) {
        TT__TRY(advance(work));
        if (serial && work->phase != TT__DONE)
            break;
    }
    for (tt_work *work = group->loose; work; work = work->next)
        TT__TRY(advance(work));
    return TT_OK;
}

static tt_status progress(tt_group *group) {
    if (group->failed)
        return group->failed;
    tt_status status = fail_if_aborted(group);
    if (!status)
        status = advance_all(group);
    if (status)
        return tt__plugin_fail(group);
    unlink_all_done(group);
    return TT_OK;
}

tt_status tt__plugin_progress(tt_group *group) {
    TT__TRY(progress(group));
    return group->failed ? tt__group_check(group) : TT_OK;
}

/* ---- the end of all works */

/* The engine was told to give up. Test a part until it has ended, at most until the deadline. */
static void await_end(const tt__plugin *plugin, tt__part *part, int64_t deadline_ms) {
    bool ended = part->state != TT__PART_BEGUN;
    while (!ended && tt__now_ms() < deadline_ms) {
        if (plugin->table->test(plugin->engine, part->request, &ended, &part->source))
            ended = true;
        if (!ended)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (ended)
        part->state = TT__PART_ENDED;
}

/* What has not ended keeps its memory until the engine is closed. */
static void give_up(tt__plugin *plugin, tt__task *task) {
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
        tt__task *task = work->phase == TT__DONE ? NULL : task_of(work);
        if (!task)
            continue;
        complete(work, status);
        give_up(plugin, task);
    }
}

void tt__plugin_end_works(tt_group *group, tt_status status) {
    tt__plugin *plugin = tt__plugin_of(group);
    if ((group->queue || group->loose) && plugin->table->abort)
        plugin->table->abort(plugin->engine);
    end_list(group->queue, plugin, status);
    end_list(group->loose, plugin, status);
    unlink_all_done(group);
}

tt_status tt__plugin_fail(tt_group *group) {
    tt__group_note_failure(group);
    tt__plugin_end_works(group, group->failed);
    return tt__fail(group->failed, "%s", group->failure_text);
}

/* ---- waiting */

/* The first request of a work that the engine has not ended; NULL if there is none. */
static void *request_of(const tt_work *work) {
    const tt__task *task = task_of(work);
    for (size_t i = 0; task && i < task->begun; i++)
        if (task->parts[i].state == TT__PART_BEGUN)
            return task->parts[i].request;
    return NULL;
}

/* Yield for a millisecond, then sleep ever longer. */
static void pause_a_moment(const tt_work *work, int64_t since_ms) {
    const tt__plugin *plugin = tt__plugin_of(work->group);
    int64_t waited = tt__now_ms() - since_ms;
    void *request = request_of(work);
    if (plugin->table->wait && request)
        plugin->table->wait(plugin->engine, request, 5);
    else if (waited < 1)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = waited < 10 ? 50000 : 1000000}, NULL);
}

/* "all_reduce(f32 x 512, sum) at train.c:88" */
static void call_text(const tt_call *call, char *text, size_t size) {
    const char *slash = call->file ? strrchr(call->file, '/') : NULL, *file = slash ? slash + 1 : call->file;
    char arguments[96] = "", line[16] = "";
    if (call->op == TT_OP_ALL_REDUCE || call->op == TT_OP_REDUCE || call->op == TT_OP_REDUCE_SCATTER)
        snprintf(arguments, sizeof arguments, "%s x %llu, %s", tt_dtype_name(call->dtype),
                 (unsigned long long)call->count, tt_reduce_op_name(call->reduce_op));
    else if (call->op != TT_OP_BARRIER)
        snprintf(arguments, sizeof arguments, "%s x %llu", tt_dtype_name(call->dtype), (unsigned long long)call->count);
    if (call->line)
        snprintf(line, sizeof line, ":%d", call->line);
    snprintf(text, size, "%s(%s) %s %.80s%s", tt_op_name(call->op), arguments, call->line ? "at" : "in",
             file ? file : "?", line);
}

static tt_status fail_timeout(tt_work *work) {
    char text[256];
    call_text(&work->call, text, sizeof text);
    tt__fail(TT_ERR_TIMEOUT,
             "%s on rank %d was not complete within %lld ms. The back end %s does not say whom it waited for: some "
             "rank ended, hangs, or made another call",
             text, work->group->rank, (long long)work->call.timeout_ms, tt__plugin_of(work->group)->table->name);
    return tt__plugin_fail(work->group);
}

/* Nothing moved: wait a little for the work, unless its time is over. */
static tt_status wait_a_moment(tt_work *work, int64_t since_ms) {
    if (tt__now_ms() > work->deadline_ms)
        return fail_timeout(work);
    pause_a_moment(work, since_ms);
    return TT_OK;
}

static tt_status wait_done(tt_work *work) {
    int64_t since_ms = tt__now_ms();
    while (work->phase != TT__DONE) {
        TT__TRY(progress(work->group));
        if (work->phase != TT__DONE)
            TT__TRY(wait_a_moment(work, since_ms));
    }
    return work->status ? tt__work_error(work) : TT_OK;
}

/* All collectives that were begun before a synchronous one. */
static tt_status drain(tt_group *group) {
    int64_t since_ms = tt__now_ms();
    while (group->queue) {
        TT__TRY(progress(group));
        if (group->queue)
            TT__TRY(wait_a_moment(group->queue, since_ms));
    }
    return TT_OK;
}

tt_status tt__plugin_wait(tt_work *work) { return wait_done(work); }

/* ---- calls */

static void enqueue(tt_group *group, tt_work *work) {
    atomic_fetch_add_explicit(&group->works, 1, memory_order_relaxed);
    work->next = NULL;
    if (is_loose(work->call.op)) {
        work->next = group->loose;
        group->loose = work;
    } else if (group->queue_end) {
        group->queue_end->next = work;
        group->queue_end = work;
    } else {
        group->queue = group->queue_end = work;
    }
}

/* A work whose task the engine has begun, if it is its turn. What the engine refuses leaves the group as it was. */
static tt_work *begin(tt_group *group, const tt_call *call) {
    tt__task *task = make_task(group, call);
    tt_work *work = task ? tt__work_take(group, call) : NULL;
    bool now = is_loose(call->op) || !group->queue || !tt__plugin_of(group)->table->serial;
    if (work) {
        set_task(work, task);
        work->deadline_ms = tt__deadline_ms(call->timeout_ms);
        if (!now || !begin_parts(group, task)) {
            enqueue(group, work);
            return work;
        }
        tt_status status = tt_last_status();
        if (task->begun || (status != TT_ERR_UNSUPPORTED && status != TT_ERR_INVALID)) {
            enqueue(group, work);
            tt__plugin_fail(group);
            return NULL;
        }
        tt__work_give_back(work);
    }
    tt__task_free(task);
    return NULL;
}

tt_status tt__plugin_submit(tt_group *group, const tt_call *call, tt_work **out) {
    if (out)
        *out = NULL;
    TT__TRY(progress(group));
    TT__TRY(tt__plugin_check_call(group, call));
    if (call->op == TT_OP_MONITORED_BARRIER)
        return tt__plugin_monitored_barrier(group, call);
    if (!out && !is_loose(call->op))
        TT__TRY(drain(group));
    tt_work *work = begin(group, call);
    if (!work)
        return tt_last_status();
    work->owned = true;
    if (out) {
        group->owned++;
        *out = work;
        return TT_OK;
    }
    tt_status status = wait_done(work);
    work->owned = false;
    tt__work_give_back(work);
    return status;
}

void tt__plugin_forget(tt_work *work) {
    work->group->owned--;
    work->owned = false;
    if (work->phase == TT__DONE)
        tt__work_give_back(work);
}
