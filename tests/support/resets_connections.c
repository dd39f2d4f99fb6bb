/* Preloaded into a program, each connection that it asks about was reset: whoever listened there has closed it. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    (void)fd, (void)level, (void)name;
    if (name != SO_ERROR || *size < sizeof(int)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    memcpy(value, &(int){ECONNRESET}, sizeof(int));
    return 0;
}
