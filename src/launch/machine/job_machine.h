/* What the launcher of a node decides: state and event in, state and actions out. It has no clock and no descriptor,
 * and what it has to know comes with the event, so that tests can try every order of events (tests/machine). launcher.c
 * gives the events and carries out the actions.
 *
 * The state is three states, each in a file of its own with its diagram on top. An event may change several:
 *
 *   attempt_states.c   the workers of one attempt on this node, from their start until none is left
 *   membership.c       this node among those of the job: joining, taking part, having lost the job
 *   ending.c           the end: signals, the keeper's death
 *
 * outlook.c answers questions about them: does another attempt follow, how does the job end. failures.c says which
 * failure was first. job_machine.c gives each event to the file that it concerns, and then lets membership.c decide, if
 * the attempt is over here (tt__member_go_on()).
 *
 * Example: a worker fails, in a job of two nodes with an attempt left. -> event, <- action, of the coordinator:
 *
 *   -> ON_ENDED       RUNNING becomes SETTLING              <- PUBLISH_END
 *   -> ON_TIME        SETTLING becomes TERMINATING          <- READ_IDLE (->ON_IDLE_READ), SIGNAL
 *   -> ON_CLEARED     nothing is left here: ATTEMPT_OVER    <- ANNOUNCE_GONE
 *   -> ON_ALL_GONE    the same on all nodes: ORDERED        <- REPORT_ATTEMPT, ORDER_ROUND
 *   -> ON_ROUND       the round has been composed           <- FORGET, NEXT
 *   -> ON_NEXT        RUNNING                               <- TELL_ROUND, START */
#ifndef TT_LAUNCH_MACHINE_JOB_MACHINE_H
#define TT_LAUNCH_MACHINE_JOB_MACHINE_H

#include "launch/machine/machine_state.h"

/* Begin with `workers`, which stay the caller's: it fills in how each ended before it gives ON_ENDED. */
void tt__machine_begin(tt__machine *m, const tt__machine_job *job, tt__worker *workers, int count);
void tt__machine_end(tt__machine *m); /* free what it owns */

/* Take an event. *actions: what is to be done now, in this order. */
void tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions);

#endif
