#include "net/local_socket.h"

#include "base/files/fd.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

socklen_t tt__abstract_address(struct sockaddr_un *address, const char *name) {
    size_t n = strnlen(name, sizeof address->sun_path - 1);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

bool tt__local_peer_user(int socket, uid_t *user) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        return false;
    *user = peer.uid;
    return true;
}

bool tt__local_peer_is_us(int socket) {
    uid_t user;
    return tt__local_peer_user(socket, &user) && user == geteuid();
}

/* Does sock_diag's answer have this abstract name, and not another user? Old kernels don't tell the user. */
static bool tells_of(const struct nlmsghdr *head, size_t size, const char *name, uid_t user) {
    bool named = false;
    for (size_t at = NLMSG_LENGTH(sizeof(struct unix_diag_msg)); at + sizeof(struct nlattr) <= size;) {
        struct nlattr attribute;
        uint32_t value;
        const char *content = (const char *)head + at + NLA_HDRLEN;
        memcpy(&attribute, (const char *)head + at, sizeof attribute);
        if (attribute.nla_len < sizeof attribute || attribute.nla_len > size - at)
            return false;
        size_t length = attribute.nla_len - (size_t)NLA_HDRLEN;
        if (attribute.nla_type == UNIX_DIAG_NAME)
            named = length == strlen(name) + 1 && !content[0] && !memcmp(content + 1, name, length - 1);
        if (attribute.nla_type == UNIX_DIAG_UID && length >= sizeof value) {
            memcpy(&value, content, sizeof value);
            if (value != user)
                return false;
        }
        at += NLA_ALIGN(attribute.nla_len);
    }
    return named;
}

bool tt__local_socket_may_be(unsigned long inode, const char *name, uid_t user) {
    struct {
        struct nlmsghdr head;
        struct unix_diag_req request;
    } question = {
        .head = {.nlmsg_len = sizeof question, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = AF_UNIX,
                    .udiag_states = ~0u,
                    .udiag_ino = (uint32_t)inode,
                    .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID,
                    .udiag_cookie = {~0u, ~0u}}};
    union {
        struct nlmsghdr head;
        struct {
            struct nlmsghdr head;
            struct nlmsgerr error;
        } refusal;
        char bytes[1024];
    } answer;
    int s = tt__fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    ssize_t n = -1;
    if (s >= 0 && send(s, &question, sizeof question, MSG_DONTWAIT) == sizeof question)
        n = recv(s, &answer, sizeof answer, MSG_DONTWAIT);
    if (s >= 0)
        close(s);
    if (n >= (ssize_t)sizeof answer.refusal && answer.head.nlmsg_type == NLMSG_ERROR)
        return answer.refusal.error.error != -ENOENT;
    return n < (ssize_t)sizeof answer.head || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
           tells_of(&answer.head, (size_t)n, name, user);
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
    errno = EMFILE; /* a descriptor came, but this process is at its limit */
    return -1;
}
