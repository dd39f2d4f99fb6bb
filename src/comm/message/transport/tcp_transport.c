/* TCP, plain, sealed and encrypted. */
#include "base/error.h"
#include "comm/message/transport/transport.h"
#include "net/net.h"

#include <stdio.h>
#include <string.h>

static ssize_t tcp_ended(tt__transport *transport, const char *why) {
    snprintf(transport->why, sizeof transport->why, "%s", why);
    return -1;
}

static ssize_t plain_send(tt__transport *transport, const struct iovec *parts, int count) {
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = sendmsg(transport->stream.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? n : tt__net_would_block(errno) ? 0 : tcp_ended(transport, strerror(errno));
}

static ssize_t end_of_file(tt__transport *transport) {
    return tcp_ended(transport, transport->peer_left ? "the rank left" : "the other side closed it");
}

static ssize_t plain_recv(tt__transport *transport, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t n = recvmsg(transport->stream.fd, &message, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n == 0)
        return end_of_file(transport);
    return tt__net_would_block(errno) ? 0 : tcp_ended(transport, strerror(errno));
}

/* Bytes also move while a caller handles an error: a stream's errors go to the transport, and the caller's last error
 * stays. */
static ssize_t stream_send(tt__transport *transport, const struct iovec *parts, int count) {
    tt__saved_error saved;
    size_t n;
    tt__error_save(&saved);
    tt__io io = tt__stream_write(&transport->stream, parts, count, &n);
    ssize_t sent = io == TT__IO_FAILED ? tcp_ended(transport, tt_last_error()) : (ssize_t)n;
    tt__error_restore(&saved);
    return sent;
}

/* Fill the parts: a stream returns one record at a time, and upper layers take a short read for the last one. */
static ssize_t stream_read(tt__transport *transport, const struct iovec *parts, int count) {
    ssize_t total = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0, n = 0; done < parts[i].iov_len; done += n, total += (ssize_t)n) {
            tt__io io =
                tt__stream_read(&transport->stream, (char *)parts[i].iov_base + done, parts[i].iov_len - done, &n);
            if (io == TT__IO_FAILED)
                return tcp_ended(transport, tt_last_error());
            if (io == TT__IO_END)
                return total ? total : end_of_file(transport);
            if (io != TT__IO_DONE)
                return total;
        }
    return total;
}

static ssize_t stream_recv(tt__transport *transport, const struct iovec *parts, int count) {
    tt__saved_error saved;
    tt__error_save(&saved);
    ssize_t got = stream_read(transport, parts, count);
    tt__error_restore(&saved);
    return got;
}

static void tcp_close(tt__transport *transport) { tt__stream_close(&transport->stream); }

const tt__transport_ops tt__tcp_ops = {true, plain_send, plain_recv, tcp_close};
/* Sealed streams read ahead themselves, and large records straight to where they belong. */
const tt__transport_ops tt__sealed_ops = {false, stream_send, stream_recv, tcp_close};
const tt__transport_ops tt__tls_ops = {true, stream_send, stream_recv, tcp_close};
