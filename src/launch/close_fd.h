/* Closing a descriptor that may not be open. */
#ifndef TT_LAUNCH_CLOSE_FD_H
#define TT_LAUNCH_CLOSE_FD_H

#include <unistd.h>

/* Close *fd, unless it is -1, and make it -1. */
static inline void tt__close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

#endif
