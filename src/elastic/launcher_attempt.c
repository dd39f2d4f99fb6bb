/* From one attempt to the next: launcher.c has the overview.
 *
 * On several nodes the coordinator's launcher decides when all nodes have nothing left of the attempt, as it knows all
 * failures then, and who is there; it orders the next round, or announces that there is none. Others wait for that. */
#include "elastic/launcher.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/struck.h"
#include "elastic/launcher_watchdog.h"
#include "store/renewal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often to look at workers that survive, while they are awaited and else; LATE_MS: for those that were killed. */
enum { LOOK_MS = 10, WATCH_MS = 100, LATE_MS = 2000, TELL_LATE_MS = 3000 /* for whom is waited */ };

typedef tt__launcher_state launcher;

/* May another round follow, for all that is known here? Only after a loss that is made good: a failure needs an attempt
 * that is left. */
static bool may_follow(const launcher *l) {
    bool counts = tt__launcher_failed_by_itself(l) && !tt__launcher_has_attempts_left(l);
    return !counts && !tt__launcher_must_end(l);
}

/* Can the workers that are left go on? */
static bool may_recover(const launcher *l) { return may_follow(l) && tt__launcher_can_recover(l); }

/* Those that are left have the grace period to come to the next round. */
static void wait_for_survivors(launcher *l) {
    int64_t deadline_ms = tt__deadline_ms(l->job->grace_ms);
    if (!l->awaits_survivors) {
        tt__log(TT_LOG_DEBUG, "ranks here wait for another round, or are to");
        l->tell_late_ms = tt__deadline_ms(TELL_LATE_MS);
    }
    l->survivors_ms = 0;
    l->awaits_survivors = true;
    l->deadline_ms = deadline_ms > l->deadline_ms ? deadline_ms : l->deadline_ms;
}

/* Some wait for another round while others here have not said that they survive: those may have stopped as they
 * started. One that is blamed is killed; the others have the grace period. */
static void wait_for_unready(launcher *l, int blamed) {
    if (l->phase == TT__RUNNING) {
        tt__launcher_enter(l, TT__SETTLING, l->job->grace_ms);
        wait_for_survivors(l);
    }
    if (blamed >= 0)
        tt__launcher_kill_late(l, blamed);
}

/* They have no longer than others if no round follows, as it turns out: the failure may be heard of after what it did
 * to the ranks here. */
static void stop_waiting_for_survivors(launcher *l) {
    int64_t deadline_ms = tt__deadline_ms(l->job->settle_ms);
    if (!l->awaits_survivors || l->phase != TT__SETTLING || l->stopped || may_follow(l))
        return;
    l->awaits_survivors = l->wants_round = false;
    l->deadline_ms = deadline_ms < l->deadline_ms ? deadline_ms : l->deadline_ms;
}

void tt__launcher_settle(launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (l->phase == TT__RUNNING)
        tt__launcher_enter(l, TT__SETTLING, l->job->settle_ms);
    if (l->phase != TT__SETTLING || tt__launcher_against_another(l))
        return;
    if (may_recover(l)) {
        wait_for_survivors(l);
        return;
    }
    if (!tt__launcher_has_attempts_left(l) || !tt__launcher_first(l, &first, &own, tail) ||
        tt__is_consequence(first.worker))
        return;
    int64_t clear_ms = tt__deadline_ms(TT__TIE_MS);
    l->deadline_ms = clear_ms < l->deadline_ms ? clear_ms : l->deadline_ms;
}

void tt__launcher_settle_stopped(launcher *l) {
    if (l->phase == TT__RUNNING)
        tt__launcher_enter(l, TT__SETTLING, l->job->grace_ms);
}

void tt__launcher_settled(launcher *l) {
    bool goes_on = may_recover(l) || (l->awaits_survivors && may_follow(l));
    if (goes_on && tt__launcher_survivors(l).waiting) {
        tt__launcher_kill_late(l, -1);
        l->deadline_ms = tt__deadline_ms(l->job->settle_ms + LATE_MS);
        return;
    }
    if (l->rejoins) {
        tt__launcher_kill(l);
        return;
    }
    if (tt__watchdog_reads_idle(l))
        return;
    if (l->ended == l->job->workers)
        tt__streams_print(&l->streams, "tutti run: all workers ended, but processes that they started are still there: "
                                       "they get SIGTERM");
    tt__launcher_terminate(l, SIGTERM);
}

void tt__launcher_change(launcher *l) {
    if (l->phase != TT__RUNNING && l->phase != TT__SETTLING)
        return;
    if (may_recover(l)) {
        l->wants_round = true; /* it may be that only a launcher is lost, which the ranks don't see */
        tt__launcher_want_round(l);
        tt__launcher_enter(l, TT__SETTLING, l->job->grace_ms);
        wait_for_survivors(l);
    } else {
        tt__launcher_terminate(l, SIGTERM);
    }
}

void tt__launcher_lose_job(launcher *l) {
    l->rejoins = true;
    if ((l->phase == TT__RUNNING || l->phase == TT__SETTLING) && may_recover(l))
        tt__launcher_change(l);
    else if (l->phase == TT__RUNNING || l->phase == TT__SETTLING || l->phase == TT__TERMINATING)
        tt__launcher_kill(l);
}

/* Nodes come or go, and the workers here have ended already, or are about to, or have noticed and wait: where any
 * failed it was for that. */
static void regroup_late(launcher *l, const char *why) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (l->phase <= TT__SETTLING || l->ordered || l->regroups ||
        !(l->kept || tt__launcher_first(l, &first, &own, tail)))
        return;
    l->regroups = true;
    snprintf(l->why, sizeof l->why, "%s", why);
    tt__streams_print(&l->streams, "tutti run: %s", why);
    if (l->job->coordinates) /* others may not have noticed, or take it for a failure */
        tt__nodes_announce_regroup(l->nodes, tt__launcher_attempt(l), why);
}

void tt__launcher_regroup(launcher *l, const char *why) {
    if (l->phase != TT__RUNNING && l->phase != TT__SETTLING) {
        regroup_late(l, why);
        return;
    }
    bool first = !l->regroups, recovers = may_recover(l);
    l->regroups = true;
    if (first)
        tt__streams_print(&l->streams, "tutti run: %s: %s", why,
                          recovers ? "the ranks here go on to the next round"
                                   : "ending the workers here, to start again");
    if (first)
        snprintf(l->why, sizeof l->why, "%s", why);
    if (first && l->job->coordinates)
        tt__nodes_announce_regroup(l->nodes, tt__launcher_attempt(l), why);
    tt__launcher_change(l);
}

/* ---- workers that survive */

void tt__launcher_survivors_due(launcher *l, int *timeout_ms) {
    bool looks = l->phase == TT__SETTLING || l->phase == TT__RUNNING;
    if (!looks || !tt__launcher_survivors(l).able)
        return;
    int left = tt__left_ms(l->survivors_ms);
    if (*timeout_ms < 0 || left < *timeout_ms)
        *timeout_ms = left;
}

void tt__launcher_look_at_survivors(launcher *l) {
    stop_waiting_for_survivors(l);
    if ((l->phase != TT__SETTLING && l->phase != TT__RUNNING) || tt__left_ms(l->survivors_ms) > 0)
        return;
    tt__survivors s = tt__launcher_survivors(l);
    l->survivors_ms = tt__deadline_ms(l->phase == TT__SETTLING ? LOOK_MS : WATCH_MS);
    if (l->wants_round && l->listened != tt__watch_listeners(l->watch)) /* some had not listened yet */
        tt__launcher_want_round(l);
    if (l->awaits_survivors && l->tell_late_ms && !tt__left_ms(l->tell_late_ms)) {
        l->tell_late_ms = 0;
        tt__launcher_tell_late(l);
    }
    if (s.waiting && !tt__launcher_may_go_on(l)) /* no one else would answer them */
        tt__launcher_deny_round(l);
    else if (s.waiting && s.able < s.living && may_follow(l))
        wait_for_unready(l, s.blamed);
    if (!s.waiting || !may_recover(l))
        return;
    if (l->phase == TT__RUNNING)
        tt__launcher_settle(l);
    if (s.waiting == s.living && !s.starting)
        tt__launcher_attempt_over(l, 0);
    else if (s.blamed >= 0)
        tt__launcher_kill_late(l, s.blamed);
}

/* ---- the next one */

/* Keep a line about the attempt that failed, for the report at the end. */
static void remember_attempt(launcher *l, const tt__first *first) {
    char text[TT__ATTEMPT_TEXT];
    char **line = &l->earlier[l->job->restarts % TT__MAX_EARLIER];
    free(*line);
    *line = strdup(tt__attempt_text(first, text, sizeof text));
}

/* Report the nodes that are lost. */
static void tell_lost(launcher *l) {
    tt__launcher_report_lost(l);
    if (l->lost)
        snprintf(l->why, sizeof l->why, "node %d is lost: %.200s", l->lost->node, l->lost->text ? l->lost->text : "?");
}

/* Where the loss of a node counts, keep and print a line about it. */
static void remember_loss(launcher *l) {
    char **line = &l->earlier[l->job->restarts % TT__MAX_EARLIER];
    if (tt__launcher_is_elastic(l))
        return;
    free(*line);
    *line = strdup(l->why);
    if (!l->job->node_0_reports)
        tt__streams_alarm(&l->streams, "tutti run: attempt %d of %lld: %s; %s", l->job->restarts + 1,
                          (long long)l->job->max_restarts + 1, l->why,
                          tt__launcher_any_goes_on(l) ? "replacing what is lost, the other ranks go on"
                                                      : "starting again");
}

/* Report how the attempt ended, and remember it. */
static void tell_attempt(launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (!l->regroups)
        snprintf(l->why, sizeof l->why, "a call of the ranks failed, though none is lost");
    tell_lost(l);
    bool any = tt__launcher_first(l, &first, &own, tail);
    if (l->lost && (!any || tt__is_consequence(first.worker))) {
        remember_loss(l);
        return;
    }
    if (!any || !tt__launcher_failed_by_itself(l))
        return;
    remember_attempt(l, &first);
    tt__attempt_text(&first, l->why, sizeof l->why);
    if (l->job->node_0_reports)
        return;
    tt__report_attempt(&l->streams, l->job, &first, l->kept || l->any_kept);
    tt__report_idle(&l->streams, l->job, l->workers);
}

/* Forget all that is known of the workers who are no more. */
static void forget_attempt(launcher *l) {
    for (int i = 0; i < l->job->workers; i++) {
        if (l->kept && !l->workers[i].ended)
            continue;
        tt__watchdog_forget(l, i);
        l->workers[i] = (tt__worker){0};
    }
    l->ended = 0;
    l->all_gone = l->all_well = l->any_kept = false;
    l->ordered = l->regroups = l->told_success = l->awaits_survivors = l->wants_round = false;
    tt__launcher_free_events(l->others);
    tt__launcher_free_events(l->lost);
    l->others = l->lost = NULL;
    tt__snapshot_free(&l->remote);
    if (l->kept)
        return;
    tt__watchdog_forget_all(l);
    tt__watch_renew(l->watch);
    tt_store_free(l->store); /* its connection ends with those of the workers */
    l->store = NULL;
    l->store_failed = false;
}

/* Give pipes to the workers that are to be started. */
static tt_status renew_streams(launcher *l) {
    bool *kept = calloc((size_t)l->job->workers, sizeof *kept);
    if (!kept)
        return tt__fail(TT_ERR_MEMORY, "no memory for %d workers", l->job->workers);
    for (int i = 0; i < l->job->workers; i++)
        kept[i] = l->workers[i].pid != 0;
    tt_status status = tt__streams_renew(&l->streams, kept, l->pipe_ends);
    free(kept);
    return status;
}

/* Start the workers, those that are missing, of the attempt that job and round describe. */
static void start_attempt(launcher *l) {
    if (renew_streams(l)) {
        l->failure = tt__fail_prefix("the workers can't be started again");
        l->done = true;
        if (l->nodes)
            tt__nodes_announce_done(l->nodes, NULL);
        return;
    }
    tt__launcher_begin(l);
    l->kept = false;
}

/* Start workers again, or order a round in which they are. No process of the last attempt is left on any node, but
 * workers that are kept. */
static void order_next(launcher *l) {
    int restarts = l->job->restarts + tt__launcher_attempt_failed(l);
    bool kept = tt__launcher_any_goes_on(l);
    int recovery = kept ? l->job->recovery + 1 : 0;
    tell_attempt(l);
    l->ordered = true;
    if (l->nodes) {
        tt__nodes_order_round(l->nodes, tt__launcher_attempt(l) + 1, restarts, recovery, kept ? NULL : l->server);
        return;
    }
    if (l->server && !kept)
        tt__store_server_renew(l->server);
    forget_attempt(l);
    l->job->attempt += !kept;
    l->job->restarts = restarts;
    l->job->recovery = recovery;
    tt__launcher_tell_round(l);
    start_attempt(l);
}

/* Make the round the job's. */
static void set_round(launcher *l, tt__round *round) {
    l->round = round;
    l->job->attempt = l->kept ? l->job->attempt : round->attempt;
    l->job->restarts = round->restarts;
    l->job->recovery = round->recovery;
    l->job->node = round->own;
    l->job->nodes = round->n;
    l->job->world = round->world;
    l->job->first_rank = round->of[round->own].first_rank;
}

static void say_round(launcher *l, const tt__round *round) {
    char where[128];
    snprintf(where, sizeof where, "this is node %d, and node 0 (%s)", round->own, round->of[0].hostname);
    tt__streams_print(&l->streams, "tutti run: round %d begins on %d node%s, with %d rank%s: %s serves the store",
                      round->attempt + 1, round->n, round->n == 1 ? "" : "s", round->world,
                      round->world == 1 ? "" : "s", l->job->coordinates ? "this node, node 0," : where);
}

void tt__launcher_take_round(launcher *l, tt__round *round) {
    tt__round *before = l->round;
    tt__launcher_take_election(l);
    bool again = l->phase == TT__GONE;
    if (again && !l->ordered) {
        l->any_kept = round->recovery > 0;
        tell_attempt(l);
    }
    if (again || l->kept)
        forget_attempt(l);
    set_round(l, round);
    tt__launcher_tell_round(l);
    free(before);
    if (tt__launcher_is_elastic(l))
        say_round(l, round);
    if (l->began)
        start_attempt(l);
    else
        tt__launcher_begin(l);
    l->began = true;
}

/* End the job, or this node's part. Workers that were kept for another attempt end first. */
static void end_here(launcher *l) {
    l->ending = true;
    l->done = !l->kept;
    if (l->kept)
        tt__launcher_terminate(l, SIGTERM);
    else if (l->nodes && l->job->coordinates)
        tt__nodes_announce_last(l->nodes, tt__launcher_attempt(l));
}

/* Decide, on the only node or as the coordinator, when nothing is left of the attempt anywhere. */
static void decide(launcher *l) {
    if (l->ordered)
        return;
    if (tt__launcher_another_follows(l))
        order_next(l);
    else
        end_here(l);
}

/* Workers that are kept wait until the job is found. */
static void look_again(launcher *l) {
    tell_lost(l);
    forget_attempt(l);
    tt__launcher_rejoin(l);
}

void tt__launcher_go_on(launcher *l) {
    if (l->phase != TT__GONE || l->done)
        return;
    if (l->rejoins && !l->got_signal)
        look_again(l);
    else if (l->ending || tt__launcher_must_end(l) || l->is_last || (l->nodes && !tt__launcher_may_go_on(l)))
        end_here(l);
    else if (!l->nodes || (l->job->coordinates && l->all_gone))
        decide(l);
}

/* Whoever was told to end may do so with success, too. */
static bool all_ended_well(const launcher *l) {
    bool well = l->ended == l->job->workers && !l->stuck && !l->keeper_lost;
    for (int i = 0; i < l->job->workers; i++)
        well = well && l->workers[i].ended && !l->workers[i].status && !l->workers[i].sent_signal;
    return well;
}

void tt__launcher_attempt_over(launcher *l, int unkillable) {
    int blamed = tt__launcher_survivors(l).blamed;
    if (l->phase == TT__JOINING) { /* the last that was kept has ended: the next round starts others */
        l->kept = false;
        forget_attempt(l);
        return;
    }
    l->phase = TT__GONE;
    l->deadline_ms = INT64_MAX;
    l->stuck = unkillable > 0;
    l->kept = l->ended < l->job->workers && !l->stuck && !l->keeper_lost;
    tt__log(TT_LOG_DEBUG, "nothing is left here of attempt %d%s", tt__launcher_attempt(l) + 1,
            l->kept ? " but ranks that go on" : "");
    if (unkillable)
        tt__streams_print(&l->streams, "tutti run: %d process%s of the job can't be killed", unkillable,
                          unkillable == 1 ? "" : "es");
    for (int rank = 0; rank < l->job->workers; rank++)
        tt__streams_drain(&l->streams, rank);
    tt__watch_serve(l->watch); /* those that ended just now */
    if (l->nodes && tt__launcher_may_go_on(l))
        tt__nodes_announce_gone(l->nodes, tt__launcher_attempt(l),
                                &(tt__nodes_gone){.kept = l->kept, .blamed = blamed, .well = all_ended_well(l)});
    tt__launcher_go_on(l);
}

/* ---- the report */

void tt__launcher_report_lost(launcher *l) {
    for (const tt__nodes_event *event = l->lost; event; event = event->next)
        tt__streams_alarm(&l->streams, "tutti run: node %d (%s) is lost: %s", event->node,
                          l->round->of[event->node].hostname, event->text ? event->text : "?");
}

void tt__launcher_report_attempts(launcher *l) {
    int attempt = l->job->restarts, left_out = attempt > TT__MAX_EARLIER ? attempt - TT__MAX_EARLIER : 0;
    const char *against = tt__launcher_has_attempts_left(l) ? tt__launcher_against_another(l) : NULL;
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

void tt__launcher_forget_attempts(launcher *l) {
    for (int i = 0; i < TT__MAX_EARLIER; i++)
        free(l->earlier[i]);
}
