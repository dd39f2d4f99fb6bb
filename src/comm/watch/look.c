/* The one place that looks for what may be wrong with a work that takes long. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/setting.h"
#include "comm/record/call_record.h"
#include "comm/record/recorder.h"
#include "comm/shared/arrival.h"
#include "comm/shared/process.h"
#include "comm/watch/verdicts.h"

#include <stdio.h>

/* Log, at info, which rank the process waits for, if it has waited longer than TT_WAIT_NOTICE (seconds, default 5; 0:
 * never): once for each wait. */
static void log_wait(const tt__recorder *recorder) {
    static _Atomic uint64_t logged; /* when the latest of the waits that were logged had begun */
    tt__waiting waiting;
    tt__call_record record;
    char call[256] = "a call", whom[32] = "any rank";
    if (!tt__wait_notice_ns() || !tt__log_wanted(TT_LOG_INFO) || !tt__recorder_waiting(recorder, &waiting) ||
        atomic_load_explicit(&logged, memory_order_relaxed) >= waiting.since)
        return;
    tt__moment now = tt__moment_now();
    tt__ticks_line line = tt__ticks_line_through(&recorder->begin, &now);
    int64_t ns = now.monotonic_ns - tt__ticks_ns(&line, waiting.since);
    if (ns < tt__wait_notice_ns())
        return;
    atomic_store_explicit(&logged, waiting.since, memory_order_relaxed);
    if (waiting.whom >= 0)
        snprintf(whom, sizeof whom, "rank %d", (int)waiting.whom);
    if (tt__record_read(recorder, waiting.record, &record))
        tt__record_text(recorder, &record, call, sizeof call);
    tt__log(TT_LOG_INFO, "waiting for %s: %.3g s in %s", whom, (double)ns / 1e9, call);
}

enum { GRACE_MS = 500 /* after its deadline, if all peers have done their part */ };

/* Return the work that must go on first: itself, one before it in the queue, or a call on an inner group. */
static tt_work *blocking_work(tt_work *work) {
    if (work->phase == TT__QUEUED && work->group->queue)
        work = work->group->queue;
    return work->phase == TT__RUNNING && work->wait.what == TT__CHILD && work->child ? blocking_work(work->child)
                                                                                     : work;
}

static tt_status look_fail_timeout(const tt_work *work, const tt__rankset *missing, int64_t timeout_ms) {
    char ranks[256], call[256], name[192], ended[160];
    tt__rankset job = tt__job_ranks(work->group, missing);
    tt__process_main_ended(work->group->native->world, &job, ended, sizeof ended);
    tt__work_text(work, call, sizeof call);
    if (!tt__rankset_count(&job))
        snprintf(ranks, sizeof ranks, "rank %d", work->group->native->world->rank);
    else
        tt__rankset_text(&job, ranks, sizeof ranks);
    if (work->call.op == TT_OP_SEND || work->call.op == TT_OP_RECV)
        return tt__fail(TT_ERR_TIMEOUT, "%s did not %s %s of rank %d within %lld ms%s", ranks,
                        work->call.op == TT_OP_SEND ? "receive" : "send anything for", call,
                        work->group->native->world->rank, (long long)work->call.timeout_ms, ended);
    return tt__fail(TT_ERR_TIMEOUT, "%s did not %s %s within %lld ms (call %u of %s)%s", ranks,
                    work->wait.what == TT__ARRIVAL ? "come to" : "finish", call, (long long)timeout_ms,
                    tt__work_number(work), tt__group_text(tt__top_group(work->group), name, sizeof name), ended);
}

static uint64_t begin_of(const tt_work *work) {
    return work->record && tt__record_is(work->record, work->record_number)
               ? atomic_load_explicit(&work->record->begin, memory_order_relaxed)
               : tt__ticks();
}

/* Publish which rank this process waits for, for peers and observers. */
static void note_waiting(const tt_work *work, const tt__rankset *missing) {
    int whom = tt__rankset_next(missing, 0);
    tt__world *world = work->group->native->world;
    tt__recorder *recorder = &tt__world_control(world)->recorder;
    const tt_work *top = work;
    if (whom < 0)
        return;
    whom = work->group->ranks[whom];
    while (top->parent)
        top = top->parent;
    tt__note_users(world);
    if (world->elsewhere && world->hosts > 1)
        whom = TT_ANY_SOURCE; /* other hosts learn no more than this */
    tt__recorder_wait(recorder, &(tt__waiting){.group = top->group->id,
                                               .seq = top->seq,
                                               .whom = whom,
                                               .since = begin_of(top),
                                               .record = top->record_number,
                                               .word = top->word,
                                               .thread = world->elsewhere ? 0 : tt__thread_mark(tt__this_thread())});
    log_wait(recorder);
    if (world->threaded)
        tt__announce_waiting(world->messages);
}

void tt__note_going_on(tt__world *world) {
    tt__recorder *recorder = &tt__world_control(world)->recorder;
    if (!recorder->waiting.since)
        return;
    tt__recorder_wait(recorder, &(tt__waiting){.since = 0});
    if (world->threaded)
        tt__announce_waiting(world->messages);
}

/* Do the ranks differ in their calls, or wait for each other? No rank that the work waits for is lost. */
static tt_status check_calls(const tt_work *work, const tt__rankset *missing) {
    note_waiting(work, missing);
    tt__compare_calls(work);
    return tt__check_deadlock(work->group->native->world);
}

static tt_status check_deadline(tt_work *work, const tt_work *first, const tt__rankset *missing, int64_t now) {
    if (now < first->deadline_ms + (tt__rankset_count(missing) ? 0 : GRACE_MS))
        return TT_OK;
    if (work->algorithm && work->algorithm->expire && work->algorithm->expire(work))
        return TT_OK;
    return look_fail_timeout(work, missing, first->call.timeout_ms);
}

/* Record the group's error again. */
static tt__look_result look_failed_before(const tt_group *group) {
    tt__fail(group->failed, "%s", group->failure_text);
    return TT__LOOK_FAILED;
}

/* Look for errors, then check again whether the work can go on: a rank that did its part and then left is no error. */
static tt__look_result look_for_errors(tt_work *waiter, tt_group **culprit) {
    tt_group *group = waiter->group;
    if (group->failed)
        return look_failed_before(group);
    tt_work *work = blocking_work(waiter);
    const tt_work *first = work->deadline_ms < waiter->deadline_ms ? work : waiter;
    int64_t now = tt__now_ms();
    bool processes = now - waiter->looked_ms >= TT__LOOK_MS;
    bool differs = work->phase == TT__PUBLISHED && tt__disagrees(work->group, work->wait.target);
    tt__rankset missing = {0};
    *culprit = work->group;
    tt_status status = differs ? tt__fail_words(work) : TT_OK;
    if (!status)
        status = tt__check_peers(work, processes);
    if (processes)
        group->native->world->last_check_ms = waiter->looked_ms = now;
    tt__work_waits_for(work, &missing);
    if (processes && !status) {
        status = check_calls(work, &missing);
        if (group->failed)
            return look_failed_before(group);
    }
    if (!status)
        status = check_deadline(work, first, &missing, now);
    return status ? TT__LOOK_FAILS : TT__LOOK_FINE;
}

tt__look_result tt__look_closely(tt_work *waiter, tt_group **culprit) {
    tt__saved_error before;
    tt__error_save(&before);
    tt__look_result verdict = look_for_errors(waiter, culprit);
    if (verdict == TT__LOOK_FINE) /* a check may have recorded that a rank left, which is no error */
        tt__error_restore(&before);
    return verdict;
}
