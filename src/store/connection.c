/* A connection goes through states, and what makes it readable means something else in each:
 *
 *   SILENT    nothing said yet: the first byte is looked at, and left where it is
 *   SECURING  TLS's handshake
 *   GREETING  ours (net/handshake.h)
 *   SERVED    requests, to its session; read only while all replies are sent, so a client that does not read costs memory once, not without end */
#include "store/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { IDLE_BUFFER = 4096 };

typedef enum state { SILENT, SECURING, GREETING, SERVED } state;

typedef struct connection {
    uv_poll_t poll;
    int events; /* what is polled for */
    tt__hall *hall;
    tt__link link;
    tt__stream stream;
    state state;
    bool closing;
    tt__newcomer newcomer;
    tt__handshake *handshake; /* while GREETING */
    tt__store_session session;
    size_t sent; /* of session.out */
    char peer[TT__NET_ADDRESS_SIZE];
} connection;

static void on_closed(uv_handle_t *handle) { free(handle->data); }

static void close_connection(connection *c) {
    if (c->closing)
        return;
    c->closing = true;
    tt__gate_release(&c->hall->gate, &c->newcomer);
    tt__store_session_end(&c->session);
    tt__link_remove(&c->link);
    free(c->handshake);
    uv_close((uv_handle_t *)&c->poll, on_closed); /* before the descriptor: it may be another's at once */
    tt__stream_close(&c->stream);
}

static void refuse(connection *c, const char *why) {
    tt__refusals_log(&c->hall->gate.refusals, "store", "refused %s: %s", c->peer, why);
    close_connection(c);
}

static void on_ready(uv_poll_t *poll, int error, int events);

static void poll_for(connection *c, int events) {
    if (c->closing || c->events == events)
        return;
    c->events = events;
    if (uv_poll_start(&c->poll, events, on_ready))
        close_connection(c);
}

/* ---- replies */

/* Send the replies of `c`; a session that broke the rules is closed after what it had earned before. */
static void flush(connection *c) {
    tt__bytes *out = &c->session.out;
    while (c->sent < out->size) {
        struct iovec rest = {out->data + c->sent, out->size - c->sent};
        size_t put;
        tt__io io = tt__stream_write(&c->stream, &rest, 1, &put);
        if (io == TT__IO_WANT_WRITE)
            break;
        if (io != TT__IO_DONE) {
            close_connection(c);
            return;
        }
        c->sent += put;
    }
    tt__io io = tt__stream_flush(&c->stream);
    if (io == TT__IO_FAILED) {
        close_connection(c);
        return;
    }
    bool all = c->sent == out->size && io == TT__IO_DONE;
    if (all && out->size) {
        tt__bytes_clear(out, IDLE_BUFFER);
        c->sent = 0;
    }
    if (c->session.broken) {
        tt__log(TT_LOG_WARNING, "store: closed the connection from %s: %s", c->peer, c->session.why);
        close_connection(c);
    } else {
        poll_for(c, all ? UV_READABLE : UV_WRITABLE);
    }
}

/* A session served in part, because its replies piled up, goes on as soon as they are out. */
static void flush_all(tt__hall *hall) {
    for (tt__store_session *s; (s = tt__store_service_next(&hall->service));) {
        connection *c = s->owner;
        flush(c);
        if (!c->closing && !s->out.size && s->in.size)
            tt__store_session_resume(s);
    }
}

/* ---- what comes in */

/* What TLS has already decrypted makes no socket readable. */
static void read_requests(connection *c) {
    tt__hall *hall = c->hall;
    do {
        size_t got;
        tt__io io = tt__stream_read(&c->stream, hall->read_buffer, sizeof hall->read_buffer, &got);
        if (io == TT__IO_WANT_READ)
            return;
        if (io != TT__IO_DONE) {
            close_connection(c);
            return;
        }
        tt__store_session_feed(&c->session, hall->read_buffer, got);
        flush_all(hall);
        hall->served_ns = tt__now_ns();
    } while (!c->closing && !c->session.out.size && tt__stream_pending(&c->stream));
}

static void let_in(connection *c) {
    tt__gate_release(&c->hall->gate, &c->newcomer);
    free(c->handshake);
    c->handshake = NULL;
    c->state = SERVED;
}

static bool begin_greeting(connection *c) {
    tt__handshake_role role = {.server = true,
                               .purpose = TT__PURPOSE_STORE,
                               .secret = &c->hall->gate.secret,
                               .rank = TT__ANY_RANK,
                               .peer = TT__ANY_RANK};
    tt__stream_channel(&c->stream, role.channel);
    c->state = GREETING;
    c->handshake = malloc(sizeof *c->handshake);
    return c->handshake && !tt__handshake_begin(c->handshake, &role);
}

/* The messages are small, and nothing was sent before them: they fit into the socket, or the other side is no client of ours. */
static bool say(connection *c) {
    tt__handshake *h = c->handshake;
    struct iovec words = {h->out, h->out_size};
    size_t put = 0;
    bool said = !h->out_size || (tt__stream_write(&c->stream, &words, 1, &put) == TT__IO_DONE && put == h->out_size &&
                                 !tt__stream_unsent(&c->stream));
    h->out_size = 0;
    return said;
}

static void go_on_greeting(connection *c) {
    tt__handshake *h = c->handshake;
    uint8_t words[TT__HANDSHAKE_MESSAGE_MAX];
    while (h->state == TT__HANDSHAKE_GOING) {
        size_t got;
        tt__io io = tt__stream_read(&c->stream, words, tt__handshake_wants(h), &got);
        if (io == TT__IO_WANT_READ)
            return;
        if (io != TT__IO_DONE) {
            refuse(c, "it left during the handshake");
            return;
        }
        tt__handshake_feed(h, words, got);
        if (!say(c) && h->state != TT__HANDSHAKE_FAILED) {
            refuse(c, "it does not read");
            return;
        }
    }
    if (h->state == TT__HANDSHAKE_FAILED)
        refuse(c, tt__handshake_reason(h));
    else if (!tt__gate_accepts(&c->hall->gate, &c->newcomer))
        refuse(c, "it comes from another machine, and there is no job secret that it could prove to have");
    else
        let_in(c);
}

static void go_on_securing(connection *c) {
    switch (tt__stream_begin(&c->stream)) {
    case TT__IO_WANT_READ:
        poll_for(c, UV_READABLE);
        return;
    case TT__IO_WANT_WRITE:
        poll_for(c, UV_WRITABLE);
        return;
    case TT__IO_DONE:
        break;
    default:
        refuse(c, tt_last_error());
        return;
    }
    poll_for(c, UV_READABLE);
    if (begin_greeting(c))
        go_on_greeting(c);
    else
        refuse(c, "out of memory");
}

/* A client of ours is told what is missing; anybody else learns nothing. What it has said is read, so that it sees an end and not a reset. */
static void refuse_at_door(connection *c, uint8_t first, const char *why) {
    uint8_t refusal[TT__HANDSHAKE_MESSAGE_MAX];
    size_t size = tt__handshake_refusal(TT__REFUSED_PLAIN, refusal);
    bool done = recv(c->stream.fd, c->hall->read_buffer, sizeof c->hall->read_buffer, MSG_DONTWAIT) > 0;
    if (done && first == TT__HANDSHAKE_FIRST_BYTE)
        done = send(c->stream.fd, refusal, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    refuse(c, done ? why : "it left at once");
}

static void look_at_first_byte(connection *c) {
    tt__hall *hall = c->hall;
    uint8_t first;
    const char *why;
    ssize_t n = recv(c->stream.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        close_connection(c);
        return;
    }
    switch (tt__gate_ask(&hall->gate, &c->newcomer, first, c->peer, &why)) {
    case TT__GATE_REFUSE:
        refuse_at_door(c, first, why);
        return;
    case TT__GATE_SERVE:
        let_in(c);
        return;
    case TT__GATE_GREET:
        tt__gate_watch(&hall->gate, &c->newcomer);
        if (!begin_greeting(c))
            refuse(c, "out of memory");
        return;
    case TT__GATE_ENCRYPT:
        tt__gate_watch(&hall->gate, &c->newcomer);
        c->state = SECURING;
        if (tt__stream_open(&c->stream, c->stream.fd, hall->gate.tls, true))
            refuse(c, "out of memory");
    }
}

static void on_ready(uv_poll_t *poll, int error, int events) {
    connection *c = poll->data;
    if (error) {
        close_connection(c);
        return;
    }
    if (c->state == SILENT)
        look_at_first_byte(c);
    if (!c->closing && c->state == SECURING)
        go_on_securing(c);
    else if (!c->closing && c->state == GREETING)
        go_on_greeting(c);
    if (!c->closing && c->state == SERVED && (events & UV_WRITABLE)) {
        flush(c);
        if (!c->closing && !c->session.out.size)
            tt__store_session_resume(&c->session);
        flush_all(c->hall);
    }
    if (!c->closing && c->state == SERVED && !c->session.out.size)
        read_requests(c);
    tt__hall_see_to_gate(c->hall);
}

/* ---- all of them */

void tt__hall_init(tt__hall *hall, uv_loop_t *loop, uv_timer_t *timer) {
    hall->loop = loop;
    hall->timer = timer;
    tt__store_service_init(&hall->service);
    tt__link_init(&hall->connections);
}

bool tt__connection_open(tt__hall *hall, int fd) {
    connection *c = calloc(1, sizeof *c);
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (!c || uv_poll_init(hall->loop, &c->poll, fd)) {
        free(c);
        tt__stream_close(&(tt__stream){.fd = fd});
        return false;
    }
    c->hall = hall;
    c->poll.data = c;
    tt__stream_open(&c->stream, fd, NULL, true);
    tt__store_session_init(&c->session, &hall->service, c);
    tt__link_before(&hall->connections, &c->link);
    getpeername(fd, (struct sockaddr *)&peer, &size);
    tt__net_address_text((struct sockaddr *)&peer, c->peer);
    c->newcomer.local = tt__net_is_local(fd);
    /* PyTorch 1.13 keeps a second connection, on which it says nothing. */
    if (!tt__gate_trusts(&hall->gate, &c->newcomer))
        tt__gate_watch(&hall->gate, &c->newcomer);
    poll_for(c, UV_READABLE);
    tt__hall_see_to_gate(hall);
    return true;
}

static connection *connection_of(tt__newcomer *newcomer) {
    return (connection *)(void *)((char *)newcomer - offsetof(connection, newcomer));
}

bool tt__hall_make_room(tt__hall *hall) {
    tt__newcomer *first = tt__gate_oldest(&hall->gate);
    if (first)
        refuse(connection_of(first), "descriptors are short, and it has not proved anything");
    return first != NULL;
}

static void on_timer(uv_timer_t *timer) {
    tt__hall *hall = timer->data;
    tt__refusals_tell(&hall->gate.refusals, "store");
    tt__hall_see_to_gate(hall);
}

void tt__hall_see_to_gate(tt__hall *hall) {
    tt__gate *gate = &hall->gate;
    for (tt__newcomer *n; (n = tt__gate_overdue(gate));)
        refuse(connection_of(n), gate->pending_count > gate->max_pending
                                     ? "too many connections that have not proved anything"
                                     : "it did not prove in time that it belongs to the job");
    int64_t next_ms = tt__gate_next_ms(gate);
    if (next_ms < 0)
        uv_timer_stop(hall->timer);
    else if (!uv_is_active((uv_handle_t *)hall->timer))
        uv_timer_start(hall->timer, on_timer, (uint64_t)tt__left_ms(next_ms) + 1, 0);
}

void tt__hall_close(tt__hall *hall) {
    while (!tt__link_alone(&hall->connections))
        close_connection((connection *)(void *)((char *)hall->connections.next - offsetof(connection, link)));
}
