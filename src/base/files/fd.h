/* Descriptors of the library's own. They are 3 or more: if the library took the number of a closed standard stream, the
 * program would print into a socket, or into memory that ranks share. So each new descriptor goes through tt__fd(). */
#ifndef TT_BASE_FD_H
#define TT_BASE_FD_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return `fd`, or if it is 0 to 2 a copy from 3 on that is close-on-exec, for which `fd` is closed. A negative `fd` is
 * returned as it is. -1: `fd` is closed, errno says why. */
TT__EXPORT int tt__fd(int fd);

/* Make a memfd of `size` bytes, zeros. Nobody can change its size any more, so others may safely map it. -1: errno says
 * why. */
int tt__sealed_memory(const char *name, size_t size);

/* May this descriptor, which another process handed over, be mapped? Only if nobody can shrink its memory: else the
 * other process could make our reads raise SIGBUS. */
bool tt__is_sealed_memory(int fd);

/* Open /dev/null as each standard stream that is closed, until tt__fd_release(): libraries that don't use tt__fd() get
 * descriptors from 3 on meanwhile. */
typedef struct tt__fd_hold {
    int held[3]; /* what was opened; -1: nothing */
} tt__fd_hold;

void tt__fd_hold_streams(tt__fd_hold *hold);
void tt__fd_release(tt__fd_hold *hold);

/* write(2) that never raises SIGPIPE (nobody reads) or SIGXFSZ (ulimit -f), which could end the program: it fails with
 * EPIPE or EFBIG instead. */
TT__EXPORT ssize_t tt__quiet_write(int fd, const void *bytes, size_t size);

#endif
