#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int tt__fd(int fd) {
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), errnum = errno;
    close(fd);
    errno = errnum;
    return moved;
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
