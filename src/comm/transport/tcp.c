/* Links over TCP. */
#include "base/clock.h"
#include "base/error.h"
#include "base/saved_error.h"
#include "comm/message/engine.h"

#include <errno.h>
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

static ssize_t plain_send(tt__link *link, const struct iovec *parts, int count) {
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = sendmsg(link->stream.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : again(errno) ? 0 : ended(link, strerror(errno));
}

static ssize_t end_of_file(tt__link *link) {
    return ended(link, link->left ? "the rank left" : "the other side closed it");
}

static ssize_t plain_recv(tt__link *link, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = recvmsg(link->stream.fd, &message, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n == 0)
        return end_of_file(link);
    return again(errno) ? 0 : ended(link, strerror(errno));
}

/* Links move bytes in the middle of others' errors: what TLS records goes to the link, and the caller's last error stays. */
static ssize_t tls_send(tt__link *link, const struct iovec *parts, int count) {
    tt__saved_error saved;
    size_t n;
    tt__error_save(&saved);
    tt__io io = tt__stream_write(&link->stream, parts, count, &n);
    ssize_t sent = io == TT__IO_FAILED ? ended(link, tt_last_error()) : (ssize_t)n;
    tt__error_restore(&saved);
    return sent;
}

/* TLS gives a record at a time; a link takes a short read for the last one. */
static ssize_t tls_read(tt__link *link, const struct iovec *parts, int count) {
    ssize_t total = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0, n = 0; done < parts[i].iov_len; done += n, total += (ssize_t)n) {
            tt__io io = tt__stream_read(&link->stream, (char *)parts[i].iov_base + done, parts[i].iov_len - done, &n);
            if (io == TT__IO_FAILED)
                return ended(link, tt_last_error());
            if (io == TT__IO_END)
                return total ? total : end_of_file(link);
            if (io != TT__IO_DONE)
                return total;
        }
    return total;
}

static ssize_t tls_recv(tt__link *link, const struct iovec *parts, int count) {
    tt__saved_error saved;
    tt__error_save(&saved);
    ssize_t got = tls_read(link, parts, count);
    tt__error_restore(&saved);
    return got;
}

static void tcp_close(tt__link *link) {
    link->messages->tcp_links--;
    tt__stream_close(&link->stream);
}

const tt__link_ops tt__tcp_ops = {true, plain_send, plain_recv, tcp_close};
const tt__link_ops tt__tls_ops = {true, tls_send, tls_recv, tcp_close};

tt_status tt__link_add_tcp(tt__messages *messages, int peer, tt__stream stream, const char *where) {
    struct epoll_event event = {.events = EPOLLIN};
    tt_status status = tt__links_watch(messages);
    tt__link *link = status ? NULL : tt__link_new(messages, peer, stream.ssl ? &tt__tls_ops : &tt__tcp_ops);
    if (!link) {
        tt__stream_close(&stream);
        return tt_last_status();
    }
    link->tcp = true;
    link->stream = stream;
    messages->tcp_links++;
    link->heard_ms = tt__now_ms();
    snprintf(link->where, sizeof link->where, "%s", where);
    setsockopt(stream.fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    event.data.ptr = link;
    if (epoll_ctl(messages->epoll, EPOLL_CTL_ADD, stream.fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the connection to rank %d", peer);
    return TT_OK;
}
