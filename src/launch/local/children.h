/* The processes below this one: its children, those it forked and orphans that it got as a subreaper, and signals for
 * all that they started. */
#ifndef TT_LAUNCH_LOCAL_CHILDREN_H
#define TT_LAUNCH_LOCAL_CHILDREN_H

#include "base/process/proc_state.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Have the kernel keep children's wait statuses, which it drops if our parent left us SIGCHLD ignored; call it
 * before there are children. tt__children_restore_signal(), in a child before exec: restore what the parent left. */
void tt__children_keep_ends(void);
void tt__children_restore_signal(void);

/* List the pids of up to `max` children, zombies included, from /proc; returns how many. */
size_t tt__children(pid_t *pids, size_t max);

/* Called with each child that was reaped. */
typedef void (*tt__reaped_fn)(void *user, pid_t pid, int wait_status);

/* SIGKILL every child but the `spared` ones, and those that this process inherits as their parents die, until none is
 * left: then there is no descendant. `reaped` may be NULL. Returns how many are still there after timeout_ms (0 in all
 * but strange cases: a process of another user, one stuck in the kernel; without /proc, at least how many). */
size_t tt__children_kill(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user,
                         int64_t timeout_ms);

/* ---- signals for all that runs below the keeper: ranks, what they started, and orphans of theirs. Each process gets a
 * signal once, however deep it is, whatever session it made, and whoever else ends meanwhile. */

typedef struct tt__telling {
    int sig;       /* the signal that all were told last; 0 = none */
    uint64_t when; /* in ticks since boot: processes that started later are not told */
    tt__proc *told;
    size_t n, size; /* n: how many have got `sig` */
} tt__telling;

/* Send `sig` to every process below this one that has not got it, and wake those that are stopped. `ranks` (n) are
 * children of this process, 0 = none; one that leads a session is told with its process group. Not told are members
 * of process group `but` (0: none), which have got it, and processes in a group whose leader is above them and made
 * no session: such a leader, timeout(1) for one, passes signals on. */
void tt__tell_all(tt__telling *telling, const pid_t *ranks, size_t n, pid_t but, int sig);

/* Some processes have ended: tell those that they would have passed the signal on to. */
void tt__tell_rest(tt__telling *telling);

/* Send SIGWINCH, SIGSTOP or SIGCONT, which end no process, to everything below this process except members of group
 * `but`. SIGWINCH goes to groups whose leader lives. */
void tt__tell_state(pid_t but, int sig);

/* Forget who has been told. */
void tt__telling_clear(tt__telling *telling);

#endif
