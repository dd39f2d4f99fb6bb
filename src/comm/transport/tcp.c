/* Links over TCP. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/message/engine.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static bool again(int errnum) { return errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == EINTR; }

static ssize_t ended(tt__link *link, const char *why) {
    snprintf(link->why, sizeof link->why, "%s", why);
    return -1;
}

static ssize_t tcp_send(tt__link *link, const struct iovec *parts, int count) {
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : again(errno) ? 0 : ended(link, strerror(errno));
}

static ssize_t tcp_recv(tt__link *link, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n == 0)
        return ended(link, link->left ? "the rank left" : "the other side closed it");
    return again(errno) ? 0 : ended(link, strerror(errno));
}

static void tcp_close(tt__link *link) {
    link->messages->tcp_links--;
    close(link->fd);
    link->fd = -1;
}

const tt__link_ops tt__tcp_ops = {true, tcp_send, tcp_recv, tcp_close};

tt_status tt__link_add_tcp(tt__messages *messages, int peer, int fd, const char *where) {
    struct epoll_event event = {.events = EPOLLIN};
    tt_status status = tt__links_watch(messages);
    tt__link *link = status ? NULL : tt__link_new(messages, peer, &tt__tcp_ops);
    if (!link) {
        close(fd);
        return tt_last_status();
    }
    link->tcp = true;
    link->fd = fd;
    messages->tcp_links++;
    link->heard_ms = tt__now_ms();
    snprintf(link->where, sizeof link->where, "%s", where);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    event.data.ptr = link;
    if (epoll_ctl(messages->epoll, EPOLL_CTL_ADD, fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the connection to rank %d", peer);
    return TT_OK;
}
