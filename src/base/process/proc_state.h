/* What /proc shows of a process, and what its end tells. */
#ifndef TT_BASE_PROC_STATE_H
#define TT_BASE_PROC_STATE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct tt__proc {
    pid_t pid, parent, group, session;
    uint64_t started; /* in ticks since the machine booted: sysconf(_SC_CLK_TCK) of them are a second */
    char state;       /* of its main thread */
} tt__proc;

/* Look at a process; all 0: it doesn't exist, or can't be seen. */
tt__proc tt__proc_look(pid_t pid);

/* Return the state of a process: 'R', 'S', 'T' stopped by a signal, 't' held by a debugger, 'Z' ended; 0: it doesn't
 * exist, or can't be seen. It is the main thread's state, or that of another thread if the main one has ended. */
char tt__proc_state(pid_t pid);

/* Return a living thread: the main one, whose number is `pid`, unless it has ended; 0: none lives. */
pid_t tt__proc_living_thread(pid_t pid);

/* Has the main thread ended, by pthread_exit(), while another one lives? */
bool tt__proc_main_ended(pid_t pid);

/* Return a number that grows whenever a process runs: its CPU time and the switches of its main thread, or of all
 * others if that has ended. A process that two looks find stopped, with the same number, was stopped all the time
 * between them.
 * 0: it can't be seen. */
uint64_t tt__proc_activity(pid_t pid);

/* What earlier looks of tt__proc_stopped_ms() have seen of a process; all 0: it was not stopped. */
typedef struct tt__proc_stop {
    int64_t since_ms;
    uint64_t activity; /* tt__proc_activity() */
} tt__proc_stop;

/* Look at a process, now and then: return for how long it has been stopped by a signal without running in between,
 * counted from the first look that saw this. 0: it runs, has run since, or this look is the first. */
int64_t tt__proc_stopped_ms(tt__proc_stop *stop, pid_t pid, int64_t now_ms);

/* Ends of processes within this time may be seen in any order: a dying process's connections are closed before its
 * parent learns of its end, so a process that fails because of it may seem to end first. */
enum { TT__TIE_MS = 50 };

/* Does this signal show that a process did not end because of another one? `sig`: 0 for none. */
static inline bool tt__is_struck_by(int sig) {
    return sig == SIGKILL || sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
}

#endif
