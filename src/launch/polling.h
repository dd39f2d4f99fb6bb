/* Descriptors of the launcher's loop, and until when it waits for them. */
#ifndef TT_LAUNCH_POLLING_H
#define TT_LAUNCH_POLLING_H

#include "base/machine/clock.h"

#include <stdbool.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Close *fd, unless it is -1, and make it -1. */
static inline void tt__close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Lower *timeout_ms, as poll(2) takes it, so that it ends at `until_ms` (INT64_MAX: never) at the latest. */
static inline void tt__lower_timeout(int *timeout_ms, int64_t until_ms) {
    int left = until_ms == INT64_MAX ? -1 : tt__left_ms(until_ms);
    if (left >= 0 && (*timeout_ms < 0 || left < *timeout_ms))
        *timeout_ms = left;
}

/* As epoll_ctl(2), with number `which` for `fd`. */
static inline bool tt__epoll_watch(int epoll, int how, int fd, int which, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)which};
    return epoll_ctl(epoll, how, fd, &event) == 0;
}

#endif
