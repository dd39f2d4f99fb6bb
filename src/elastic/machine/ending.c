/* Whether the job ends here, why, and with what exit code.
 *
 *   GOES_ON --no attempt follows, and workers are kept--> ENDS --they have ended--> DONE
 *      |                                                                             ^
 *      +---------- nothing of the job is left here, or there is no way on ------------+
 *
 * A signal to the launcher goes to the workers, which are terminated; a second one kills them. After any there is no
 * further attempt. In a job that goes on without this node, a signal makes the node leave. */
#include "elastic/machine/parts.h"

#include "base/mutant.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

void tt__do_say(tt__step *s, tt__action_kind kind, const char *format, ...) {
    tt__action *action = tt__do(s, kind);
    va_list args;
    va_start(args, format);
    vsnprintf(action->say.text, sizeof action->say.text, format, args);
    va_end(args);
}

/* ---- whether another attempt follows */

const char *tt__ending_reason(const tt__machine *m) {
    const tt__ending *e = &m->ending;
    if (e->own_signal || e->remote_signal || e->agreed_signal)
        return "the job was told to end";
    if (e->damage == TT__NODE_LEFT || (m->ledger.lost && !tt__member_replaces(m)))
        return "a node is missing";
    return e->damage == TT__KEEPER_LOST  ? "the keeper process was killed"
           : e->damage == TT__UNKILLABLE ? "processes of this attempt are still there"
                                         : NULL;
}

const char *tt__machine_against_another(const tt__machine *m) {
    return tt__ledger_unexecutable(&m->ledger) ? "what can't be executed would fail the same way"
                                               : tt__ending_reason(m);
}

bool tt__machine_has_attempts_left(const tt__machine *m) { return m->membership.counts.restarts < m->job.max_restarts + TT__MUTANT(one_attempt_too_many); }

bool tt__machine_may_go_on(const tt__machine *m) { return m->job.max_restarts > 0 || m->job.elastic; }

bool tt__ending_failed_by_itself(const tt__machine *m) {
    tt__failure first;
    bool changes = m->attempt.regroups || m->ledger.lost;
    if (m->ledger.lost && !m->job.elastic)
        return true;
    return tt__ledger_first(&m->ledger, &first) && !(changes && tt__is_consequence(first.worker));
}

bool tt__ending_attempt_failed(const tt__machine *m) {
    return tt__ending_failed_by_itself(m) || (tt__member_any_goes_on(m) && !m->attempt.regroups && !m->ledger.lost);
}

bool tt__ending_another_follows(const tt__machine *m) {
    bool failed = tt__ending_attempt_failed(m), changes = m->attempt.regroups || m->ledger.lost;
    bool ended_well = !failed && ((m->membership.verdict.well && !TT__MUTANT(well_round_run_again)) || !changes); /* just before nodes came or went */
    return !ended_well && (!failed || tt__machine_has_attempts_left(m)) && !tt__machine_against_another(m);
}

bool tt__machine_goes_on(const tt__machine *m) {
    if (m->ending.stage != TT__GOES_ON || m->membership.verdict.kind == TT__LAST || m->ending.damage == TT__KEEPER_LOST)
        return false;
    return m->membership.state == TT__LOST_JOB ? !m->ending.own_signal : tt__ending_another_follows(m);
}

bool tt__machine_waits_for_nodes(const tt__machine *m) {
    bool undecided = m->membership.coordinates && m->membership.verdict.kind != TT__ORDERED;
    bool rests = m->attempt.phase == TT__ATTEMPT_OVER && !m->job.alone && !undecided;
    return m->attempt.phase == TT__NO_ATTEMPT || (rests && tt__machine_goes_on(m));
}

/* ---- what ends it */

void tt__ending_damage(tt__step *s, tt__damage damage) {
    if (damage > s->m->ending.damage)
        s->m->ending.damage = damage;
}

void tt__ending_fail(tt__step *s, const char *text) {
    tt__do_say(s, TT__DO_FAIL, "%s", text);
    s->m->ending.stage = TT__DONE;
}

void tt__ending_keeper_lost(tt__step *s) {
    tt__ending_damage(s, TT__KEEPER_LOST);
    s->m->ending.stage = TT__DONE;
    tt__attempt_note_signal(s, SIGKILL); /* from the kernel: the other nodes, which see none of that, are told so */
    tt__do(s, TT__DO_KILL_ORPHANS);
}

/* Do the others go on when this node ends? Its workers, if they survive the loss of others, would tell them all to
 * stop. */
static bool can_leave(const tt__step *s) {
    return s->m->job.elastic && !s->m->membership.coordinates && tt__attempt_can_recover(s);
}

static void announce_signal(tt__step *s, int sig) {
    if (!s->m->job.alone)
        tt__do(s, TT__DO_ANNOUNCE_SIGNAL)->signal.sig = sig;
}

static void take_first_signal(tt__step *s, int sig, const char *name, bool from_terminal) {
    tt__machine *m = s->m;
    tt__attempt_phase phase = m->attempt.phase;
    bool leaves = can_leave(s), rests = (phase == TT__NO_ATTEMPT || phase == TT__ATTEMPT_OVER);
    int living = m->ledger.count - tt__ledger_ended(&m->ledger);
    if (TT__MUTANT(signal_between_attempts_lost) && phase == TT__ATTEMPT_OVER)
        return;
    m->ending.own_signal = sig;
    announce_signal(s, sig);
    if (leaves) {
        tt__do_say(s, TT__DO_SAY, "got %s: this node leaves the job, which goes on without it", name);
        tt__attempt_kill(s);
        return;
    }
    if (rests && !m->attempt.kept) {
        if (phase == TT__ATTEMPT_OVER)
            tt__do_say(s, TT__DO_SAY, "got %s: not waiting for another attempt", name);
        m->ending.stage = TT__DONE;
        return;
    }
    tt__do_say(s, TT__DO_SAY, "got %s: ending %d worker%s, SIGKILL in %.3g s (a second signal: now)", name, living,
               living == 1 ? "" : "s", (double)m->job.grace_ms / 1000);
    if (phase == TT__TERMINATING || phase == TT__KILLING)
        return;
    if (from_terminal)
        tt__attempt_pass_signal(s, sig);
    else
        tt__attempt_terminate(s, sig);
}

/* Ctrl-C at a terminal has reached the workers already, except those that have left the process group, as under
 * timeout(1) and setsid(1). */
void tt__ending_signal(tt__step *s, int sig, bool from_terminal) {
    tt__ending *e = &s->m->ending;
    char name[32];
    tt__signal_name(sig, name, sizeof name);
    if (e->stage == TT__DONE) {
        tt__do_say(s, TT__DO_SAY, "got %s: not waiting any longer", name);
        e->own_signal = e->own_signal ? e->own_signal : sig;
    } else if (e->own_signal) {
        tt__do_say(s, TT__DO_SAY, "got %s again: killing what is left", name);
        tt__attempt_kill(s);
    } else {
        take_first_signal(s, sig, name, from_terminal);
    }
}

bool tt__machine_leaves_early(const tt__machine *m) {
    bool ends_alone = m->ending.own_signal || m->ending.damage >= TT__UNKILLABLE;
    return m->job.elastic && !m->membership.coordinates && ends_alone;
}

/* ---- what it has come to */

/* Did nobody fail before the signal came, or a node or the keeper was lost, to judge by who failed first? Ranks of
 * other nodes may notice the end of those that were told before they are told themselves. */
static bool was_told(const tt__machine *m, const tt__worker *first) {
    const tt__ending *e = &m->ending;
    bool signalled = e->own_signal || e->remote_signal;
    bool other = e->agreed_signal || m->ledger.lost || e->damage == TT__KEEPER_LOST;
    return ((signalled || other) && tt__was_told_to_end(first)) || (signalled && first->secondary);
}

static int exit_code_of(const tt__worker *w) {
    return w->exec_errno == ENOENT && !w->message ? 127 : w->exec_errno ? 126 : tt__end_code(w->status);
}

static int exit_code(const tt__machine *m, const tt__conclusion *c) {
    const tt__ending *e = &m->ending;
    bool stranded = m->attempt.kept && m->attempt.phase != TT__NO_ATTEMPT; /* ranks wait for a round in vain */
    bool blameless = !c->failed || c->told;
    if (e->own_signal || e->agreed_signal)
        return 128 + (e->own_signal ? e->own_signal : e->agreed_signal);
    if ((m->ledger.lost || e->damage == TT__KEEPER_LOST || stranded) && blameless)
        return 1;
    if (e->remote_signal && c->told)
        return 128 + e->remote_signal;
    return c->failed ? exit_code_of(c->first.worker) : 0;
}

tt__conclusion tt__machine_conclude(const tt__machine *m) {
    tt__conclusion c = {.first = {.own = -1}};
    /* else this node was in no round */
    c.failed = m->attempt.phase != TT__NO_ATTEMPT && tt__ledger_first(&m->ledger, &c.first);
    c.told = c.failed && was_told(m, c.first.worker);
    c.exit_code = exit_code(m, &c);
    return c;
}
