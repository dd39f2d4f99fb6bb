/* What the kernel says of a process in /proc. */
#ifndef TT_BASE_PROC_STATE_H
#define TT_BASE_PROC_STATE_H

#include <sys/types.h>

/* Return the state of a process's main thread: 'R', 'S', 'T' stopped by a signal, 't' held by a debugger, 'Z' ended;
 * 0: there is none, or it can't be seen. */
char tt__proc_state(pid_t pid);

#endif
