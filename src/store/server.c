/* The server: a libuv loop in a thread of its own moves bytes between connections and the service.
 *
 * The loop belongs to its thread once that runs; tt_store_server_free() talks to it through `stop` alone. */
#include "base/args.h"
#include "base/clock.h"
#include "base/error.h"
#include "store/connection.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_LISTENERS = 4, ACCEPT_AT_ONCE = 64, SPIN_NS = 50 * 1000, ACCEPT_AGAIN_MS = 100 };

typedef struct listener {
    uv_poll_t poll;
    int fd;
    struct tt_store_server *server;
} listener;

struct tt_store_server {
    uv_loop_t loop;
    bool loop_made;
    uv_async_t stop;
    uv_timer_t accept_again, gate_timer;
    listener listeners[MAX_LISTENERS];
    size_t listener_count;
    int port;
    pthread_t thread;
    tt__hall hall;
};

static void on_client(uv_poll_t *poll, int error, int events);

static void listen_again(uv_timer_t *timer) {
    tt_store_server *server = timer->data;
    for (size_t i = 0; i < server->listener_count; i++)
        uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_client);
}

/* No descriptor or memory for one more: whoever waits at the door is asked in a moment later, when some may have gone. */
static void pause_listening(tt_store_server *server, const char *why) {
    tt__refusals_log(&server->hall.gate.refusals, "store", "could not accept a connection: %s", why);
    for (size_t i = 0; i < server->listener_count; i++)
        uv_poll_stop(&server->listeners[i].poll);
    uv_timer_start(&server->accept_again, listen_again, ACCEPT_AGAIN_MS, 0);
}

static bool gone_already(int errnum) {
    return errnum == ECONNABORTED || errnum == EINTR || errnum == EPROTO || errnum == EPERM;
}

static void on_client(uv_poll_t *poll, int error, int events) {
    listener *l = poll->data;
    (void)events;
    for (int i = 0; !error && i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 &&
            (gone_already(errno) || ((errno == EMFILE || errno == ENFILE) && tt__hall_make_room(&l->server->hall))))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                pause_listening(l->server, strerror(errno));
            return;
        }
        tt__net_no_delay(fd);
        if (!tt__connection_open(&l->server->hall, fd)) {
            pause_listening(l->server, "out of memory");
            return;
        }
    }
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_everything(tt_store_server *server) {
    tt__hall_close(&server->hall);
    uv_walk(&server->loop, close_handle, NULL);
    for (size_t i = 0; i < server->listener_count; i++)
        close(server->listeners[i].fd);
    server->listener_count = 0;
}

static void on_stop(uv_async_t *stop) { close_everything(stop->data); }

/* Requests come in bursts of question and answer: for a moment after each the thread stays awake, offering the CPU to others, since being
 * woken costs more than all of a request's work. */
static void *serve(void *arg) {
    tt_store_server *server = arg;
    pthread_setname_np(pthread_self(), "tutti-store");
    bool alive = true;
    while (alive) {
        bool spin = tt__now_ns() - server->hall.served_ns < SPIN_NS;
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
        listener *l = &server->listeners[server->listener_count];
        if (error || (error = uv_poll_init(&server->loop, &l->poll, fds[i]))) {
            close(fds[i]);
            continue;
        }
        *l = (listener){.poll = l->poll, .fd = fds[i], .server = server};
        l->poll.data = l;
        server->listener_count++;
        error = uv_poll_start(&l->poll, UV_READABLE, on_client);
    }
    return error ? fail_uv(error, "listening") : TT_OK;
}

static tt_status make_loop(tt_store_server *server) {
    int error = uv_loop_init(&server->loop);
    if (error)
        return fail_uv(error, "making its event loop");
    server->loop_made = true;
    if ((error = uv_async_init(&server->loop, &server->stop, on_stop)))
        return fail_uv(error, "making its event loop");
    uv_timer_init(&server->loop, &server->accept_again);
    uv_timer_init(&server->loop, &server->gate_timer);
    server->stop.data = server->accept_again.data = server;
    server->gate_timer.data = &server->hall;
    return TT_OK;
}

static tt_status start(tt_store_server *server, const tt_store_server_new_args *args) {
    int fds[MAX_LISTENERS];
    size_t n;
    TT__TRY(tt__gate_init(&server->hall.gate, args->auth, args->secret, args->proof_timeout_ms));
    TT__TRY(make_loop(server));
    TT__TRY(tt__net_listen(args->host ? args->host : "127.0.0.1", args->port, fds, MAX_LISTENERS, &n, &server->port));
    TT__TRY(add_listeners(server, fds, n));
    int errnum = start_thread(server);
    return errnum ? tt__fail_errno(TT_ERR_SYSTEM, errnum, "store server: starting its thread") : TT_OK;
}

static void dispose(tt_store_server *server) {
    if (server->loop_made)
        uv_loop_close(&server->loop);
    tt__store_service_free(&server->hall.service);
    tt__gate_free(&server->hall.gate);
    free(server);
}

static tt_status check_args(const tt_store_server_new_args *args) {
    if (args->port < 0 || args->port > 65535)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: expected a port from 0 to 65535, got %d", args->port);
    if (args->auth < TT_STORE_AUTH_LOCAL || args->auth > TT_STORE_AUTH_NONE)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: no such authentication: %d", (int)args->auth);
    if (args->proof_timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: expected a proof_timeout_ms of at least 0, got %lld",
                        (long long)args->proof_timeout_ms);
    return TT_OK;
}

tt_status tt_store_server_new_with(const tt_store_server_new_args *given, size_t size) {
    tt_store_server_new_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: out is NULL");
    *args.out = NULL;
    TT__TRY(check_args(&args));
    tt_store_server *server = calloc(1, sizeof *server);
    if (!server)
        return tt__fail(TT_ERR_MEMORY, "tt_store_server_new: out of memory");
    tt__hall_init(&server->hall, &server->loop, &server->gate_timer);
    tt_status status = start(server, &args);
    if (status) {
        if (server->loop_made) {
            close_everything(server);
            uv_run(&server->loop, UV_RUN_DEFAULT);
        }
        dispose(server);
        return status;
    }
    *args.out = server;
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
