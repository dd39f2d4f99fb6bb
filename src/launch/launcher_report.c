/* What the launcher says of the job: reports of an attempt that failed and of the end, answers to health checks. */
#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "base/text/json.h"
#include "launch/launcher_parts.h"
#include "launch/local/error_files.h"
#include "launch/local/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

typedef tt__launcher_state launcher;

enum { LOST_LATE_MS = 1000 }; /* news of a lost node take so long at most, beside the heartbeat */

/* Describe a failure for a report. tail: TT__TAIL_BYTES + 1 bytes. */
static void describe_failure(const launcher *l, const tt__failure *failure, tt__first *first, char *tail) {
    const tt__remote_end *other = failure->other;
    const tt__round *round = l->machine.membership.round;
    int node = other ? other->node : l->job->node;
    *first = (tt__first){.rank = failure->rank,
                         .node = node,
                         .local_rank = other ? other->rank - round->of[node].first_rank : failure->own,
                         .hostname = round ? round->of[node].hostname : NULL,
                         .worker = failure->worker,
                         .tail = !other        ? tt__streams_tail(&l->streams, failure->own, tail)
                                 : other->tail ? other->tail
                                               : "",
                         .alike = failure->alike};
}

static const char *loss_text(const tt__lost_node *lost) { return lost->why ? lost->why : "?"; }

void tt__launcher_report_lost(launcher *l) {
    const tt__lost_node *lost = l->machine.ledger.lost;
    if (lost)
        snprintf(l->why, sizeof l->why, "node %d is lost: %.200s", lost->node, loss_text(lost));
    for (; lost; lost = lost->next)
        tt__streams_alarm(&l->streams, "tutti run: node %d (%s) is lost: %s", lost->node,
                          l->machine.membership.round->of[lost->node].hostname, loss_text(lost));
}

/* ---- attempts that are followed by another */

/* Keep a line about the attempt, for the report at the end. */
static void remember_attempt(launcher *l) {
    char **line = &l->earlier[l->job->restarts % TT__MAX_EARLIER];
    free(*line);
    *line = strdup(l->why);
}

/* Where the loss of a node counts, keep and print a line about it. */
static void report_loss(launcher *l, bool recovers) {
    if (l->machine.job.elastic)
        return;
    remember_attempt(l);
    if (!l->job->node_0_reports)
        tt__streams_alarm(&l->streams, "tutti run: attempt %d of %lld: %s; %s", l->job->restarts + 1,
                          (long long)l->job->max_restarts + 1, l->why,
                          recovers ? "replacing what is lost, the other ranks go on" : "starting again");
}

static void report_failure(launcher *l, bool recovers) {
    tt__failure failure;
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    if (!tt__ledger_first(&l->machine.ledger, &failure))
        return;
    describe_failure(l, &failure, &first, tail);
    tt__attempt_text(&first, l->why, sizeof l->why);
    remember_attempt(l);
    if (l->job->node_0_reports)
        return;
    tt__report_attempt(&l->streams, l->job, &first, recovers);
    tt__report_idle(&l->streams, l->job, l->workers);
}

void tt__launcher_report_attempt(launcher *l, tt__attempt_cause cause, bool recovers) {
    if (cause == TT__CAUSE_CALL)
        snprintf(l->why, sizeof l->why, "a call of the ranks failed, though none is lost");
    tt__launcher_report_lost(l);
    if (cause == TT__CAUSE_LOSS)
        report_loss(l, recovers);
    else if (cause == TT__CAUSE_FAILURE)
        report_failure(l, recovers);
}

/* ---- the end */

/* Report how many attempts there were, how each before the last failed, and why there is no other. */
static void report_attempts(launcher *l) {
    int attempt = l->job->restarts, left_out = attempt > TT__MAX_EARLIER ? attempt - TT__MAX_EARLIER : 0;
    const char *against = tt__machine_has_attempts_left(&l->machine) ? tt__machine_against_another(&l->machine) : NULL;
    if (against)
        tt__streams_print(&l->streams, "tutti run: not started again: %s", against);
    if (!attempt)
        return;
    tt__streams_print(&l->streams, "tutti run: that was attempt %d of %lld; before it:", attempt + 1,
                      (long long)l->job->max_restarts + 1);
    if (left_out)
        tt__streams_print(&l->streams, "  %d earlier attempt%s, not listed", left_out, left_out == 1 ? "" : "s");
    for (int i = left_out; i < attempt; i++)
        if (l->earlier[i % TT__MAX_EARLIER])
            tt__streams_print(&l->streams, "  attempt %d: %s", i + 1, l->earlier[i % TT__MAX_EARLIER]);
}

/* Warn if the disk of the logs is full. A worker learns that only from write(2), which many programs don't check. */
static void tell_full_disk(launcher *l) {
    struct statvfs disk;
    const char *dir = l->job->logs ? l->job->logs->dir : NULL;
    if (dir && statvfs(dir, &disk) == 0 && disk.f_blocks && !disk.f_bavail)
        tt__streams_print(&l->streams, "tutti run: no room is left for logs in %s: some of them may be missing", dir);
}

/* May the worker have failed because a node was lost? News of a loss comes later, and a rank that has lost the store
 * can't name the cause. */
static bool may_follow_a_loss(const launcher *l, const tt__worker *first) {
    const tt__ledger *ledger = &l->machine.ledger;
    return ledger->lost && first->when.realtime_ns > ledger->lost_ns - (l->job->heartbeat_ms + LOST_LATE_MS) * 1000000;
}

static void report_first(launcher *l, const tt__failure *failure) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    describe_failure(l, failure, &first, tail);
    first.unsure = may_follow_a_loss(l, first.worker);
    tt__report_first(&l->streams, l->job, &first, &l->started);
    tt__report_others(&l->streams, l->job, l->workers, failure->own);
    tt__report_idle(&l->streams, l->job, l->workers);
    report_attempts(l);
}

/* Tell whoever started this command, as torchrun does: its own TORCHELASTIC_ERROR_FILE gets the error of the rank that
 * failed first. */
static void hand_on_error(launcher *l, const tt__worker *first) {
    const char *path = secure_getenv("TORCHELASTIC_ERROR_FILE");
    int failed = path && *path && first->message ? tt__error_file_hand_on(path, first) : 0;
    if (failed)
        tt__streams_print(&l->streams, "tutti run: can't write %s (TORCHELASTIC_ERROR_FILE): %s", path,
                          strerror(failed));
}

int tt__launcher_report_end(launcher *l) {
    const tt__machine *m = &l->machine;
    tt__conclusion c = tt__machine_conclude(m);
    bool began = m->attempt.phase != TT__NO_ATTEMPT, stranded = began && m->attempt.kept;
    tt__launcher_report_lost(l);
    tell_full_disk(l);
    if (l->job->events && began)
        tt__events_write(&l->streams, l->job, l->workers, &l->started,
                         !c.failed && !stranded && !m->ending.own_signal && !m->ledger.lost);
    if (c.failed && !c.told && (!l->job->node_0_reports || m->ledger.lost))
        report_first(l, &c.first);
    if (c.failed)
        hand_on_error(l, c.first.worker);
    return c.exit_code;
}

/* ---- answers to health checks */

enum { REASON = 700, STOPPED_MS = 1000 };

/* Return a worker that has been stopped (SIGSTOP, Ctrl-Z) in each look for STOPPED_MS, or -1. Short stops, such as
 * those of a sampling profiler, are no failure. */
static int stopped_worker(const launcher *l) {
    int64_t now_ms = tt__now_ms();
    int found = -1;
    for (int i = 0; i < l->job->workers; i++) {
        tt__worker *w = &l->workers[i];
        bool runs = w->pid && !w->ended;
        if (runs && tt__proc_stopped_ms(&w->stop, w->pid, now_ms) >= STOPPED_MS && found < 0)
            found = i;
    }
    return found;
}

/* Return a worker that is about to be ended for a known reason, or -1. */
static int doomed_worker(const launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        if (!l->workers[i].ended && l->workers[i].message)
            return i;
    return -1;
}

static int running_workers(const launcher *l) {
    int n = 0;
    for (int i = 0; i < l->job->workers; i++)
        n += l->workers[i].pid && !l->workers[i].ended;
    return n;
}

/* Write what keeps the attempt from going on; false: nothing does. */
static bool say_end(const launcher *l, char text[REASON]) {
    const tt__machine *m = &l->machine;
    const tt__lost_node *lost = m->ledger.lost;
    tt__failure failure;
    tt__first first;
    char tail[TT__TAIL_BYTES + 1], attempt[TT__ATTEMPT_TEXT];
    if (lost) {
        snprintf(text, REASON, "node %d (%s) is lost: %.300s", lost->node, m->membership.round->of[lost->node].hostname,
                 loss_text(lost));
    } else if (m->ending.damage == TT__KEEPER_LOST) {
        snprintf(text, REASON, "the keeper process was killed");
    } else if (m->ending.own_signal || m->ending.remote_signal) {
        snprintf(text, REASON, "the job was told to end");
    } else if (m->membership.state == TT__LOST_JOB) {
        snprintf(text, REASON, "this node has lost the job, and is about to look for it again");
    } else if (m->attempt.regroups) {
        snprintf(text, REASON, "another round is about to begin: %.300s", *l->why ? l->why : "nodes come or go");
    } else if (tt__ledger_first(&m->ledger, &failure)) {
        describe_failure(l, &failure, &first, tail);
        snprintf(text, REASON, "%s", tt__attempt_text(&first, attempt, sizeof attempt));
    } else {
        return false;
    }
    return true;
}

/* Write why the job is not healthy; false: it is. */
static bool say_trouble(const launcher *l, char text[REASON]) {
    int i;
    if (!tt__machine_waits_for_nodes(&l->machine) && say_end(l, text))
        return true;
    if ((i = doomed_worker(l)) >= 0)
        snprintf(text, REASON, "rank %d (pid %d): %.500s", l->job->first_rank + i, (int)l->workers[i].pid,
                 l->workers[i].message);
    else if ((i = stopped_worker(l)) >= 0)
        snprintf(text, REASON, "rank %d (pid %d) is stopped by a signal", l->job->first_rank + i,
                 (int)l->workers[i].pid);
    else
        return false;
    return true;
}

static const char *state_text(const launcher *l) {
    char reason[REASON];
    if (tt__machine_waits_for_nodes(&l->machine))
        return "joining";
    if (say_end(l, reason))
        return tt__machine_goes_on(&l->machine) ? "restarting" : "ending";
    return tt__ledger_ended(&l->machine.ledger) == l->job->workers ? "ended" : "running";
}

bool tt__launcher_health(void *user, char body[TT__HEALTH_BODY]) {
    const launcher *l = user;
    char reason[REASON];
    bool trouble = say_trouble(l, reason);
    json_t *text = trouble ? tt__json_text(reason) : json_null();
    json_t *attempt = l->job->attempt < 0 ? json_null() : json_integer(l->job->attempt);
    json_t *all =
        json_pack("{s:b, s:s, s:o, s:o, s:i, s:o, s:i, s:i, s:i, s:i}", "healthy", (int)!trouble, "state",
                  state_text(l), "reason", text, "run_id", tt__json_text(l->job->run_id), "node", l->job->node,
                  "attempt", attempt, "first_rank", l->job->first_rank, "workers", l->job->workers, "running",
                  running_workers(l), "ended", tt__ledger_ended(&l->machine.ledger));
    char *line = all ? tt__json_dumps(all, 0) : NULL;
    if (line && strlen(line) < TT__HEALTH_BODY)
        snprintf(body, TT__HEALTH_BODY, "%s", line);
    else
        snprintf(body, TT__HEALTH_BODY, "{\"healthy\": %s}", trouble ? "false" : "true");
    free(line);
    json_decref(all);
    return !trouble;
}
