/* What the launcher of a node decides: state and event in, state and actions out. It has no clock, no descriptor and
 * makes nothing, so that every order of events can be tried. launcher.c carries out the actions and gives the events.
 *
 * The state is three states, each in a file of its own with its diagram on top, which see each other:
 *
 *   attempt_states.c   the workers of one attempt on this node, from their start until none is left
 *   membership.c       this node among those of the job: joining, taking part, having lost the job
 *   ending.c           the end: signals, the keeper's death
 *
 * outlook.c answers what is to be expected, and what the job has come to; failures.c which failure was first.
 * job_machine.c hands each event to the one that it is for. */
#ifndef TT_LAUNCH_MACHINE_JOB_MACHINE_H
#define TT_LAUNCH_MACHINE_JOB_MACHINE_H

#include "launch/machine/machine_state.h"

/* Begin with `workers`, which stay the caller's: it fills in how each ended before it gives ON_ENDED. */
void tt__machine_begin(tt__machine *m, const tt__machine_job *job, tt__worker *workers, int count);
void tt__machine_end(tt__machine *m); /* free what it owns */

/* Take an event. *actions: what is to be done now, in this order. */
void tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions);

#endif
