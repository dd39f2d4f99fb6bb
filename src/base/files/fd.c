#include "base/files/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

int tt__fd(int fd) {
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), errnum = errno;
    close(fd);
    errno = errnum;
    return moved;
}

int tt__sealed_memory(const char *name, size_t size) {
    int fd = tt__fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || (!ftruncate(fd, (off_t)size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
        return fd;
    int errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

/* Memory in huge pages can be sealed, too, but may lack a page when it is read: it is refused. */
bool tt__is_sealed_memory(int fd) {
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && !fstatfs(fd, &system) && system.f_type == TMPFS_MAGIC;
}

void tt__fd_hold_streams(tt__fd_hold *hold) {
    for (int i = 0; i < 3; i++)
        hold->held[i] = -1;
    for (int i = 0, fd; i < 3 && (fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0; i++) {
        if (fd > STDERR_FILENO) {
            close(fd);
            return;
        }
        hold->held[i] = fd;
    }
}

void tt__fd_release(tt__fd_hold *hold) {
    for (int i = 0; i < 3; i++)
        if (hold->held[i] >= 0)
            close(hold->held[i]);
}

static int signal_of(int errnum) { return errnum == EPIPE ? SIGPIPE : errnum == EFBIG ? SIGXFSZ : 0; }

/* Remove the signal that the failed write() has sent to this thread. */
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
    if (sig && !sigismember(&pending, sig)) /* else the pending one is the program's, which blocks it */
        take_back_signal(sig);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = errnum;
    return n;
}
