/* Signals for all that runs below the keeper: ranks, what they started, and orphans of theirs. Each process gets a
 * signal once, however deep it is, whatever session it made, and whoever else ends meanwhile. */
#ifndef TT_LAUNCH_LOCAL_TELLING_H
#define TT_LAUNCH_LOCAL_TELLING_H

#include "base/process/proc_state.h"

#include <stddef.h>

typedef struct tt__telling {
    int sig;       /* what all were told last; 0 = nothing */
    uint64_t when; /* in ticks since boot: what has started later was not meant */
    tt__proc *told;
    size_t n, size; /* so many have got `sig` */
} tt__telling;

/* Send `sig` to every process below this one that has not got it, and wake those that are stopped. `ranks` (n) are
 * children of this process, 0 = none; one that leads a session is told with its process group. Left out are members of
 * process group `but` (0: none), which have got it, and those in a group whose leader, above them, made no session, as
 * timeout(1) does: it passes signals on. */
void tt__tell_all(tt__telling *telling, const pid_t *ranks, size_t n, pid_t but, int sig);

/* Some processes have ended: tell what was left to them. */
void tt__tell_rest(tt__telling *telling);

/* Send SIGWINCH, SIGSTOP or SIGCONT, which end nobody, to everything below this process but members of group `but`.
 * SIGWINCH goes to groups whose leader lives. */
void tt__tell_state(pid_t but, int sig);

/* Begin again: nobody has been told anything. */
void tt__telling_clear(tt__telling *telling);

#endif
