/* The children of this process: those it forked, and orphans that it got as a subreaper. */
#ifndef TT_LAUNCH_LOCAL_CHILDREN_H
#define TT_LAUNCH_LOCAL_CHILDREN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Have the kernel keep the ends of children, which it drops where a parent has left us SIGCHLD ignored; call it before
 * there are any. In a child that is to become another program: restore what the parent had left. */
void tt__children_keep_ends(void);
void tt__children_restore_signal(void);

/* List the pids of up to `max` children, zombies included, from /proc; returns how many. */
size_t tt__children(pid_t *pids, size_t max);

/* Called with each child that was reaped. */
typedef void (*tt__reaped_fn)(void *user, pid_t pid, int wait_status);

/* SIGKILL every child but the `spared` ones, and those that this process inherits as their parents die, until none is
 * left: then there is no descendant. `reaped` may be NULL. Returns how many are still there after timeout_ms (0 in all
 * but strange cases: a process of another user, one stuck in the kernel). */
size_t tt__children_kill(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user,
                         int64_t timeout_ms);

#endif
