/* Signals that come to the launcher, read from a descriptor. */
#ifndef TT_LAUNCH_LOCAL_SIGNALS_H
#define TT_LAUNCH_LOCAL_SIGNALS_H

#include <tutti/base.h>

#include <signal.h>
#include <stdbool.h>

typedef enum tt__signal_from {
    TT__FROM_PROCESS,  /* somebody has sent it */
    TT__FROM_TERMINAL, /* a terminal, to its foreground process group */
    TT__FROM_HANGUP    /* SIGHUP of the kernel */
} tt__signal_from;

typedef struct tt__signal {
    int sig;
    tt__signal_from from;
} tt__signal;

typedef struct tt__signals {
    int fd;            /* readable when one has come; -1: closed */
    bool has_terminal; /* when they were opened, the session had one */
    sigset_t before;   /* the signal mask before */
} tt__signals;

/* Block those of `wanted` that are not ignored, SIGWINCH and SIGTSTP, and receive them through signals->fd. Those that
 * the parent made us ignore (nohup, a shell's background) stay ignored. Errors: TT_ERR_SYSTEM. */
tt_status tt__signals_open(tt__signals *signals, const sigset_t *wanted);

/* Take the next signal; false: none has come. A SIGHUP of the kernel to an orphaned process group is dropped. */
bool tt__signals_take(tt__signals *signals, tt__signal *signal);

/* Stop this process by SIGTSTP until it is continued. In an orphaned group, where nobody could continue it, the
 * kernel ignores SIGTSTP. */
void tt__signals_stop_here(void);

/* Receive no more, and restore the mask. */
void tt__signals_close(tt__signals *signals);

#endif
