/* The server: a libuv loop in a thread of its own moves bytes between connections and the service.
 *
 * The loop belongs to its thread once that runs; tt_store_server_free() talks to it through `stop` alone. A connection is freed by its
 * close callback. Each reads only while all its replies are sent, so a client that does not read costs memory once, not without end. */
#include "base/clock.h"
#include "base/error.h"
#include "net/net.h"
#include "store/service.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

enum {
    MAX_LISTENERS = 4,
    READ_SIZE = 64 * 1024,
    IDLE_BUFFER = 4096,
    BACKLOG = 4096,
    SPIN_NS = 50 * 1000,
    ACCEPT_AGAIN_MS = 100
};

struct tt_store_server {
    uv_loop_t loop;
    bool loop_made;
    uv_async_t stop;
    uv_tcp_t listeners[MAX_LISTENERS];
    size_t listener_count;
    uv_timer_t accept_again;
    int port;
    pthread_t thread;
    int64_t served_ns; /* when a request was last read */
    tt__store_service service;
    tt__link connections;
    char read_buffer[READ_SIZE]; /* libuv reads one connection at a time */
};

typedef struct connection {
    uv_tcp_t tcp;
    uv_write_t write;
    tt_store_server *server;
    tt__link link;
    tt__store_session session;
    tt__bytes sending; /* borrowed by `write` while it holds anything */
    char peer[TT__NET_ADDRESS_SIZE];
} connection;

static void on_closed(uv_handle_t *handle) {
    connection *c = handle->data;
    tt__bytes_free(&c->sending);
    free(c);
}

static void close_connection(connection *c) {
    if (uv_is_closing((uv_handle_t *)&c->tcp))
        return;
    tt__store_session_end(&c->session);
    tt__link_remove(&c->link);
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

static void flush(connection *c);
static void flush_all(tt_store_server *server);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void)suggested;
    tt_store_server *server = ((connection *)handle->data)->server;
    *buf = uv_buf_init(server->read_buffer, READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    connection *c = stream->data;
    if (n < 0) {
        close_connection(c);
    } else {
        tt__store_session_feed(&c->session, buf->base, (size_t)n);
        flush_all(c->server);
        c->server->served_ns = tt__now_ns();
    }
}

static void on_written(uv_write_t *write, int error) {
    connection *c = write->data;
    if (uv_is_closing((uv_handle_t *)&c->tcp))
        return;
    if (error) {
        close_connection(c);
        return;
    }
    tt__bytes_clear(&c->sending, IDLE_BUFFER);
    tt__store_session_resume(&c->session);
    tt__store_session_queue(&c->session);
    flush_all(c->server);
    if (!uv_is_closing((uv_handle_t *)&c->tcp) && !c->sending.size)
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

/* The rest of `out` from `sent` on did not fit into the socket: leave it to libuv. */
static void send_rest(connection *c, size_t sent) {
    tt__bytes out = c->session.out;
    c->session.out = c->sending;
    c->sending = out;
    uv_buf_t buf = uv_buf_init((char *)out.data + sent, (unsigned)(out.size - sent));
    c->write.data = c;
    uv_read_stop((uv_stream_t *)&c->tcp);
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written))
        close_connection(c);
}

/* Send the replies of `c`; a session that broke the rules is closed after what it had earned before. */
static void flush(connection *c) {
    tt__bytes *out = &c->session.out;
    if (!c->sending.size && out->size) {
        uv_buf_t buf = uv_buf_init((char *)out->data, (unsigned)out->size);
        int sent = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (sent < 0 && sent != UV_EAGAIN) {
            close_connection(c);
            return;
        }
        if (sent >= 0 && (size_t)sent == out->size)
            tt__bytes_clear(out, IDLE_BUFFER);
        else
            send_rest(c, sent < 0 ? 0 : (size_t)sent);
    }
    if (c->session.broken && !uv_is_closing((uv_handle_t *)&c->tcp)) {
        tt__log(TT_LOG_WARNING, "store: closed the connection from %s: %s", c->peer, c->session.why);
        close_connection(c);
    }
}

/* A session served in part, because its replies piled up, goes on as soon as they are out. */
static void flush_all(tt_store_server *server) {
    for (tt__store_session *s; (s = tt__store_service_next(&server->service));) {
        connection *c = s->owner;
        flush(c);
        if (!uv_is_closing((uv_handle_t *)&c->tcp) && !c->sending.size && s->in.size)
            tt__store_session_resume(s);
    }
}

static bool welcome(connection *c) {
    struct sockaddr_storage peer = {0};
    int size = sizeof peer;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &size))
        return false;
    tt__net_address_text((struct sockaddr *)&peer, c->peer);
    if (!tt__net_is_loopback((struct sockaddr *)&peer)) {
        tt__log(TT_LOG_WARNING, "store: refused %s: only this machine's own clients are served", c->peer);
        return false;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    return uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) == 0;
}

static void on_connection(uv_stream_t *listener, int error);

static void on_accept_again(uv_timer_t *timer) {
    tt_store_server *server = timer->data;
    for (size_t i = 0; i < server->listener_count; i++)
        on_connection((uv_stream_t *)&server->listeners[i], 0);
}

/* libuv hands out the next connection only when this one has been accepted, so one that there is no memory for is asked for again. */
static void on_connection(uv_stream_t *listener, int error) {
    tt_store_server *server = listener->data;
    connection *c = error ? NULL : calloc(1, sizeof *c);
    if (!c) {
        tt__log(TT_LOG_WARNING, "store: could not accept a connection: %s",
                error ? uv_strerror(error) : "out of memory");
        uv_timer_start(&server->accept_again, on_accept_again, ACCEPT_AGAIN_MS, 0);
        return;
    }
    c->server = server;
    uv_tcp_init(&server->loop, &c->tcp);
    c->tcp.data = c;
    tt__store_session_init(&c->session, &server->service, c);
    tt__link_before(&server->connections, &c->link);
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) || !welcome(c))
        close_connection(c);
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_everything(tt_store_server *server) {
    while (!tt__link_alone(&server->connections))
        close_connection((connection *)(void *)((char *)server->connections.next - offsetof(connection, link)));
    uv_walk(&server->loop, close_handle, NULL);
}

static void on_stop(uv_async_t *stop) { close_everything(stop->data); }

/* Requests come in bursts of question and answer: for a moment after each the thread stays awake, offering the CPU to others, since being
 * woken costs more than all of a request's work. */
static void *serve(void *arg) {
    tt_store_server *server = arg;
    pthread_setname_np(pthread_self(), "tutti-store");
    bool alive = true;
    while (alive) {
        bool spin = tt__now_ns() - server->served_ns < SPIN_NS;
        alive = uv_run(&server->loop, spin ? UV_RUN_NOWAIT : UV_RUN_ONCE);
        if (spin)
            sched_yield();
    }
    return NULL;
}

/* The program's signals are for its own threads, and a client that goes while it is written to must not raise SIGPIPE. */
static int start_thread(tt_store_server *server) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int errnum = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return errnum;
}

static tt_status fail_uv(int error, const char *what) {
    return tt__fail(error == UV_ENOMEM ? TT_ERR_MEMORY : TT_ERR_SYSTEM, "store server: %s: %s", what,
                    uv_strerror(error));
}

/* Take over the listening sockets; those not taken when an error comes are closed. */
static tt_status add_listeners(tt_store_server *server, const int *fds, size_t n) {
    int error = 0;
    for (size_t i = 0; i < n; i++) {
        uv_tcp_t *listener = &server->listeners[i];
        if (error || (error = uv_tcp_init(&server->loop, listener)) || (error = uv_tcp_open(listener, fds[i]))) {
            close(fds[i]);
            continue;
        }
        listener->data = server;
        error = uv_listen((uv_stream_t *)listener, BACKLOG, on_connection);
        server->listener_count++;
    }
    return error ? fail_uv(error, "listening") : TT_OK;
}

static tt_status start(tt_store_server *server, const char *host, int port) {
    int error = uv_loop_init(&server->loop);
    if (error)
        return fail_uv(error, "making its event loop");
    server->loop_made = true;
    if ((error = uv_async_init(&server->loop, &server->stop, on_stop)))
        return fail_uv(error, "making its event loop");
    uv_timer_init(&server->loop, &server->accept_again);
    server->stop.data = server->accept_again.data = server;
    int fds[MAX_LISTENERS];
    size_t n;
    TT__TRY(tt__net_listen_loopback(host, port, fds, MAX_LISTENERS, &n, &server->port));
    TT__TRY(add_listeners(server, fds, n));
    int errnum = start_thread(server);
    return errnum ? tt__fail_errno(TT_ERR_SYSTEM, errnum, "store server: starting its thread") : TT_OK;
}

static void dispose(tt_store_server *server) {
    if (server->loop_made)
        uv_loop_close(&server->loop);
    tt__store_service_free(&server->service);
    free(server);
}

tt_status tt_store_server_start(tt_store_server **out, const char *host, int port) {
    if (!out)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_start: out is NULL");
    *out = NULL;
    if (port < 0 || port > 65535)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_start: expected a port from 0 to 65535, got %d", port);
    tt_store_server *server = calloc(1, sizeof *server);
    if (!server)
        return tt__fail(TT_ERR_MEMORY, "tt_store_server_start: out of memory");
    tt__store_service_init(&server->service);
    tt__link_init(&server->connections);
    tt_status status = start(server, host ? host : "127.0.0.1", port);
    if (status) {
        if (server->loop_made) {
            close_everything(server);
            uv_run(&server->loop, UV_RUN_DEFAULT);
        }
        dispose(server);
        return status;
    }
    *out = server;
    return TT_OK;
}

int tt_store_server_port(const tt_store_server *server) { return server->port; }

void tt_store_server_free(tt_store_server *server) {
    if (!server)
        return;
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    dispose(server);
}
