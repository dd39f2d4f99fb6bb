/* The workers of one attempt on this node.
 *
 *   NO_ATTEMPT ---> RUNNING --a worker fails--> SETTLING --deadline--> TERMINATING --grace_ms--> KILLING
 *        ^           ^   |                         |                        |                       |
 *        |           |   +-------------------------+------ nothing left ----+-----------------------+
 *        |           |                                          v
 *        |           +------------ another attempt ------- ATTEMPT_OVER
 *        +---------------------- the job is lost -------------------+
 *
 * SETTLING: the other workers notice the failure; most end by themselves and say why. If all will be started again, the
 * phase ends as soon as it is clear which worker failed first. Workers that survive the loss of others have the grace
 * period to ask for the next round. When all that are left have done so, ATTEMPT_OVER is entered although these workers
 * live on. A stopped rank that others blame is killed; a rank that nobody blames may be in the middle of a long step.
 *
 * TERMINATING: the workers have got SIGTERM. KILLING: the keeper kills every descendant. ATTEMPT_OVER: the keeper has
 * reported that nothing is left; membership.c decides what follows.
 *
 * If all workers have ended, but not all processes that they started, the same phases follow. */
#include "launch/machine/machine_parts.h"

#include "base/build.h"
#include "base/process/proc_state.h"

#include <signal.h>

enum {
    LOOK_MS = 10,        /* between two looks at workers that survive, in SETTLING */
    WATCH_MS = 100,      /* the same, in RUNNING */
    KILLED_MS = 2000,    /* beyond the settle period, for workers that were killed */
    TELL_LATE_MS = 3000, /* when to print which ranks are missing */
    STACKS_MS = 4500     /* for reading stacks */
};

static int64_t in_ms(const tt__step *s, int64_t ms) {
    return ms > INT64_MAX - s->around->now_ms ? INT64_MAX : s->around->now_ms + ms;
}

static void enter_phase(tt__step *s, tt__attempt_phase phase, int64_t timeout_ms) {
    s->m->attempt.phase = phase;
    s->m->attempt.deadline_ms = TT__MUTANT(phase_without_deadline) ? INT64_MAX : in_ms(s, timeout_ms);
}

static void enter_settling(tt__step *s, int64_t timeout_ms) {
    if (s->m->attempt.phase != TT__SETTLING)
        s->m->attempt.settling = TT__FOR_REASONS;
    enter_phase(s, TT__SETTLING, timeout_ms);
}

static void lower_deadline(tt__step *s, int64_t deadline_ms) {
    if (deadline_ms < s->m->attempt.deadline_ms)
        s->m->attempt.deadline_ms = deadline_ms;
}

void tt__attempt_start(tt__step *s, bool again) {
    tt__attempt_state *a = &s->m->attempt;
    a->phase = TT__RUNNING;
    a->deadline_ms = INT64_MAX;
    a->kept = false;
    tt__do(s, TT__DO_START)->start.again = again;
}

void tt__attempt_forget(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    a->regroups = a->told_success = false;
    a->settling = TT__FOR_REASONS;
    s->m->membership.verdict = (tt__verdict){0};
    tt__do(s, TT__DO_FORGET);
}

/* ---- ending the workers */

void tt__attempt_note_signal(tt__step *s, int sig) {
    tt__ledger *ledger = &s->m->ledger;
    for (int i = 0; i < ledger->count; i++) {
        tt__worker *w = &ledger->workers[i];
        if (w->ended)
            continue;
        if (!w->sent_signal)
            w->signal_s = s->around->realtime_ns / 1000000000;
        w->sent_signal = sig;
    }
}

void tt__attempt_terminate(tt__step *s, int sig) {
    bool any = tt__ledger_ended(&s->m->ledger) < s->m->ledger.count;
    tt__attempt_note_signal(s, sig);
    tt__action *action = tt__do(s, TT__DO_SIGNAL);
    action->signal.sig = sig;
    action->signal.scope = any ? TT__TO_WORKERS : TT__TO_LEFTOVERS;
    enter_phase(s, TT__TERMINATING, s->m->job.grace_ms);
}

void tt__attempt_pass_signal(tt__step *s, int sig) {
    tt__attempt_note_signal(s, sig);
    tt__action *action = tt__do(s, TT__DO_SIGNAL);
    action->signal.sig = sig;
    action->signal.scope = TT__TO_OTHERS;
    enter_phase(s, TT__TERMINATING, s->m->job.grace_ms);
}

void tt__attempt_kill(tt__step *s) {
    tt__attempt_note_signal(s, SIGKILL);
    tt__do(s, TT__DO_KILL);
    enter_phase(s, TT__KILLING, TT__KEEPER_KILL_MS);
}

/* ---- workers that survive */

/* May another round follow, as far as is known here? After a failure only if an attempt is left; after the loss of a
 * node that can be replaced always. */
static bool may_follow(const tt__machine *m) {
    bool used_up = tt__outlook_failed_by_itself(m) && !tt__machine_has_attempts_left(m);
    return !used_up && !tt__outlook_reason_to_end(m);
}

bool tt__attempt_can_recover(const tt__step *s) {
    const tt__survivors *now = &s->around->survivors;
    return tt__machine_allows_another(s->m) && !s->m->ending.own_signal && !s->m->ending.remote_signal && now->living &&
           now->able == now->living;
}

bool tt__attempt_may_recover(const tt__step *s) { return may_follow(s->m) && tt__attempt_can_recover(s); }

static bool awaits_survivors(const tt__attempt_state *a) {
    return a->phase == TT__SETTLING && (a->settling == TT__FOR_SURVIVORS || a->settling == TT__FOR_SURVIVORS_ASKED);
}

/* Those that are left have the grace period to come to the next round. */
static void await_survivors(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    int64_t deadline_ms = in_ms(s, s->m->job.grace_ms);
    if (!awaits_survivors(a)) {
        a->late_ms = in_ms(s, TELL_LATE_MS);
        a->settling = TT__FOR_SURVIVORS;
    }
    a->look_ms = s->around->now_ms;
    if (deadline_ms > a->deadline_ms)
        a->deadline_ms = deadline_ms;
}

static void kill_late(tt__step *s, int rank) { tt__do(s, TT__DO_KILL_LATE)->late = rank; }

static void want_round(tt__step *s) {
    s->m->attempt.listeners = s->around->listeners;
    if (!TT__MUTANT(round_not_wanted))
        tt__do(s, TT__DO_WANT_ROUND);
}

/* Some wait for another round while others here have not said that they survive: those may have stopped as they
 * started. One that is blamed is killed; the others have the grace period. */
static void await_unready(tt__step *s) {
    if (s->m->attempt.phase == TT__RUNNING) {
        enter_settling(s, s->m->job.grace_ms);
        await_survivors(s);
    }
    if (s->around->survivors.blamed >= 0)
        kill_late(s, s->around->survivors.blamed);
}

/* If it turns out that no round follows, workers that survive get no more time than others. A failure on another node
 * may become known here after the ranks here have noticed it. */
static void stop_awaiting(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    if (!awaits_survivors(a) || s->m->ending.agreed_signal || may_follow(s->m))
        return;
    a->settling = TT__FOR_REASONS;
    lower_deadline(s, in_ms(s, s->m->job.settle_ms));
}

/* The attempt is over here: all that run wait for the next round (kept), or nothing is left but `unkillable`
 * processes. */
static void finish_attempt(tt__step *s, bool kept, int unkillable) {
    tt__machine *m = s->m;
    bool well = tt__ledger_ended(&m->ledger) == m->ledger.count && !unkillable;
    if (unkillable)
        tt__ending_note_damage(s, TT__UNKILLABLE);
    m->attempt.phase = TT__ATTEMPT_OVER;
    m->attempt.deadline_ms = INT64_MAX;
    m->attempt.kept = kept;
    tt__action *last = tt__do(s, TT__DO_COLLECT);
    last->collect.attempt = tt__machine_attempt(m);
    last->collect.kept = kept;
    if (unkillable)
        tt__do_say(s, TT__DO_SAY, "%d process%s of the job can't be killed", unkillable, unkillable == 1 ? "" : "es");
    if (m->job.alone || !tt__machine_allows_another(m))
        return;
    for (int i = 0; i < m->ledger.count; i++) /* a worker that was told to end may exit with 0, too */
        well = well && !m->ledger.workers[i].status && !m->ledger.workers[i].sent_signal;
    tt__action *action = tt__do(s, TT__DO_ANNOUNCE_GONE);
    action->gone.attempt = tt__machine_attempt(m);
    action->gone.kept = m->attempt.kept;
    action->gone.blamed = s->around->survivors.blamed;
    action->gone.well = well;
}

static void look_at_survivors(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    const tt__survivors *now = &s->around->survivors;
    if (!tt__machine_works(s->m) || s->around->now_ms < a->look_ms)
        return;
    a->look_ms = in_ms(s, a->phase == TT__SETTLING ? LOOK_MS : WATCH_MS);
    if (awaits_survivors(a) && a->settling == TT__FOR_SURVIVORS_ASKED && a->listeners != s->around->listeners)
        want_round(s); /* some had not listened yet */
    if (awaits_survivors(a) && a->late_ms && s->around->now_ms >= a->late_ms) {
        a->late_ms = 0;
        tt__do(s, TT__DO_SAY_LATE);
    }
    /* nobody else would answer those that wait */
    if (!TT__MUTANT(wait_for_impossible_round) && now->waiting && !tt__machine_allows_another(s->m))
        tt__do(s, TT__DO_DENY_ROUND);
    else if (now->waiting && now->able < now->living && may_follow(s->m))
        await_unready(s);
    if (!now->waiting || !tt__attempt_may_recover(s))
        return;
    if (a->phase == TT__RUNNING)
        tt__attempt_settle(s);
    if (now->waiting == now->living && !now->starting)
        finish_attempt(s, true, 0);
    else if (now->blamed >= 0)
        kill_late(s, now->blamed);
}

/* ---- what happens to the workers */

void tt__attempt_settle(tt__step *s) {
    tt__failure first;
    if (s->m->attempt.phase == TT__RUNNING)
        enter_settling(s, s->m->job.settle_ms);
    if (s->m->attempt.phase != TT__SETTLING || tt__machine_against_another(s->m))
        return;
    if (tt__attempt_may_recover(s))
        await_survivors(s);
    else if (tt__machine_has_attempts_left(s->m) && tt__ledger_first(&s->m->ledger, &first) &&
             !tt__is_consequence(first.worker))
        lower_deadline(s, in_ms(s, TT__TIE_MS));
}

void tt__attempt_interrupt(tt__step *s) {
    if (!tt__machine_works(s->m))
        return;
    if (!tt__attempt_may_recover(s)) {
        tt__attempt_terminate(s, SIGTERM);
        return;
    }
    want_round(s); /* it may be that only a launcher is lost, which the ranks don't see */
    enter_settling(s, s->m->job.grace_ms);
    await_survivors(s);
    s->m->attempt.settling = TT__FOR_SURVIVORS_ASKED;
}

static void tell_success(tt__step *s, const tt__worker *w) {
    if (s->m->job.alone || !s->m->job.elastic || s->m->attempt.told_success || w->sent_signal)
        return;
    s->m->attempt.told_success = true;
    tt__do(s, TT__DO_ANNOUNCE_SUCCESS)->attempt = tt__machine_attempt(s->m);
}

void tt__attempt_ended(tt__step *s, int worker, int agreed) {
    const tt__worker *w = &s->m->ledger.workers[worker];
    if (s->m->attempt.phase != TT__NO_ATTEMPT) /* else it was kept, and is in no round */
        tt__do(s, TT__DO_PUBLISH_END)->worker = worker;
    if (agreed)
        s->m->ending.agreed_signal = agreed;
    if (s->m->ending.agreed_signal) {
        if (s->m->attempt.phase == TT__RUNNING) /* the others are to end as well */
            enter_settling(s, s->m->job.grace_ms);
    } else if (w->status) {
        tt__attempt_settle(s);
    } else {
        tell_success(s, w);
    }
}

void tt__attempt_leftovers(tt__step *s) {
    if (s->m->attempt.phase == TT__TERMINATING)
        tt__attempt_terminate(s, SIGTERM);
    else if (s->m->attempt.phase == TT__RUNNING)
        enter_settling(s, s->m->job.settle_ms);
}

void tt__attempt_cleared(tt__step *s, int unkillable) {
    if (s->m->attempt.phase != TT__NO_ATTEMPT) {
        finish_attempt(s, false, unkillable);
        return;
    }
    s->m->attempt.kept = false; /* the last that was kept has ended: the next round starts others */
    tt__attempt_forget(s);
}

void tt__attempt_remote_wait(tt__step *s, int blamed) {
    if (!tt__machine_works(s->m))
        return;
    tt__attempt_settle(s);
    if (blamed >= 0 && tt__attempt_can_recover(s))
        kill_late(s, blamed);
}

/* ---- time */

/* The time of SETTLING is over: send SIGTERM. */
static void end_settling(tt__step *s) {
    if (tt__ledger_ended(&s->m->ledger) == s->m->ledger.count)
        tt__do_say(s, TT__DO_SAY,
                   "all workers ended, but processes that they started are still there: they get SIGTERM");
    tt__attempt_terminate(s, SIGTERM);
}

/* The deadline of SETTLING is over. */
static void settling_expired(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    bool goes_on = tt__attempt_may_recover(s) || (awaits_survivors(a) && may_follow(s->m));
    if (goes_on && s->around->survivors.waiting) {
        kill_late(s, -1);
        a->deadline_ms = in_ms(s, s->m->job.settle_ms + KILLED_MS);
    } else if (s->m->membership.state == TT__LOST_JOB) {
        tt__attempt_kill(s);
    } else if (a->settling == TT__FOR_STACKS || s->m->ending.agreed_signal) {
        end_settling(s);
    } else {
        a->settling = TT__FOR_STACKS;
        a->deadline_ms = in_ms(s, STACKS_MS);
        tt__do(s, TT__DO_READ_IDLE);
    }
}

void tt__attempt_idle_read(tt__step *s) {
    if (s->m->attempt.phase == TT__SETTLING && s->m->attempt.settling == TT__FOR_STACKS)
        settling_expired(s);
}

void tt__attempt_time(tt__step *s) {
    tt__attempt_state *a = &s->m->attempt;
    stop_awaiting(s);
    look_at_survivors(s);
    if (s->around->now_ms < a->deadline_ms)
        return;
    if (a->phase == TT__SETTLING) {
        settling_expired(s);
    } else if (a->phase == TT__TERMINATING) {
        tt__attempt_kill(s);
    } else if (a->phase == TT__KILLING) {
        tt__do(s, TT__DO_KILL_KEEPER);
        a->deadline_ms = INT64_MAX;
    }
}

int64_t tt__machine_due_ms(const tt__machine *m, const tt__survivors *survivors) {
    const tt__attempt_state *a = &m->attempt;
    bool looks = tt__machine_works(m) && survivors->able && a->look_ms < a->deadline_ms;
    return looks ? a->look_ms : a->deadline_ms;
}
