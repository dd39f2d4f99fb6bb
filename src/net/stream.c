#include "net/stream.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "net/net.h"
#include "net/secure/seal.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { SPIN_NS = 50 * 1000 };

tt_status tt__stream_open(tt__stream *stream, int fd, tt__tls *tls, bool server) {
    *stream = (tt__stream){.fd = fd, .ssl = tls ? tt__tls_connection(tls, fd, server) : NULL};
    if (!tls || stream->ssl)
        return TT_OK;
    tt__stream_close(stream);
    return tt__fail(TT_ERR_MEMORY, "out of memory for an encrypted connection");
}

tt_status tt__stream_seal(tt__stream *stream, const tt__handshake *handshake) {
    tt__seal_keys keys;
    tt__handshake_keys(handshake, keys.send, keys.receive);
    tt_status status = tt__seal_new(&stream->seal, &keys);
    explicit_bzero(&keys, sizeof keys);
    return status;
}

void tt__stream_close(tt__stream *stream) {
    if (!stream || stream->fd < 0)
        return;
    if (stream->ssl)
        tt__tls_connection_free(stream->ssl);
    tt__seal_free(stream->seal);
    close(stream->fd);
    *stream = (tt__stream){.fd = -1};
}

tt__io tt__stream_begin(tt__stream *stream) { return stream->ssl ? tt__tls_begin(stream->ssl) : TT__IO_DONE; }

tt__io tt__stream_read(tt__stream *stream, void *data, size_t size, size_t *got) {
    *got = 0;
    if (stream->ssl)
        return tt__tls_read(stream->ssl, data, size, got);
    if (stream->seal)
        return tt__seal_read(stream->seal, stream->fd, data, size, got);
    ssize_t n;
    while ((n = recv(stream->fd, data, size, MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    if (n > 0)
        *got = (size_t)n;
    if (n >= 0)
        return n ? TT__IO_DONE : TT__IO_END;
    if (tt__net_would_block(errno))
        return TT__IO_WANT_READ;
    tt__fail_errno(TT_ERR_NET, errno, "reading from the connection");
    return TT__IO_FAILED;
}

void tt__stream_borrow(tt__stream *stream) {
    if (stream->seal)
        tt__seal_borrow(stream->seal);
}

void tt__stream_let_go(tt__stream *stream) {
    if (stream->seal)
        tt__seal_let_go(stream->seal);
}

tt__io tt__stream_write(tt__stream *stream, const struct iovec *pieces, int n, size_t *put) {
    *put = 0;
    if (stream->ssl)
        return tt__tls_write(stream->ssl, pieces, n, put);
    if (stream->seal)
        return tt__seal_write(stream->seal, stream->fd, pieces, n, put);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = (size_t)n};
    ssize_t sent;
    while ((sent = sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (sent >= 0) {
        *put = (size_t)sent;
        return TT__IO_DONE;
    }
    if (tt__net_would_block(errno))
        return TT__IO_WANT_WRITE;
    tt__fail_errno(TT_ERR_NET, errno, "writing to the connection");
    return TT__IO_FAILED;
}

tt__io tt__stream_flush(tt__stream *stream) {
    if (stream->seal)
        return tt__seal_flush(stream->seal, stream->fd);
    return stream->ssl ? tt__tls_flush(stream->ssl) : TT__IO_DONE;
}

bool tt__stream_unsent(const tt__stream *stream) {
    return stream->seal ? tt__seal_unsent(stream->seal) : stream->ssl && tt__tls_unsent(stream->ssl);
}

bool tt__stream_pending(const tt__stream *stream) {
    return stream->seal ? tt__seal_pending(stream->seal) : stream->ssl && tt__tls_pending(stream->ssl);
}

void tt__stream_hold(tt__stream *stream, bool on) {
    if (stream->seal)
        tt__seal_hold(stream->seal, on);
    else if (stream->ssl)
        tt__tls_hold(stream->ssl, on);
}

tt_status tt__stream_channel(const tt__stream *stream, uint8_t channel[TT__MAC_SIZE]) {
    memset(channel, 0, TT__MAC_SIZE);
    return !stream->ssl || tt__tls_channel(stream->ssl, channel)
               ? TT_OK
               : tt__fail(TT_ERR_AUTH, "TLS gives no key by which this connection could be told from others");
}

/* ---- waiting ---- */

static tt_status wait_until(const tt__stream *stream, tt__io wanted, int64_t deadline_ms) {
    struct pollfd p[2] = {{.fd = stream->fd, .events = wanted == TT__IO_WANT_READ ? POLLIN : POLLOUT},
                          {.fd = tt__net_interrupt_fd(), .events = POLLIN}};
    for (;;) {
        int left = tt__left_ms(deadline_ms);
        int n = poll(p, 2, left);
        if (n > 0)
            return p[0].revents ? TT_OK : tt__net_interrupted();
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_NET, errno, "poll");
        if (n == 0 && !left)
            return tt__fail(TT_ERR_TIMEOUT,
                            wanted == TT__IO_WANT_READ ? "no answer came in time" : "the other side does not read");
    }
}

/* Wait after a call that moved nothing. An answer usually takes less time than falling asleep and being woken, so this
 * first yields the CPU for a moment. */
static tt_status stream_wait(const tt__stream *stream, tt__io io, int64_t spin_until, int64_t deadline_ms) {
    if (io == TT__IO_FAILED)
        return tt_last_status();
    if (io == TT__IO_WANT_READ && tt__now_ns() < spin_until) {
        sched_yield();
        return TT_OK;
    }
    return wait_until(stream, io, deadline_ms);
}

tt_status tt__stream_read_some(tt__stream *stream, void *data, size_t size, int64_t deadline_ms, size_t *got) {
    int64_t spin_until = tt__now_ns() + SPIN_NS;
    tt__io io;
    while ((io = tt__stream_read(stream, data, size, got)) != TT__IO_DONE && io != TT__IO_END)
        TT__TRY(stream_wait(stream, io, spin_until, deadline_ms));
    return TT_OK;
}

tt_status tt__stream_read_full(tt__stream *stream, void *data, size_t size, int64_t deadline_ms) {
    for (size_t done = 0, n; done < size; done += n) {
        TT__TRY(tt__stream_read_some(stream, (char *)data + done, size - done, deadline_ms, &n));
        if (!n)
            return tt__fail(TT_ERR_NET, "the other side closed the connection after %zu of %zu bytes", done, size);
    }
    return TT_OK;
}

tt_status tt__stream_write_full(tt__stream *stream, const void *data, size_t size, int64_t deadline_ms) {
    for (size_t done = 0, put; done < size; done += put) {
        struct iovec rest = {(char *)(uintptr_t)data + done, size - done};
        tt__io io = tt__stream_write(stream, &rest, 1, &put);
        if (io != TT__IO_DONE)
            TT__TRY(stream_wait(stream, io, 0, deadline_ms));
    }
    tt__io io;
    while ((io = tt__stream_flush(stream)) != TT__IO_DONE)
        TT__TRY(stream_wait(stream, io, 0, deadline_ms));
    return TT_OK;
}

static tt_status stream_begin_tls(tt__stream *stream, int64_t deadline_ms) {
    tt__io io;
    while ((io = tt__stream_begin(stream)) != TT__IO_DONE)
        TT__TRY(stream_wait(stream, io, 0, deadline_ms));
    return TT_OK;
}

static tt_status send_handshake_bytes(tt__stream *stream, tt__handshake *h, int64_t deadline_ms) {
    TT__TRY(tt__stream_write_full(stream, h->out, h->out_size, deadline_ms));
    tt__handshake_sent(h, h->out_size);
    return TT_OK;
}

static tt_status read_handshake_bytes(tt__stream *stream, tt__handshake *h, int64_t deadline_ms) {
    uint8_t bytes[TT__HANDSHAKE_MESSAGE_MAX];
    size_t got;
    TT__TRY(tt__stream_read_some(stream, bytes, tt__handshake_wants(h), deadline_ms, &got));
    if (!got)
        return tt__fail(TT_ERR_NET, "the other side closed the connection during the handshake");
    tt__handshake_feed(h, bytes, got);
    return TT_OK;
}

tt_status tt__stream_handshake(tt__stream *stream, const tt__handshake_role *role, int64_t deadline_ms, int *peer,
                               uint8_t job[TT__JOB_SIZE]) {
    tt__handshake h;
    tt__handshake_role bound = *role;
    TT__TRY(stream_begin_tls(stream, deadline_ms));
    TT__TRY(tt__stream_channel(stream, bound.channel));
    TT__TRY(tt__handshake_begin(&h, &bound));
    while (h.state == TT__HANDSHAKE_GOING) {
        TT__TRY(send_handshake_bytes(stream, &h, deadline_ms));
        TT__TRY(read_handshake_bytes(stream, &h, deadline_ms));
    }
    tt_status sent = send_handshake_bytes(stream, &h, deadline_ms);
    if (h.state == TT__HANDSHAKE_FAILED)
        return tt__handshake_error(&h);
    if (peer)
        *peer = h.peer;
    if (job)
        memcpy(job, h.job, TT__JOB_SIZE);
    return sent || !role->sealing ? sent : tt__stream_seal(stream, &h);
}
