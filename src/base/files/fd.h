/* Descriptors of the library's own. They are 3 or more: a program whose standard streams are closed would else write
 * its output into a socket, or into memory that ranks share. Whatever makes a descriptor gives it to tt__fd(). */
#ifndef TT_BASE_FD_H
#define TT_BASE_FD_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>

/* Return `fd`, moved to 3 or more if it is less, and close-on-exec then; a negative one as it is. On failure -1, `fd`
 * is closed and errno says why. */
TT__EXPORT int tt__fd(int fd);

/* Make memory of `size` bytes (a memfd), zeros, whose size nobody can change any more: so its readers may map it. -1:
 * errno says why. */
int tt__sealed_memory(const char *name, size_t size);

/* May what another process handed over be mapped? Only memory that nobody can shrink: else a read of ours could raise
 * SIGBUS whenever he likes. */
bool tt__is_sealed_memory(int fd);

/* Give closed standard streams a descriptor (/dev/null), of which *held lists those opened; others that open
 * descriptors meanwhile, libraries that don't know tt__fd(), get higher ones. tt__fd_release() closes them. */
typedef struct tt__fd_hold {
    int held[3];
} tt__fd_hold;

void tt__fd_hold_streams(tt__fd_hold *hold);
void tt__fd_release(tt__fd_hold *hold);

#endif
