#include "net/local_socket.h"

#include "base/fd.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

socklen_t tt__abstract_address(struct sockaddr_un *address, const char *name) {
    size_t n = strnlen(name, sizeof address->sun_path - 1);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

bool tt__send_packet(int socket, const void *packet, size_t size, int attached) {
    struct iovec part = {(void *)packet, size};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (attached >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &attached, sizeof attached);
    }
    ssize_t n;
    while ((n = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    return n == (ssize_t)size;
}

/* Take the first descriptor of a packet; close any others. */
static int take_attached(struct msghdr *message) {
    int fd = -1;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; i++) {
            int attached;
            memcpy(&attached, CMSG_DATA(head) + i * sizeof(int), sizeof attached);
            if (fd < 0)
                fd = tt__fd(attached);
            else
                close(attached);
        }
    }
    return fd;
}

ssize_t tt__receive_packet(int socket, void *packet, size_t size, int flags, int *attached) {
    struct iovec part = {packet, size};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    while ((n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    *attached = n < 0 ? -1 : take_attached(&message);
    if (n < 0 || *attached >= 0 || !(message.msg_flags & MSG_CTRUNC))
        return n;
    errno = EMFILE; /* a descriptor came for which there was no number */
    return -1;
}
