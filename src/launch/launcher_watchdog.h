/* What the launcher does about workers that crash or hang: it reads their stacks, ends those whose timers have expired,
 * keeps an account of them for the report, and serves health checks (local/health.h). */
#ifndef TT_LAUNCH_LAUNCHER_WATCHDOG_H
#define TT_LAUNCH_LAUNCHER_WATCHDOG_H

#include "launch/launcher_parts.h"

enum { TT__READINGS = 4, TT__WATCHDOG_FDS = TT__READINGS + 2 };

tt_status tt__watchdog_open(tt__launcher_state *l);
/* Return how many descriptors it may take at once for a job, without the timers of the workers' processes. These may
 * take part of the `spare` ones, which nobody else has counted on. */
int tt__watchdog_descriptors(const tt__job *job);
void tt__watchdog_spare(tt__launcher_state *l, int spare);

void tt__watchdog_free(tt__launcher_state *l); /* NULL watchdog is allowed */

/* Fill in at most TT__WATCHDOG_FDS entries for poll(2), return how many; *timeout_ms is lowered to when
 * tt__watchdog_serve() must be called at the latest. */
int tt__watchdog_poll(tt__launcher_state *l, struct pollfd *fds, int *timeout_ms);

/* Do what can be done without waiting. */
void tt__watchdog_serve(tt__launcher_state *l);

/* The watch's callbacks: `user` is the launcher. */
void tt__watchdog_crashed(void *user, int i, pid_t pid, int caller, const tt__job_crash *crash);

bool tt__watchdog_timed(void *user, pid_t pid, int caller, int memory);

/* Read the stacks of workers that make no call while others have waited for them in vain, once an attempt. False: there
 * is nothing to read; else TT__ON_IDLE_READ follows. */
bool tt__watchdog_reads_idle(tt__launcher_state *l);

/* Has that been done since it was last asked? */
bool tt__watchdog_has_read_idle(tt__launcher_state *l);

/* Worker `i` has ended: if it is the first that failed, fill in its account. */
void tt__watchdog_ended(tt__launcher_state *l, int i);

/* Free what is known of worker `i`, whose number another may get. */
void tt__watchdog_forget(tt__launcher_state *l, int i);

/* No process of the attempt is left: forget torchrun's timers, whose pipe is made anew with the next workers. */
void tt__watchdog_forget_all(tt__launcher_state *l);

#endif
