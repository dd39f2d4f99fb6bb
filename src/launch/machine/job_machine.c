#include "launch/machine/job_machine.h"

#include "launch/machine/machine_parts.h"

#include <stdlib.h>

void tt__machine_begin(tt__machine *m, const tt__machine_job *job, tt__worker *workers, int count) {
    *m = (tt__machine){.job = *job,
                       .attempt = {.deadline_ms = INT64_MAX},
                       .membership = {.counts = {.attempt = job->alone ? 0 : -1}},
                       .ledger = {.workers = workers, .count = count}};
}

void tt__machine_end(tt__machine *m) {
    tt__ledger_clear(&m->ledger);
    free(m->membership.round);
    free(m->membership.next_round);
    m->membership.round = m->membership.next_round = NULL;
}

/* The job can't go on here: an action could not get what it needs. */
static void take_failure(tt__step *s) {
    s->m->ending.stage = TT__DONE;
    if (!s->m->job.alone)
        tt__do(s, TT__DO_ANNOUNCE_DONE);
}

void tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions) {
    tt__step s = {m, around, actions};
    actions->n = 0;
    actions->overflowed = false;
    switch (event->kind) {
    case TT__ON_TIME:
        if (!tt__machine_is_done(m))
            tt__attempt_time(&s);
        break;
    case TT__ON_BEGIN:
        tt__member_begin(&s);
        break;
    case TT__ON_NEXT:
        if (!tt__machine_is_done(m))
            tt__member_next(&s);
        break;
    case TT__ON_ENDED:
        tt__attempt_ended(&s, event->ended.worker, event->ended.agreed);
        break;
    case TT__ON_UNSTARTABLE:
        if (m->attempt.phase != TT__KILLING && m->attempt.phase != TT__ATTEMPT_OVER)
            tt__attempt_kill(&s);
        break;
    case TT__ON_LEFTOVERS:
        tt__attempt_leftovers(&s);
        break;
    case TT__ON_CLEARED:
        tt__attempt_cleared(&s, event->unkillable);
        break;
    case TT__ON_KEEPER_LOST:
        tt__ending_keeper_lost(&s);
        break;
    case TT__ON_IDLE_READ:
        tt__attempt_idle_read(&s);
        break;
    case TT__ON_SIGNAL:
        tt__ending_signal(&s, event->signal.sig, event->signal.from_terminal);
        break;
    case TT__ON_FAILURE:
        take_failure(&s);
        break;
    default:
        tt__member_event(&s, event);
        break;
    }
    tt__member_go_on(&s);
}
