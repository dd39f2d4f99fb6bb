#include "launch/local/outlet.h"

#include "base/files/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_again(int stream) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", stream);
    return tt__fd(open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

tt__outlet tt__outlet_open(int stream) {
    struct stat info;
    tt__outlet outlet = {.fd = stream};
    if (fstat(stream, &info))
        return outlet;
    outlet.socket = S_ISSOCK(info.st_mode);
    if (S_ISFIFO(info.st_mode) || isatty(stream))
        outlet.own = open_again(stream);
    if (outlet.own > 0)
        outlet.fd = outlet.own;
    else
        outlet.own = 0;
    return outlet;
}

void tt__outlet_close(tt__outlet *outlet) {
    if (outlet->own)
        close(outlet->own);
    *outlet = (tt__outlet){.fd = -1};
}

ssize_t tt__outlet_write(const tt__outlet *outlet, const void *bytes, size_t n) {
    return outlet->socket ? send(outlet->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(outlet->fd, bytes, n);
}
