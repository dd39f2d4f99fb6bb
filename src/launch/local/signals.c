#include "launch/local/signals.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

tt_status tt__signals_open(tt__signals *signals, const sigset_t *wanted) {
    sigset_t set;
    int terminal = tt__fd(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
    signals->has_terminal = terminal >= 0;
    tt__close_fd(&terminal);
    sigemptyset(&set);
    for (int sig = 1; sig <= SIGRTMAX; sig++) {
        struct sigaction action;
        if ((sig == SIGWINCH || sig == SIGTSTP || sigismember(wanted, sig) == 1) &&
            sigaction(sig, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, sig);
    }
    sigprocmask(SIG_BLOCK, &set, &signals->before);
    signals->fd = tt__fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    return signals->fd < 0 ? tt__fail_errno(TT_ERR_SYSTEM, errno, "can't receive signals") : TT_OK;
}

/* The kernel sends SIGHUP to a session's leader at the end of its terminal, and to a process group with stopped members
 * when it becomes orphaned. */
static tt__signal_from signal_from(const struct signalfd_siginfo *info) {
    if (info->ssi_code != SI_KERNEL)
        return TT__FROM_PROCESS;
    return info->ssi_signo == SIGHUP ? TT__FROM_HANGUP : TT__FROM_TERMINAL;
}

bool tt__signals_take(tt__signals *signals, tt__signal *signal) {
    struct signalfd_siginfo info;
    while (read(signals->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        *signal = (tt__signal){(int)info.ssi_signo, signal_from(&info)};
        if (signal->from != TT__FROM_HANGUP || signals->has_terminal) /* a hangup of a terminal: it is gone */
            return true;
    }
    return false;
}

void tt__signals_stop_here(void) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    kill(getpid(), SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* stops here */
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

void tt__signals_close(tt__signals *signals) {
    if (signals->fd < 0)
        return;
    sigprocmask(SIG_SETMASK, &signals->before, NULL);
    close(signals->fd);
    signals->fd = -1;
}
