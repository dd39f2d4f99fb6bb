/* What tells the process that failed first from those that failed because of it, as far as their ends do. */
#ifndef TT_BASE_STRUCK_H
#define TT_BASE_STRUCK_H

#include <signal.h>
#include <stdbool.h>

/* Ends this close together may be seen in any order: a dying process's connections are closed before its parent learns
 * of its end, so a survivor may seem to end a little earlier. */
enum { TT__TIE_MS = 50 };

/* Is it a signal that is never a process's reaction to the end of another? 0: no signal. */
static inline bool tt__is_struck_by(int sig) {
    return sig == SIGKILL || sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
}

#endif
