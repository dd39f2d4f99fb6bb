#include "base/files/quiet_write.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static int signal_of(int errnum) { return errnum == EPIPE ? SIGPIPE : errnum == EFBIG ? SIGXFSZ : 0; }

/* Take back what the failed write() has sent this thread. */
static void take_back_signal(int sig) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
        ;
}

ssize_t tt__quiet_write(int fd, const void *bytes, size_t size) {
    sigset_t held, before, pending;
    sigemptyset(&held);
    sigaddset(&held, SIGPIPE);
    sigaddset(&held, SIGXFSZ);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    ssize_t n = write(fd, bytes, size);
    int errnum = errno, sig = n < 0 ? signal_of(errnum) : 0;
    if (sig && !sigismember(&pending, sig)) /* else the program holds one back itself */
        take_back_signal(sig);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = errnum;
    return n;
}
