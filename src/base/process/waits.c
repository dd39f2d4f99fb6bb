#include "base/process/waits.h"

#include "base/error.h"
#include "base/files/fd.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int tt__poll(struct pollfd *fds, int n, int timeout_ms) {
    int ready = poll(fds, (nfds_t)n, timeout_ms);
    for (int i = 0; ready < 0 && i < n; i++)
        fds[i].revents = 0;
    return ready < 0 ? 0 : ready;
}

void tt__sleep_us(int64_t us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

tt_status tt__wake_open(int *wake) {
    *wake = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return *wake < 0 ? tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make an eventfd") : TT_OK;
}

void tt__wake_ring(int wake) {
    uint64_t one = 1;
    while (write(wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void tt__wake_clear(int wake) {
    uint64_t count;
    if (read(wake, &count, sizeof count) < 0)
        return; /* nobody had rung */
}

void tt__wake_close(int wake) {
    if (wake >= 0)
        close(wake);
}
