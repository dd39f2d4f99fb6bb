/* What the kernel says of a process in /proc. */
#ifndef TT_BASE_PROC_STATE_H
#define TT_BASE_PROC_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct tt__proc {
    pid_t pid, parent, group, session;
    uint64_t started; /* in ticks since the machine booted: sysconf(_SC_CLK_TCK) of them are a second */
    char state;       /* of its main thread */
} tt__proc;

/* Look at a process; all 0: there is none, or it can't be seen. */
tt__proc tt__proc_look(pid_t pid);

/* Return the state of a process: 'R', 'S', 'T' stopped by a signal, 't' held by a debugger, 'Z' ended; 0: there is
 * none, or it can't be seen. It is the main thread's; that of another thread if the main one has ended. */
char tt__proc_state(pid_t pid);

/* Return a thread that lives: the main one, whose number is `pid`, unless that has ended; 0: there is none. */
pid_t tt__proc_living_thread(pid_t pid);

/* Has the main thread ended, by pthread_exit(), while another one lives? */
bool tt__proc_main_ended(pid_t pid);

/* Return a number that grows whenever a process runs: the switches of its main thread, or of all others if that has
 * ended, and its CPU time. A process that is stopped in two looks, with one number, has been stopped from the first to
 * the second. 0: it can't be seen. */
uint64_t tt__proc_activity(pid_t pid);

/* A stop by a signal, as it was seen; all 0: none was. */
typedef struct tt__proc_stop {
    int64_t since_ms;
    uint64_t activity; /* of tt__proc_activity() */
} tt__proc_stop;

/* Look at a process now and then: return for how long it has been stopped by a signal, from the first look that saw
 * that to this one, and has not run in between; 0: it runs, has run, or this look is the first. */
int64_t tt__proc_stopped_ms(tt__proc_stop *stop, pid_t pid, int64_t now_ms);

#endif
