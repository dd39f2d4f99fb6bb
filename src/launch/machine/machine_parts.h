/* Functions that the machine's files call of each other: job_machine.c > membership.c > ending.c > attempt_states.c
 * > outlook.c > failures.c. */
#ifndef TT_LAUNCH_MACHINE_MACHINE_PARTS_H
#define TT_LAUNCH_MACHINE_MACHINE_PARTS_H

#include "base/text/format.h"
#include "launch/machine/machine_state.h"

#include <tutti/base.h>

#include <stdarg.h>

/* One step: the machine, what it sees, and what it wants to be done. */
typedef struct tt__step {
    tt__machine *m;
    const tt__surroundings *around;
    tt__actions *actions;
} tt__step;

static inline tt__action *tt__do(tt__step *s, tt__action_kind kind) {
    static const tt__action none;
    s->actions->overflowed = s->actions->overflowed || s->actions->n == TT__ACTIONS_MAX;
    tt__action *action = &s->actions->list[s->actions->n < TT__ACTIONS_MAX ? s->actions->n++ : TT__ACTIONS_MAX - 1];
    *action = none;
    action->kind = kind;
    return action;
}

/* The same, with a text. */
TT_PRINTF(3, 4) static inline void tt__do_say(tt__step *s, tt__action_kind kind, const char *format, ...) {
    tt__action *action = tt__do(s, kind);
    va_list args;
    va_start(args, format);
    tt__vformat(action->say.text, sizeof action->say.text, format, args);
    va_end(args);
}

/* Note what keeps this node from going on. The worst that was noted stays. */
static inline void tt__ending_note_damage(tt__step *s, tt__damage damage) {
    if (damage > s->m->ending.damage)
        s->m->ending.damage = damage;
}

/* ---- outlook.c */

/* Can the job do without a node that is lost, or replace it by one that comes? */
bool tt__outlook_replaces_nodes(const tt__machine *m);

/* Are workers kept for the next round, here or on any node, when the attempt is over everywhere? */
bool tt__outlook_any_kept(const tt__machine *m);

/* Return what ends the job, or this node's part in it, however the attempt goes on elsewhere; NULL: nothing does. */
const char *tt__outlook_reason_to_end(const tt__machine *m);

/* Did the attempt fail by itself, and not because a node was lost or the workers were told to end? The loss of a node
 * that nobody replaces is a failure, too. */
bool tt__outlook_failed_by_itself(const tt__machine *m);

/* Does the attempt count as failed: has a rank failed, or do ranks that go on want another round although no node was
 * lost or has come? */
bool tt__outlook_attempt_failed(const tt__machine *m);

/* Does another attempt follow when no worker of this one is left, as far as is known here? Not if all ended well. */
bool tt__outlook_another_follows(const tt__machine *m);

/* ---- attempt_states.c */

void tt__attempt_start(tt__step *s, bool again);
void tt__attempt_forget(tt__step *s);

/* Send `sig` to what is still there: the workers, or processes they left. */
void tt__attempt_terminate(tt__step *s, int sig);
void tt__attempt_kill(tt__step *s);
/* Note that the live workers have got `sig`. */
void tt__attempt_note_signal(tt__step *s, int sig);
/* The terminal has sent the workers `sig`: pass it to those that it has not reached. */
void tt__attempt_pass_signal(tt__step *s, int sig);

/* A worker has failed, here or on another node: SETTLING begins, if it has not. The others have the settle period to
 * end by themselves and say why. If all are started again, it ends as soon as the first failure is known. */
void tt__attempt_settle(tt__step *s);

/* The attempt can't go on as it is, as a node is lost, comes or goes: workers that survive go on to the next round, the
 * others are ended. */
void tt__attempt_interrupt(tt__step *s);

void tt__attempt_ended(tt__step *s, int worker, int agreed);
void tt__attempt_leftovers(tt__step *s);
void tt__attempt_cleared(tt__step *s, int unkillable);
void tt__attempt_idle_read(tt__step *s);
void tt__attempt_time(tt__step *s);
void tt__attempt_remote_wait(tt__step *s, int blamed);

/* Can all that run go on while others are started? */
bool tt__attempt_can_recover(const tt__step *s);

/* The same; and may another round follow, as far as is known here? */
bool tt__attempt_may_recover(const tt__step *s);

/* ---- membership.c */

void tt__member_begin(tt__step *s);
void tt__member_event(tt__step *s, tt__event *event);
void tt__member_next(tt__step *s);

/* If the attempt is over here, and all that the decision needs is known: begin another, or end. */
void tt__member_go_on(tt__step *s);

/* ---- ending.c */

void tt__ending_signal(tt__step *s, int sig, bool from_terminal);
void tt__ending_keeper_lost(tt__step *s);
void tt__ending_fail(tt__step *s, const char *text);

#endif
