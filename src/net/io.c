/* Whole reads and writes. The sockets may be blocking or not: nothing here relies on it. */
#include "net/net.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

enum { SPIN_NS = 50 * 1000 };

static tt_status wait_ready(int fd, short events, int64_t deadline_ms) {
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        int left = tt__left_ms(deadline_ms);
        int n = poll(&p, 1, left);
        if (n > 0)
            return TT_OK;
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_NET, errno, "poll");
        if (!left)
            return tt__fail(TT_ERR_TIMEOUT,
                            events == POLLIN ? "no answer came in time" : "the other side does not read");
    }
}

static bool again(int errnum) { return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR; }

/* An answer usually takes less time than going to sleep and being woken (tens of microseconds on a virtual machine), so for a moment
 * the CPU is only offered to others. */
tt_status tt__net_read_some(int fd, void *buf, size_t size, int64_t deadline_ms, size_t *got) {
    int64_t spin_until = tt__now_ns() + SPIN_NS;
    for (;;) {
        ssize_t n = recv(fd, buf, size, MSG_DONTWAIT);
        if (n >= 0) {
            *got = (size_t)n;
            return TT_OK;
        }
        if (!again(errno))
            return tt__fail_errno(TT_ERR_NET, errno, "reading from the connection");
        if (tt__now_ns() < spin_until)
            sched_yield();
        else
            TT__TRY(wait_ready(fd, POLLIN, deadline_ms));
    }
}

tt_status tt__net_read_full(int fd, void *buf, size_t size, int64_t deadline_ms) {
    for (size_t done = 0, n = 0; done < size; done += n) {
        TT__TRY(tt__net_read_some(fd, (char *)buf + done, size - done, deadline_ms, &n));
        if (!n)
            return tt__fail(TT_ERR_NET, "the other side closed the connection after %zu of %zu bytes", done, size);
    }
    return TT_OK;
}

tt_status tt__net_write_full(int fd, const void *buf, size_t size, int64_t deadline_ms) {
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, (const char *)buf + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            done += (size_t)n;
        else if (!again(errno))
            return tt__fail_errno(TT_ERR_NET, errno, "writing to the connection");
        else
            TT__TRY(wait_ready(fd, POLLOUT, deadline_ms));
    }
    return TT_OK;
}
