/* A connection's state says what its bytes mean:
 *
 *   NEW        nothing has come; the first byte is peeked at
 *   TLS        TLS's handshake
 *   HANDSHAKE  ours (net/secure/handshake.h)
 *   SERVED     requests for its session. They are read only while all replies are sent, so that a client that does not
 *              read costs a bounded amount of memory. One that asks for much is served a slice at a time, and the
 *              others in between.
 *   DISMISSED  nothing: what still comes is read and dropped, up to a limit, until the client leaves. If we closed at
 *              once, the client would see a reset instead of the reason or the end that it was sent. */
#include "store/server/connection.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "net/secure/munge.h"
#include "store/server/renewal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { IDLE_BUFFER = 4096, NEW_BYTES = 2048, TLS_BYTES = 80 * 1024, DROPPED_MAX = 16 << 20 };

typedef enum state { NEW, TLS, HANDSHAKE, SERVED, DISMISSED } state;

typedef struct connection {
    uv_poll_t poll;
    int events; /* what is polled for */
    tt__connections *all;
    tt__list_node node; /* in all->open */
    tt__stream stream;
    state state;
    bool closing;
    tt__pending_peer peer;
    tt__handshake *handshake; /* while HANDSHAKE */
    tt__store_session session;
    size_t sent;    /* bytes of session.out */
    size_t dropped; /* while DISMISSED */
    char address[TT__NET_ADDRESS_SIZE];
} connection;

static void on_closed(uv_handle_t *handle) { free(handle->data); }

static void close_connection(connection *c) {
    if (c->closing)
        return;
    c->closing = true;
    tt__admission_remove(&c->all->admission, &c->peer);
    tt__store_session_end(&c->session);
    tt__list_remove(&c->node);
    free(c->handshake);
    uv_close((uv_handle_t *)&c->poll,
             on_closed); /* before the descriptor is closed: another connection may get its number at once */
    tt__stream_close(&c->stream);
}

static void refuse_connection(connection *c, const char *why) {
    tt__refusals_log(&c->all->admission.refusals, "store", "refused %s: %s", c->address, why);
    close_connection(c);
}

static connection *connection_of(tt__pending_peer *peer) {
    return (connection *)(void *)((char *)peer - offsetof(connection, peer));
}

/* Close a connection whose time is over, or that must make room. A dismissed one has been refused before. */
static void refuse_oldest(tt__pending_peer *peer, const char *why) {
    connection *c = connection_of(peer);
    if (c->state == DISMISSED)
        close_connection(c);
    else
        refuse_connection(c, why);
}

static void on_timer(uv_timer_t *timer);

/* Close expired connections, and set the timer for the next. */
static void expire_connections(tt__connections *all) {
    tt__admission *admission = &all->admission;
    for (tt__pending_peer *n; (n = tt__admission_expired(admission));)
        refuse_oldest(n, tt__admission_crowded(admission) ? "too many connections that have not proved anything"
                                                          : "it did not prove in time that it belongs to the job");
    int64_t next_ms = tt__admission_next_ms(admission);
    if (next_ms < 0)
        uv_timer_stop(all->timer);
    else if (!uv_is_active((uv_handle_t *)all->timer))
        uv_timer_start(all->timer, on_timer, (uint64_t)tt__left_ms(next_ms) + 1, 0);
}

static void on_timer(uv_timer_t *timer) {
    tt__connections *all = timer->data;
    tt__refusals_flush(&all->admission.refusals, "store");
    expire_connections(all);
}

static void on_poll(uv_poll_t *poll, int error, int events);
static void poll_for(connection *c, int events);

/* Shut down our side, so that the client reads the end. Then it has the usual time to leave. */
static void dismiss_connection(connection *c) {
    c->state = DISMISSED;
    tt__admission_remove(&c->all->admission, &c->peer);
    tt__store_session_end(&c->session);
    free(c->handshake);
    c->handshake = NULL;
    if (shutdown(c->stream.fd, SHUT_WR)) {
        close_connection(c);
        return;
    }
    tt__admission_list_pending(&c->all->admission, &c->peer, NEW_BYTES);
    poll_for(c, UV_READABLE);
}

/* Refuse a client that has said something. */
static void refuse_words(connection *c, const char *why) {
    tt__refusals_log(&c->all->admission.refusals, "store", "refused %s: %s", c->address, why);
    dismiss_connection(c);
}

static void drop_words(connection *c) {
    tt__connections *all = c->all;
    ssize_t n = recv(c->stream.fd, all->read_buffer, sizeof all->read_buffer, MSG_DONTWAIT);
    if (n > 0)
        c->dropped += (size_t)n;
    if (n == 0 || (n < 0 && !tt__net_would_block(errno)) || c->dropped > DROPPED_MAX)
        close_connection(c);
}

static void poll_for(connection *c, int events) {
    if (c->closing || c->events == events)
        return;
    c->events = events;
    if (uv_poll_start(&c->poll, events, on_poll))
        close_connection(c);
}

/* ---- replies */

/* Send the replies of `c`. A session that broke the protocol is closed after its earlier replies. */
static void flush_connection(connection *c) {
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
        tt__store_session_charge(&c->session);
        c->sent = 0;
    }
    if (c->session.broken) {
        tt__log(TT_LOG_WARNING, "store: closed the connection from %s: %s", c->address, c->session.why);
        if (all)
            dismiss_connection(c);
        else
            close_connection(c);
    } else {
        poll_for(c, !all || c->session.held ? UV_WRITABLE : UV_READABLE);
    }
}

/* Send the replies of all queued sessions. One held back because its replies piled up continues in the loop's next
 * round, if they are sent by then. */
static void flush_connections(tt__connections *all) {
    for (tt__store_session *s; (s = tt__store_service_next(&all->service));)
        flush_connection(s->owner);
}

/* ---- requests and handshakes */

static bool is_served(const connection *c) { return !c->closing && c->state == SERVED; }

/* poll() knows nothing of what TLS has already decrypted, so that is read, too. */
static void read_requests(connection *c) {
    tt__connections *all = c->all;
    do {
        size_t got;
        tt__io io = tt__stream_read(&c->stream, all->read_buffer, sizeof all->read_buffer, &got);
        if (io == TT__IO_WANT_READ)
            return;
        if (io != TT__IO_DONE) {
            close_connection(c);
            return;
        }
        tt__store_session_feed(&c->session, all->read_buffer, got);
        flush_connections(all);
        all->served_ns = tt__now_ns();
    } while (is_served(c) && !c->session.out.size && !c->session.held && tt__stream_pending(&c->stream));
}

static void admit_client(connection *c) {
    tt__admission_remove(&c->all->admission, &c->peer);
    free(c->handshake);
    c->handshake = NULL;
    c->state = SERVED;
}

static tt_status begin_server_handshake(connection *c) {
    tt__handshake_role role = {.server = true,
                               .purpose = TT__PURPOSE_STORE,
                               .secret = &c->all->admission.secret,
                               .rank = TT__ANY_RANK,
                               .peer = TT__ANY_RANK};
    memcpy(role.job, c->all->life, sizeof role.job);
    c->state = HANDSHAKE;
    c->handshake = malloc(sizeof *c->handshake);
    if (!c->handshake)
        return tt__fail(TT_ERR_MEMORY, "out of memory");
    TT__TRY(tt__stream_channel(&c->stream, role.channel));
    return tt__handshake_begin(c->handshake, &role);
}

/* The messages are small and the first on the connection, so the socket has room for them. */
static bool send_handshake_reply(connection *c) {
    tt__handshake *h = c->handshake;
    struct iovec message = {h->out, h->out_size};
    size_t put = 0;
    bool sent = !h->out_size || (tt__stream_write(&c->stream, &message, 1, &put) == TT__IO_DONE && put == h->out_size &&
                                 !tt__stream_unsent(&c->stream));
    h->out_size = 0;
    return sent;
}

static void serve_handshake(connection *c) {
    tt__handshake *h = c->handshake;
    uint8_t bytes[TT__HANDSHAKE_MESSAGE_MAX];
    while (h->state == TT__HANDSHAKE_GOING) {
        size_t got;
        tt__io io = tt__stream_read(&c->stream, bytes, tt__handshake_wants(h), &got);
        if (io == TT__IO_WANT_READ)
            return;
        if (io != TT__IO_DONE) {
            refuse_connection(c, "it left during the handshake");
            return;
        }
        tt__handshake_feed(h, bytes, got);
        if (!send_handshake_reply(c) && h->state != TT__HANDSHAKE_FAILED) {
            refuse_connection(c, "it does not read");
            return;
        }
    }
    if (h->state == TT__HANDSHAKE_FAILED)
        refuse_words(c, tt__handshake_reason(h));
    else if (!tt__admission_accepts(&c->all->admission, &c->peer))
        refuse_words(c, c->peer.place == TT__PEER_ELSEWHERE
                            ? "it comes from another machine, and there is no job secret that it could prove to have"
                            : "it belongs to another user of this machine, and there is no job secret that it could "
                              "prove to have");
    else
        admit_client(c);
}

static void serve_tls(connection *c) {
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
        refuse_words(c, tt_last_error());
        return;
    }
    poll_for(c, UV_READABLE);
    if (begin_server_handshake(c))
        refuse_connection(c, tt_last_error());
    else
        serve_handshake(c);
}

/* Send the reason to a client of ours; anything else gets nothing. */
static void refuse_first_byte(connection *c, uint8_t first, const char *why) {
    uint8_t refusal[TT__HANDSHAKE_MESSAGE_MAX];
    size_t size = tt__handshake_refusal(TT__REFUSED_PLAIN, refusal);
    bool done = first != TT__HANDSHAKE_FIRST_BYTE || send(c->stream.fd, refusal, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    refuse_words(c, done ? why : "it left at once");
}

/* Send the credential of the job secret. It is small and the first on the connection, so the socket has room for it. */
static void answer_asking(connection *c) {
    uint8_t answer[TT__ASKING_ANSWER_MAX];
    size_t size = tt__asking_answer(answer);
    if (send(c->stream.fd, answer, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size)
        dismiss_connection(c);
    else
        refuse_connection(c, "it does not read");
}

static void read_first_byte(connection *c) {
    tt__connections *all = c->all;
    uint8_t first;
    const char *why;
    ssize_t n = recv(c->stream.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        close_connection(c);
        return;
    }
    switch (tt__admission_decide(&all->admission, &c->peer, first, c->address, &why)) {
    case TT__ADMIT_NOT:
        refuse_first_byte(c, first, why);
        return;
    case TT__ADMIT_NOW:
        admit_client(c);
        return;
    case TT__ADMIT_HANDSHAKE:
        tt__admission_list_pending(&all->admission, &c->peer, NEW_BYTES);
        if (begin_server_handshake(c))
            refuse_connection(c, tt_last_error());
        return;
    case TT__ADMIT_ASKING:
        answer_asking(c);
        return;
    case TT__ADMIT_TLS:
        tt__admission_list_pending(&all->admission, &c->peer, TLS_BYTES);
        c->state = TLS;
        if (tt__stream_open(&c->stream, c->stream.fd, all->admission.tls, true))
            refuse_connection(c, "out of memory");
    }
}

static void on_poll(uv_poll_t *poll, int error, int events) {
    connection *c = poll->data;
    if (error) {
        close_connection(c);
        return;
    }
    if (c->state == NEW)
        read_first_byte(c);
    if (!c->closing && c->state == TLS)
        serve_tls(c);
    else if (!c->closing && c->state == HANDSHAKE)
        serve_handshake(c);
    else if (!c->closing && c->state == DISMISSED)
        drop_words(c);
    if (is_served(c) && (events & UV_WRITABLE)) {
        flush_connection(c);
        if (is_served(c) && !c->session.out.size)
            tt__store_session_resume(&c->session);
        flush_connections(c->all);
    }
    if (is_served(c) && !c->session.out.size && !c->session.held)
        read_requests(c);
    expire_connections(c->all);
}

/* ---- all connections */

void tt__connections_init(tt__connections *all, uv_loop_t *loop, uv_timer_t *timer) {
    all->loop = loop;
    all->timer = timer;
    tt__store_service_init(&all->service);
    tt__list_init(&all->open);
}

bool tt__connection_open(tt__connections *all, int fd) {
    connection *c = calloc(1, sizeof *c);
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (!c || uv_poll_init(all->loop, &c->poll, fd)) {
        free(c);
        tt__stream_close(&(tt__stream){.fd = fd});
        return false;
    }
    c->all = all;
    c->poll.data = c;
    tt__stream_open(&c->stream, fd, NULL, true);
    tt__store_session_init(&c->session, &all->service, c);
    tt__list_append(&all->open, &c->node);
    getpeername(fd, (struct sockaddr *)&peer, &size);
    tt__net_address_text((struct sockaddr *)&peer, c->address);
    tt__admission_find_place(&all->admission, &c->peer, fd);
    /* PyTorch 1.13 keeps a second connection, on which it sends nothing. */
    if (tt__admission_trusts(&all->admission, &c->peer))
        tt__admission_list_silent(&all->admission, &c->peer);
    else
        tt__admission_list_pending(&all->admission, &c->peer, NEW_BYTES);
    poll_for(c, UV_READABLE);
    expire_connections(all);
    return true;
}

bool tt__connections_drop_oldest(tt__connections *all) {
    tt__pending_peer *first = tt__admission_oldest(&all->admission);
    if (first)
        refuse_oldest(first, first->silent ? "descriptors are short, and it has said nothing"
                                           : "descriptors are short, and it has not proved anything");
    return first != NULL;
}

void tt__connections_close(tt__connections *all) {
    while (!tt__list_empty(&all->open))
        close_connection((connection *)(void *)((char *)all->open.next - offsetof(connection, node)));
}

/* Count the renewal: later clients neither read nor write what belongs to earlier lives. */
static void begin_next_life(uint8_t life[TT__JOB_SIZE]) {
    for (int i = TT__JOB_SIZE / 2; i < TT__JOB_SIZE && !++life[i]; i++) {
    }
}

void tt__connections_renew(tt__connections *all) {
    begin_next_life(all->life);
    for (tt__list_node *node = all->open.next, *next; node != &all->open; node = next) {
        connection *c = (connection *)(void *)((char *)node - offsetof(connection, node));
        next = node->next;
        if (!c->session.lasting)
            close_connection(c);
    }
    tt__store_table_forget(&all->service.table, TT__STORE_LASTING);
    expire_connections(all);
}
