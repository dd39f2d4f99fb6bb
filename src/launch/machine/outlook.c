/* Questions about the machine's state: does another attempt follow, what speaks against it, does this node wait, how
 * does the job end. Nothing here changes the state. */
#include "launch/machine/machine_parts.h"

#include "base/build.h"

#include <errno.h>

bool tt__outlook_replaces_nodes(const tt__machine *m) {
    return !m->job.numbered && (m->job.elastic || m->job.max_restarts > 0);
}

bool tt__outlook_any_kept(const tt__machine *m) {
    return m->job.alone ? m->attempt.kept : m->membership.verdict.any_kept;
}

/* ---- whether another attempt follows */

const char *tt__outlook_reason_to_end(const tt__machine *m) {
    const tt__ending *e = &m->ending;
    if (e->own_signal || e->remote_signal || e->agreed_signal)
        return "the job was told to end";
    if (e->damage == TT__NODE_LEFT || (m->ledger.lost && !tt__outlook_replaces_nodes(m)))
        return "a node is missing";
    return e->damage == TT__KEEPER_LOST  ? "the keeper process was killed"
           : e->damage == TT__UNKILLABLE ? "processes of this attempt are still there"
                                         : NULL;
}

const char *tt__machine_against_another(const tt__machine *m) {
    return tt__ledger_unexecutable(&m->ledger) ? "what can't be executed would fail the same way"
                                               : tt__outlook_reason_to_end(m);
}

bool tt__machine_has_attempts_left(const tt__machine *m) {
    return m->membership.counts.restarts < m->job.max_restarts + TT__MUTANT(one_attempt_too_many);
}

bool tt__machine_allows_another(const tt__machine *m) { return m->job.max_restarts > 0 || m->job.elastic; }

bool tt__outlook_failed_by_itself(const tt__machine *m) {
    tt__failure first;
    bool changes = m->attempt.regroups || m->ledger.lost;
    if (m->ledger.lost && !m->job.elastic)
        return true;
    return tt__ledger_first(&m->ledger, &first) && !(changes && tt__is_consequence(first.worker));
}

bool tt__outlook_attempt_failed(const tt__machine *m) {
    return tt__outlook_failed_by_itself(m) || (tt__outlook_any_kept(m) && !m->attempt.regroups && !m->ledger.lost);
}

bool tt__outlook_another_follows(const tt__machine *m) {
    bool failed = tt__outlook_attempt_failed(m), changes = m->attempt.regroups || m->ledger.lost;
    /* even if nodes came or went just afterwards */
    bool ended_well = !failed && ((m->membership.verdict.well && !TT__MUTANT(well_round_run_again)) || !changes);
    return !ended_well && (!failed || tt__machine_has_attempts_left(m)) && !tt__machine_against_another(m);
}

bool tt__machine_goes_on(const tt__machine *m) {
    if (m->ending.stage != TT__GOES_ON || m->membership.verdict.kind == TT__LAST || m->ending.damage == TT__KEEPER_LOST)
        return false;
    return m->membership.state == TT__LOST_JOB ? !m->ending.own_signal : tt__outlook_another_follows(m);
}

bool tt__machine_waits_for_nodes(const tt__machine *m) {
    bool undecided = m->membership.coordinates && m->membership.verdict.kind != TT__ORDERED;
    bool rests = m->attempt.phase == TT__ATTEMPT_OVER && !m->job.alone && !undecided;
    return m->attempt.phase == TT__NO_ATTEMPT || (rests && tt__machine_goes_on(m));
}

bool tt__machine_leaves_early(const tt__machine *m) {
    bool ends_alone = m->ending.own_signal || m->ending.damage >= TT__UNKILLABLE;
    bool in_no_round = m->membership.state == TT__JOINS; /* workers that were kept have ended while it looked for one */
    return in_no_round || (m->job.elastic && !m->membership.coordinates && ends_alone);
}

/* ---- how the job ends */

/* Is the first failure a result of the end: of a signal, the loss of a node or of the keeper? Ranks of other nodes may
 * notice that others end before they are told themselves. */
static bool ended_as_told(const tt__machine *m, const tt__worker *first) {
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
    c.told = c.failed && ended_as_told(m, c.first.worker);
    c.exit_code = exit_code(m, &c);
    return c;
}
