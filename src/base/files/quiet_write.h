/* write(2) for a library, which ends nobody's process. */
#ifndef TT_BASE_QUIET_WRITE_H
#define TT_BASE_QUIET_WRITE_H

#include "base/export.h"

#include <sys/types.h>

/* As write(2), but where that would raise SIGPIPE (nobody reads) or SIGXFSZ (ulimit -f) it only fails, with EPIPE or
 * EFBIG. */
TT__EXPORT ssize_t tt__quiet_write(int fd, const void *bytes, size_t size);

#endif
