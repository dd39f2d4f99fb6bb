/* This node among those of the job.
 *
 *        +---------------- looks for the job again <------------------+
 *        v                                                            |
 *      JOINS --a round--> TAKES_PART --it is silent, or cut off--> LOST_JOB
 *        |                    |
 *        +------ over --------+------> THROUGH
 *
 * Whether the job restarts is decided in tt__member_go_on(). On several nodes the coordinator's launcher decides, when
 * all nodes have nothing left of the attempt (the verdict ALL_GONE): then it knows all failures, and which nodes are
 * there. It orders the next round (ORDERED), or announces that there is none (the others' verdict LAST). The others
 * wait for that. Alone, a node decides at once. If nodes may come and go, a node that is cut off from the job kills its
 * workers, except those that survive that, and joins anew. */
#include "launch/machine/machine_parts.h"

#include "base/build.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *hostname_of(const tt__machine *m, int node) {
    const tt__round *round = m->membership.round;
    return round && node >= 0 && node < round->n ? round->of[node].hostname : "?";
}

static int own_number(const tt__machine *m) { return m->membership.round ? m->membership.round->own : 0; }

/* ---- losing the job, and nodes that come and go */

static void lose_job(tt__step *s) {
    if (!TT__MUTANT(lost_job_goes_on))
        s->m->membership.state = TT__LOST_JOB;
    if (tt__machine_works(s->m) && tt__attempt_may_recover(s))
        tt__attempt_interrupt(s);
    else if (tt__machine_works(s->m) || s->m->attempt.phase == TT__TERMINATING)
        tt__attempt_kill(s);
}

static void announce_regroup(tt__step *s, const char *why) {
    if (!s->m->membership.coordinates)
        return;
    tt__do_say(s, TT__DO_ANNOUNCE_REGROUP, "%s", why);
    s->actions->list[s->actions->n - 1].say.attempt = tt__machine_attempt(s->m);
}

/* Nodes come or go when the workers here have already ended, are about to end, or wait for the next round. If any of
 * them failed, this change was the reason. */
static void regroup_late(tt__step *s, const char *why) {
    tt__machine *m = s->m;
    tt__failure first;
    if (m->attempt.phase == TT__NO_ATTEMPT || m->membership.verdict.kind == TT__ORDERED || m->attempt.regroups ||
        !(m->attempt.kept || tt__ledger_first(&m->ledger, &first)))
        return;
    m->attempt.regroups = true;
    tt__do_say(s, TT__DO_NOTE_WHY, "%s", why);
    tt__do_say(s, TT__DO_SAY, "%s", why);
    announce_regroup(s, why); /* others may not have noticed, or take it for a failure */
}

static void regroup(tt__step *s, const char *why) {
    tt__machine *m = s->m;
    if (!tt__machine_works(m)) {
        regroup_late(s, why);
        return;
    }
    bool first = !m->attempt.regroups, recovers = tt__attempt_may_recover(s);
    m->attempt.regroups = true;
    if (first) {
        tt__do_say(s, TT__DO_SAY, "%s: %s", why,
                   recovers ? "the ranks here go on to the next round" : "ending the workers here, to start again");
        tt__do_say(s, TT__DO_NOTE_WHY, "%s", why);
        announce_regroup(s, why);
    }
    tt__attempt_interrupt(s);
}

static void publish_end_of_node(tt__step *s, int node) {
    if (s->m->membership.coordinates && s->m->membership.round)
        tt__do(s, TT__DO_PUBLISH_NODE_END)->node = node;
}

/* Another node leaves a job that goes on. */
static void node_goes(tt__step *s, int node, const char *why) {
    char text[160];
    if (!s->m->membership.coordinates || !s->m->membership.round)
        return;
    publish_end_of_node(s, node);
    snprintf(text, sizeof text, "node %d (%s) leaves (%s)", node, hostname_of(s->m, node), why);
    regroup(s, text);
}

/* ---- other nodes */

static void take_remote_signal(tt__step *s, int node, int sig) {
    char name[32];
    tt__signal_name(sig, name, sizeof name);
    if (s->m->job.elastic && node > 0) {
        node_goes(s, node, name);
        return;
    }
    s->m->ending.remote_signal = sig;
    if (!tt__machine_works(s->m))
        return;
    publish_end_of_node(s, node); /* it may have had no workers yet, and so published no ends */
    tt__do_say(s, TT__DO_SAY, "node %d (%s) got %s: ending the workers here, too", node, hostname_of(s->m, node), name);
    tt__attempt_terminate(s, SIGTERM);
}

static void keep_lost(tt__step *s, tt__event *event) {
    tt__ledger *ledger = &s->m->ledger;
    if (!ledger->lost)
        ledger->lost_ns = s->around->realtime_ns;
    event->lost.node->next = ledger->lost;
    ledger->lost = event->lost.node;
    event->lost.node = NULL;
}

/* A node is lost: another one, or this one, as the coordinator sees it. Without an attempt, it is of a round that came
 * when this node was done and was not taken: its number means nothing here. */
static void take_lost(tt__step *s, tt__event *event) {
    tt__membership *me = &s->m->membership;
    if (s->m->attempt.phase == TT__NO_ATTEMPT)
        return;
    int node = event->lost.node->node;
    bool own = node == own_number(s->m), deaf = own && me->coordinates; /* it can't reach the store that it serves */
    keep_lost(s, event);
    if (deaf)
        tt__ending_note_damage(s, TT__NODE_LEFT);
    if (!tt__outlook_replaces_nodes(s->m) || deaf) {
        tt__attempt_settle(s);
    } else if (!me->coordinates && (own || node == 0)) {
        lose_job(s);
    } else {
        publish_end_of_node(s, node);
        tt__attempt_interrupt(s);
    }
}

/* Another launcher has ended. If workers run here, it did not end together with the others: it is missing, or leaves a
 * job whose nodes may go. Workers that were only kept for a round that does not follow don't count. */
static void take_left(tt__step *s, tt__event *event) {
    tt__machine *m = s->m;
    int node = event->lost.node->node;
    bool told = m->ending.own_signal || m->ending.remote_signal, over = m->attempt.phase == TT__ATTEMPT_OVER;
    if (tt__machine_is_done(m) || (m->membership.verdict.kind == TT__LAST && !TT__MUTANT(end_before_others_is_loss)) ||
        !tt__machine_allows_another(m))
        return;
    if (m->job.elastic && node > 0) {
        if (!over)
            node_goes(s, node, "its launcher's end");
        return;
    }
    /* its keeper is lost, say */
    if (!TT__MUTANT(ended_launcher_not_replaced) && tt__outlook_replaces_nodes(m) && node > 0 && !told) {
        if (!over)
            take_lost(s, event);
        return;
    }
    tt__ending_note_damage(s, TT__NODE_LEFT);
    if (over || told)
        return;
    keep_lost(s, event);
    tt__attempt_settle(s);
}

static void take_remote_end(tt__step *s, tt__event *event) {
    tt__ledger *ledger = &s->m->ledger;
    event->end->next = ledger->others;
    ledger->others = event->end;
    event->end = NULL;
    tt__attempt_settle(s);
}

/* Another node has replaced this one as coordinator: this one was silent or cut off. */
static void take_deposition(tt__step *s) {
    s->m->membership.coordinates = false;
    if (tt__machine_is_done(s->m))
        return;
    tt__do(s, TT__DO_SAY_DEPOSED);
    if (tt__outlook_replaces_nodes(s->m)) {
        lose_job(s);
        return;
    }
    tt__ending_note_damage(s, TT__NODE_LEFT);
    tt__attempt_settle(s);
}

/* ---- joining */

/* Look for the job again. Workers that are kept wait until it is found. */
static void rejoin(tt__step *s) {
    tt__membership *me = &s->m->membership;
    me->state = TT__JOINS;
    me->coordinates = false; /* the next round says so, if it does again */
    me->counts.recovery = s->m->attempt.kept ? me->counts.recovery : 0;
    s->m->attempt.phase = TT__NO_ATTEMPT;
    tt__do(s, TT__DO_REJOIN);
}

/* The round that was to begin here has gone on without this node, which stood still. */
static void take_missed(tt__step *s) {
    if (tt__machine_is_done(s->m))
        return;
    tt__do_say(s, TT__DO_ALARM, "this node was silent, and the job has gone on without it");
    if (s->m->attempt.phase == TT__NO_ATTEMPT)
        rejoin(s);
    else if (s->m->attempt.phase == TT__ATTEMPT_OVER)
        s->m->membership.state = TT__LOST_JOB;
}

/* The coordinator is gone, and there was no round yet. If a signal has ended the workers that were kept, there is
 * nothing to join for. */
static void take_coordinator_gone(tt__step *s) {
    if (s->m->attempt.phase == TT__NO_ATTEMPT && !tt__machine_is_done(s->m))
        rejoin(s);
    else
        s->m->membership.state = TT__THROUGH;
}

/* No round follows. After an attempt, report what is known of it. */
static void take_no_round(tt__step *s, const char *text) {
    if (s->m->attempt.phase == TT__NO_ATTEMPT)
        tt__ending_fail(s, text);
    else
        tt__do_say(s, TT__DO_ALARM, "%s", text);
    tt__ending_note_damage(s, TT__NODE_LEFT);
    s->m->ending.stage = TT__DONE;
    s->m->membership.state = TT__THROUGH;
}

static void take_over(tt__step *s) {
    s->m->membership.state = TT__THROUGH;
    if (s->m->attempt.phase != TT__NO_ATTEMPT || tt__machine_is_done(s->m))
        return;
    tt__do_say(s, TT__DO_SAY, "the job has ended: this node was not needed");
    s->m->ending.stage = TT__DONE;
}

/* ---- from one attempt to the next */

/* Report how the attempt ended, as another follows, and forget it. */
static void close_attempt(tt__step *s) {
    tt__machine *m = s->m;
    tt__failure first;
    bool any = tt__ledger_first(&m->ledger, &first);
    tt__action *action = tt__do(s, TT__DO_REPORT_ATTEMPT);
    action->report.recovers = m->attempt.kept || tt__outlook_any_kept(m);
    action->report.cause = m->ledger.lost && (!any || tt__is_consequence(first.worker)) ? TT__CAUSE_LOSS
                           : any && tt__outlook_failed_by_itself(m)                     ? TT__CAUSE_FAILURE
                           : m->attempt.regroups                                        ? TT__CAUSE_CHANGE
                                                                                        : TT__CAUSE_CALL;
}

/* Begin another attempt: start the workers again, or order a round. No process of the last attempt is left on any node,
 * except workers that are kept. */
static void order_next(tt__step *s) {
    tt__machine *m = s->m;
    tt__membership *me = &m->membership;
    bool kept = tt__outlook_any_kept(m);
    tt__counts next = {.attempt = tt__machine_attempt(m) + (!m->job.alone || !kept),
                       .restarts =
                           me->counts.restarts + (!TT__MUTANT(restart_not_counted) && tt__outlook_attempt_failed(m)),
                       .recovery = kept ? me->counts.recovery + 1 : 0};
    close_attempt(s);
    me->verdict.kind = TT__ORDERED;
    if (!m->job.alone) {
        tt__action *action = tt__do(s, TT__DO_ORDER_ROUND);
        action->order.counts = next;
        action->order.renews = !kept && !TT__MUTANT(store_not_renewed);
        return;
    }
    if (!kept)
        tt__do(s, TT__DO_RENEW_STORE);
    me->next = next;
    tt__attempt_forget(s);
    tt__do(s, TT__DO_NEXT);
}

/* End the job, or this node's part. Workers that were kept for another attempt end first. */
static void end_here(tt__step *s) {
    tt__machine *m = s->m;
    m->ending.stage = m->attempt.kept ? TT__ENDS : TT__DONE;
    if (m->attempt.kept)
        tt__attempt_terminate(s, SIGTERM);
    else if (!m->job.alone && m->membership.coordinates)
        tt__do(s, TT__DO_ANNOUNCE_LAST)->attempt = tt__machine_attempt(m);
}

/* This node was cut off from the job, and nothing of the attempt is left here: look for the job again. */
static void leave_lost_job(tt__step *s) {
    tt__do(s, TT__DO_REPORT_LOST);
    tt__attempt_forget(s);
    rejoin(s);
}

/* Here it is decided whether the job goes on: tt__outlook_another_follows() is the rule. */
void tt__member_go_on(tt__step *s) {
    tt__machine *m = s->m;
    const tt__membership *me = &m->membership;
    if (m->attempt.phase != TT__ATTEMPT_OVER || tt__machine_is_done(m))
        return;
    if (me->state == TT__LOST_JOB && !m->ending.own_signal)
        leave_lost_job(s);
    else if (m->ending.stage == TT__ENDS || tt__outlook_reason_to_end(m) || me->verdict.kind == TT__LAST ||
             !(m->job.alone || tt__machine_allows_another(m)))
        end_here(s);
    else if (m->job.alone ? me->verdict.kind == TT__UNDECIDED : me->coordinates && me->verdict.kind == TT__ALL_GONE) {
        if (tt__outlook_another_follows(m))
            order_next(s);
        else
            end_here(s);
    }
}

/* Take the round that begins here, if this node waits for one: close the attempt before it. */
static void take_round(tt__step *s, tt__event *event) {
    tt__machine *m = s->m;
    tt__membership *me = &m->membership;
    tt__round *round = event->round.round;
    bool again = m->attempt.phase == TT__ATTEMPT_OVER;
    if (tt__machine_is_done(m) || me->next_round || (m->attempt.phase != TT__NO_ATTEMPT && !again))
        return;
    if (!again && m->ending.remote_signal) {
        tt__ending_fail(s, "another node was told to end before the workers here began");
        tt__ending_note_damage(s, TT__NODE_LEFT);
        return;
    }
    me->coordinates = event->round.coordinates;
    if (again && me->verdict.kind != TT__ORDERED) {
        me->verdict.any_kept = round->recovery > 0;
        close_attempt(s);
    }
    if (again || m->attempt.kept)
        tt__attempt_forget(s);
    me->next = (tt__counts){m->attempt.kept ? me->counts.attempt : round->attempt, round->restarts, round->recovery};
    me->next_round = round;
    me->verdict.kind = TT__ORDERED;
    event->round.round = NULL;
    tt__do(s, TT__DO_NEXT);
}

void tt__member_next(tt__step *s) {
    tt__membership *me = &s->m->membership;
    bool again = s->m->job.alone || me->round;
    free(me->round);
    me->round = me->next_round;
    me->next_round = NULL;
    me->counts = me->next;
    me->state = TT__TAKES_PART;
    me->verdict = (tt__verdict){0};
    if (TT__MUTANT(all_gone_remembered) && again)
        me->verdict.kind = TT__ALL_GONE;
    if (TT__MUTANT(order_remembered) && again)
        me->verdict.kind = TT__ORDERED;
    if (me->round)
        s->m->ledger.first_rank = me->round->of[me->round->own].first_rank;
    tt__do(s, TT__DO_TELL_ROUND);
    if (s->m->job.elastic && me->round)
        tt__do(s, TT__DO_SAY_ROUND);
    tt__attempt_start(s, again);
}

void tt__member_begin(tt__step *s) {
    s->m->membership.state = TT__TAKES_PART;
    tt__attempt_start(s, false);
}

/* ---- events */

/* Is the event about the attempt that runs here, or ran last? */
static bool is_of_this_attempt(const tt__machine *m, int attempt) { return attempt == tt__machine_attempt(m); }

void tt__member_event(tt__step *s, tt__event *event) {
    tt__machine *m = s->m;
    switch (event->kind) {
    case TT__ON_ROUND:
        take_round(s, event);
        break;
    case TT__ON_NO_ROUND:
        take_no_round(s, event->text);
        break;
    case TT__ON_MISSED:
        take_missed(s);
        break;
    case TT__ON_COORDINATOR_GONE:
        take_coordinator_gone(s);
        break;
    case TT__ON_OVER:
        take_over(s);
        break;
    case TT__ON_REMOTE_END:
        if (is_of_this_attempt(m, event->end->attempt))
            take_remote_end(s, event);
        break;
    case TT__ON_REMOTE_WAIT:
        if (is_of_this_attempt(m, event->remote_wait.attempt))
            tt__attempt_remote_wait(s, event->remote_wait.blamed);
        break;
    case TT__ON_REMOTE_SIGNAL:
        take_remote_signal(s, event->remote_signal.node, event->remote_signal.sig);
        break;
    case TT__ON_LOST:
        take_lost(s, event);
        break;
    case TT__ON_LEFT:
        take_left(s, event);
        break;
    case TT__ON_REGROUP:
        if (is_of_this_attempt(m, event->regroup.attempt))
            regroup(s, event->regroup.why);
        break;
    case TT__ON_NEWCOMER:
        if (m->attempt.phase == TT__RUNNING && !m->attempt.told_success)
            regroup(s, event->regroup.why);
        break;
    case TT__ON_LAST:
        if (is_of_this_attempt(m, event->last.attempt))
            m->membership.verdict.kind = TT__LAST;
        break;
    case TT__ON_ALL_GONE:
        if (m->attempt.phase == TT__ATTEMPT_OVER && m->membership.verdict.kind == TT__UNDECIDED &&
            is_of_this_attempt(m, event->all_gone.attempt))
            m->membership.verdict = (tt__verdict){TT__ALL_GONE, event->all_gone.any_kept, event->all_gone.well};
        break;
    case TT__ON_DEPOSED:
        take_deposition(s);
        break;
    default:
        break;
    }
}
