/* The end of the job, or of this node's part in it.
 *
 *   GOES_ON --no attempt follows, and workers are kept--> ENDS --they have ended--> DONE
 *      |                                                                             ^
 *      +---------- nothing of the job is left here, or there is no way on ------------+
 *
 * A signal to the launcher is sent on to the workers, which have the grace period to end; a second one kills them.
 * After a signal no further attempt begins. In a job that goes on without this node, a signal makes the node leave. */
#include "launch/machine/machine_parts.h"

#include "base/build.h"

#include <signal.h>

void tt__ending_fail(tt__step *s, const char *text) {
    tt__do_say(s, TT__DO_FAIL, "%s", text);
    s->m->ending.stage = TT__DONE;
}

void tt__ending_keeper_lost(tt__step *s) {
    tt__ending_note_damage(s, TT__KEEPER_LOST);
    s->m->ending.stage = TT__DONE;
    tt__attempt_note_signal(s, SIGKILL); /* sent by the kernel; other nodes can't see that, and are told */
    tt__do(s, TT__DO_KILL_ORPHANS);
}

/* Do the others go on when this node ends? Then its workers are killed: after SIGTERM, workers that survive the loss of
 * others would agree with all ranks to stop. */
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
    int living = rests ? s->around->survivors.living : m->ledger.count - tt__ledger_ended(&m->ledger);
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
