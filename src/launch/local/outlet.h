/* Writing to a stream that other processes share, such as stderr, without ever waiting for its reader. The stream's
 * own flags stay as they are: a pipe or terminal is opened once more, a socket has a flag for each call. Where that is
 * not possible (no /proc, another user's pipe) a write of up to PIPE_BUF bytes after poll(2) is the best there is. */
#ifndef TT_LAUNCH_LOCAL_OUTLET_H
#define TT_LAUNCH_LOCAL_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct tt__outlet {
    int fd;  /* to poll: `own`, or the stream's */
    int own; /* opened here; 0 = none */
    bool socket;
} tt__outlet;

tt__outlet tt__outlet_open(int stream);
void tt__outlet_close(tt__outlet *outlet);

/* As write(2); EAGAIN: nothing fits now. */
ssize_t tt__outlet_write(const tt__outlet *outlet, const void *bytes, size_t n);

#endif
