/* The server: a libuv loop in a thread of its own moves bytes between connections and the service. Once the loop runs,
 * other threads may only signal it: tt_store_server_free() by `stop`, tt__store_server_renew() by `renew`. */
#include "base/args.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "base/process/threads.h"
#include "base/quarantine.h"
#include "base/random_bytes.h"
#include "store/server/connection.h"
#include "store/server/renewal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { MEMORY_SHARE = 8, MEMORY_MIN = 256 << 20, NEWCOMERS_SHARE = 8 };
enum { MAX_LISTENERS = 4, ACCEPT_AT_ONCE = 64, SPIN_NS = 50 * 1000, ACCEPT_AGAIN_MS = 100 };

typedef struct listener {
    uv_poll_t poll;
    int fd;
    struct tt_store_server *server;
} listener;

struct tt_store_server {
    uv_loop_t loop;
    bool loop_made;
    uv_async_t stop, renew;
    uv_sem_t renewed;
    uv_timer_t accept_again, admission_timer;
    listener listeners[MAX_LISTENERS];
    size_t listener_count;
    int port;
    pthread_t thread;
    tt__connections connections;
};

static void on_client(uv_poll_t *poll, int error, int events);

static void listen_again(uv_timer_t *timer) {
    tt_store_server *server = timer->data;
    for (size_t i = 0; i < server->listener_count; i++)
        uv_poll_start(&server->listeners[i].poll, UV_READABLE, on_client);
}

/* There is no descriptor or memory for one more connection: stop accepting for a moment, until others have ended. */
static void pause_listening(tt_store_server *server, const char *why) {
    tt__refusals_log(&server->connections.admission.refusals, "store", "could not accept a connection: %s", why);
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
        int fd = tt__fd(accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0 && (gone_already(errno) ||
                       ((errno == EMFILE || errno == ENFILE) && tt__connections_drop_oldest(&l->server->connections))))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                pause_listening(l->server, strerror(errno));
            return;
        }
        tt__net_no_delay(fd);
        if (!tt__connection_open(&l->server->connections, fd)) {
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
    tt__connections_close(&server->connections);
    uv_walk(&server->loop, close_handle, NULL);
    for (size_t i = 0; i < server->listener_count; i++)
        close(server->listeners[i].fd);
    server->listener_count = 0;
}

static void on_stop(uv_async_t *stop) { close_everything(stop->data); }

/* Close the connections that wait to be accepted. */
static void refuse_waiting(int listening) {
    int fd;
    while ((fd = tt__fd(accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >= 0 || gone_already(errno))
        if (fd >= 0)
            close(fd);
}

static void on_renew(uv_async_t *renew) {
    tt_store_server *server = renew->data;
    tt__connections_renew(&server->connections);
    for (size_t i = 0; i < server->listener_count; i++)
        refuse_waiting(server->listeners[i].fd);
    uv_sem_post(&server->renewed);
}

void tt__store_server_renew(tt_store_server *server) {
    uv_async_send(&server->renew);
    uv_sem_wait(&server->renewed);
}

/* Requests come in bursts, and waking a thread costs more than all the work of a request: so the thread stays awake for
 * a moment after each, and yields the CPU to others meanwhile. */
static void *server_thread(void *arg) {
    tt_store_server *server = arg;
    pthread_setname_np(pthread_self(), "tutti-store");
    bool alive = true;
    while (alive) {
        bool spin = tt__now_ns() - server->connections.served_ns < SPIN_NS;
        alive = uv_run(&server->loop, spin ? UV_RUN_NOWAIT : UV_RUN_ONCE);
        if (spin)
            sched_yield();
    }
    return NULL;
}

static tt_status fail_uv(int error, const char *what) {
    return tt__fail(error == UV_ENOMEM ? TT_ERR_MEMORY : TT_ERR_SYSTEM, "store server: %s: %s", what,
                    uv_strerror(error));
}

/* Take over the listening sockets; after an error the others are closed. */
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
    tt__fd_hold hold; /* libuv accepts a descriptor of any number, but aborts when it closes a standard stream */
    tt__fd_hold_streams(&hold);
    int error = uv_loop_init(&server->loop);
    server->loop_made = !error;
    if (!error)
        error = uv_async_init(&server->loop, &server->stop, on_stop);
    if (!error)
        error = uv_async_init(&server->loop, &server->renew, on_renew);
    tt__fd_release(&hold);
    if (error)
        return fail_uv(error, "making its event loop");
    uv_timer_init(&server->loop, &server->accept_again);
    uv_timer_init(&server->loop, &server->admission_timer);
    server->stop.data = server->renew.data = server->accept_again.data = server;
    server->admission_timer.data = &server->connections;
    return TT_OK;
}

/* Return a share of the machine's memory, or of what this process's cgroup allows. */
static size_t default_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t machine = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0, group = tt__cgroup_memory_left("");
    size_t share = (machine < group ? machine : group) / MEMORY_SHARE;
    return share > MEMORY_MIN ? share : MEMORY_MIN;
}

static tt_status start_server(tt_store_server *server, const tt_store_server_new_args *args) {
    int fds[MAX_LISTENERS];
    size_t n;
    size_t memory = args->max_memory ? args->max_memory : default_memory();
    server->connections.service.limit = memory;
    TT__TRY(tt__admission_init(&server->connections.admission, args->auth, args->secret, args->proof_timeout_ms,
                               memory / NEWCOMERS_SHARE));
    TT__TRY(make_loop(server));
    TT__TRY(tt__net_listen(args->host ? args->host : "127.0.0.1", args->port, fds, MAX_LISTENERS, &n, &server->port));
    TT__TRY(add_listeners(server, fds, n));
    TT__TRY(tt__random_bytes(server->connections.life, sizeof server->connections.life / 2));
    return tt__thread_create(&server->thread, server_thread, server, "the store's thread");
}

static void server_dispose(tt_store_server *server) {
    if (server->loop_made)
        uv_loop_close(&server->loop);
    tt__store_service_free(&server->connections.service);
    tt__admission_free(&server->connections.admission);
    uv_sem_destroy(&server->renewed);
    tt__quarantine(server, sizeof *server, free);
}

static tt_status check_server_args(const tt_store_server_new_args *args) {
    if (args->port < 0 || args->port > 65535)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: expected a port from 0 to 65535, got %d", args->port);
    if (args->auth < TT_STORE_AUTH_LOCAL || args->auth > TT_STORE_AUTH_NONE)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: expected one of tt_store_auth, got %d", (int)args->auth);
    if (args->max_memory && args->max_memory < TT_STORE_MIN_MEMORY)
        return tt__fail(TT_ERR_INVALID, "tt_store_server_new: expected a max_memory of at least %zu bytes, got %zu",
                        TT_STORE_MIN_MEMORY, args->max_memory);
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
    TT__TRY(check_server_args(&args));
    tt_store_server *server = calloc(1, sizeof *server);
    if (!server)
        return tt__fail(TT_ERR_MEMORY, "tt_store_server_new: out of memory");
    uv_sem_init(&server->renewed, 0);
    tt__connections_init(&server->connections, &server->loop, &server->admission_timer);
    server->connections.admission.asking = -1;
    tt_status status = start_server(server, &args);
    if (status) {
        if (server->loop_made) {
            close_everything(server);
            uv_run(&server->loop, UV_RUN_DEFAULT);
        }
        server_dispose(server);
        return status;
    }
    *args.out = server;
    return TT_OK;
}

int tt_store_server_port(const tt_store_server *server) { return server ? server->port : 0; }

void tt_store_server_free(tt_store_server *server) {
    if (!server || tt__freed_before("tt_store_server_free", server))
        return;
    uv_async_send(&server->stop);
    tt__thread_join(server->thread);
    server_dispose(server);
}
