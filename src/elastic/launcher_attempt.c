/* From one attempt to the next: launcher.c has the overview. */
#include "elastic/launcher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/struck.h"
#include "elastic/torch_job.h"
#include "store/renewal.h"

#include <stdlib.h>
#include <string.h>

typedef tt__launcher_state launcher;

/* ---- will there be another? */

/* Could a worker not be executed, here or elsewhere? */
static bool is_not_executable(const launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        if (l->workers[i].exec_errno)
            return true;
    for (const tt__nodes_event *event = l->others; event; event = event->next)
        if (event->worker.exec_errno)
            return true;
    return false;
}

/* Return what ends the job without regard to how the attempt goes on elsewhere, or NULL. */
static const char *must_end(const launcher *l) {
    return l->got_signal || l->node_signal ? "the job was told to end"
           : l->lost || l->node_left       ? "a node is missing"
           : l->keeper_lost                ? "the keeper process was killed"
           : l->stuck                      ? "processes of this attempt are still there"
                                           : NULL;
}

/* Return why a failure is not followed by another attempt, although one is left; NULL: it is. */
static const char *against_another(const launcher *l) {
    return is_not_executable(l) ? "what can't be executed would fail the same way" : must_end(l);
}

static bool has_attempts_left(const launcher *l) {
    int changes = l->job->torch ? l->job->torch->changes : 0; /* are no restarts */
    return l->job->attempt - changes < l->job->max_restarts;
}

static bool attempt_failed(const launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    return tt__launcher_first(l, &first, &own, tail);
}

bool tt__launcher_may_try_again(const launcher *l) {
    return attempt_failed(l) && has_attempts_left(l) && !against_another(l);
}

void tt__launcher_settle(launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (l->phase == TT__RUNNING)
        tt__launcher_enter(l, TT__SETTLING, l->job->settle_ms);
    if (l->phase != TT__SETTLING || !has_attempts_left(l) || against_another(l) ||
        !tt__launcher_first(l, &first, &own, tail) || first.worker->secondary || first.worker->sent_signal)
        return;
    int64_t clear_ms = tt__deadline_ms(TT__TIE_MS);
    l->deadline_ms = clear_ms < l->deadline_ms ? clear_ms : l->deadline_ms;
}

/* ---- the next one */

/* Keep a line about the attempt that failed, for the report at the end. */
static void remember_attempt(launcher *l, const tt__first *first) {
    char text[TT__ATTEMPT_TEXT];
    char **line = &l->earlier[l->job->attempt % TT__MAX_EARLIER];
    free(*line);
    *line = strdup(tt__attempt_text(first, text, sizeof text));
}

/* Forget all that is known of the workers, who are no more. */
static void forget_attempt(launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        free(l->workers[i].message);
    memset(l->workers, 0, (size_t)l->job->workers * sizeof *l->workers);
    l->ended = 0;
    l->all_gone = false;
    tt__launcher_free_events(l->others);
    l->others = l->early;
    l->early = NULL;
    tt__snapshot_free(&l->remote);
    tt__watch_renew(l->watch);
    tt_store_free(l->store); /* its connection ends with those of the workers */
    l->store = NULL;
    l->store_failed = false;
    if (l->server)
        tt__store_server_renew(l->server);
}

void tt__launcher_begin_next(launcher *l, bool failed) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (failed && tt__launcher_first(l, &first, &own, tail)) {
        remember_attempt(l, &first);
        if (!l->job->node_0_reports)
            tt__report_attempt(&l->streams, l->job, &first);
    }
    forget_attempt(l);
    l->job->attempt++;
    if (tt__streams_renew(&l->streams, l->pipe_ends)) {
        l->failure = tt__fail_prefix("the workers can't be started again");
        l->done = true;
        if (l->nodes)
            tt__nodes_announce_done(l->nodes, NULL);
        return;
    }
    if (l->nodes && l->job->node == 0)
        tt__nodes_announce_again(l->nodes, l->job->attempt);
    tt__launcher_begin(l);
    if (l->others) /* a faster node's workers have failed again */
        tt__launcher_settle(l);
}

void tt__launcher_go_on(launcher *l) {
    if (l->phase != TT__GONE || l->done || l->torch)
        return;
    bool knows_all = !l->nodes || !l->job->max_restarts || l->all_gone;
    if (must_end(l))
        l->done = true;
    else if (knows_all && (!has_attempts_left(l) || against_another(l) || !attempt_failed(l)))
        l->done = true;
    else if (knows_all && (l->job->node == 0 || l->again > l->job->attempt))
        tt__launcher_begin_next(l, true);
}

void tt__launcher_attempt_over(launcher *l, int unkillable) {
    l->phase = TT__GONE;
    l->deadline_ms = INT64_MAX;
    l->stuck = unkillable > 0;
    if (unkillable)
        tt__streams_print(&l->streams, "tutti run: %d process%s of the job can't be killed", unkillable,
                          unkillable == 1 ? "" : "es");
    for (int rank = 0; rank < l->job->workers; rank++)
        tt__streams_drain(&l->streams, rank);
    tt__watch_serve(l->watch); /* those that ended just now */
    if (l->nodes && l->job->max_restarts)
        tt__nodes_announce_gone(l->nodes, l->job->attempt);
    tt__launcher_go_on(l);
}

/* ---- the report */

void tt__launcher_report_attempts(launcher *l) {
    int64_t all = (int64_t)l->job->max_restarts + 1;
    int attempt = l->job->attempt, left_out = attempt > TT__MAX_EARLIER ? attempt - TT__MAX_EARLIER : 0;
    const char *against = has_attempts_left(l) ? against_another(l) : NULL;
    if (against)
        tt__streams_print(&l->streams, "tutti run: not started again: %s", against);
    if (!attempt)
        return;
    tt__streams_print(&l->streams, "tutti run: that was attempt %d of %lld; before it:", attempt + 1, (long long)all);
    if (left_out)
        tt__streams_print(&l->streams, "  %d earlier attempt%s, not listed", left_out, left_out == 1 ? "" : "s");
    for (int i = left_out; i < attempt; i++)
        if (l->earlier[i % TT__MAX_EARLIER])
            tt__streams_print(&l->streams, "  attempt %d: %s", i + 1, l->earlier[i % TT__MAX_EARLIER]);
}

void tt__launcher_forget_attempts(launcher *l) {
    for (int i = 0; i < TT__MAX_EARLIER; i++)
        free(l->earlier[i]);
}
