/* Workers that come and go: they meet through a store, reach each other when they first need to, and learn what became
 * of each other. Networks in one process, and in children that are killed, frozen, or short of descriptors. */
#include "support/patience.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "rpc/workers/store_cards.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEARTBEAT_MS = 2000, TIES = 150, MANY = 100, LARGE = 3 << 20 };

static const char SECRET[] = "0123456789abcdef0123456789abcdef";

static void *no_room(void *user, int peer, size_t bytes) {
    (void)user;
    (void)peer;
    (void)bytes;
    return NULL;
}

static tt_status join_with(tt__rpc_network **out, const tt_rpc_init_args *args) {
    static const tt__packet_taker taker = {.room = no_room};
    TT__TRY(tt__rpc_network_of_store(out, args));
    pthread_mutex_lock((*out)->lock);
    tt__messages_take_packets((*out)->messages, &taker, NULL);
    pthread_mutex_unlock((*out)->lock);
    return TT_OK;
}

static tt__rpc_network *join(tt_store *store, const char *name) {
    tt__rpc_network *network;
    if (join_with(&network, &(tt_rpc_init_args){.name = name, .store = store, .heartbeat_ms = CALM_MS}))
        fail_msg("%s: %s", name, tt_last_error());
    return network;
}

static void leave(tt__rpc_network *network) { network->ops->close(network, false); }

/* Reach a worker, or find that it can't be: the error is recorded. */
static tt__rpc_reach reach(tt__rpc_network *network, int id) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    tt__rpc_reach result;
    pthread_mutex_lock(network->lock);
    while ((result = network->ops->reach(network, id)) == TT__RPC_CONNECTING && tt__left_ms(deadline_ms))
        network->ops->sleep(network, 100);
    tt__messages_leave(network->messages);
    pthread_mutex_unlock(network->lock);
    return result;
}

static void reaches(tt__rpc_network *network, int id) {
    if (reach(network, id) != TT__RPC_REACHED)
        fail_msg("worker %d does not reach %d: %s", network->self, id, tt_last_error());
}

static int find(tt__rpc_network *network, const char *name) {
    int id = -1;
    pthread_mutex_lock(network->lock);
    tt_status status = network->ops->find(network, name, &id);
    pthread_mutex_unlock(network->lock);
    return status ? -1 : id;
}

static const char *name_of(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]) {
    pthread_mutex_lock(network->lock);
    tt_status status = network->ops->name_of(network, id, name);
    pthread_mutex_unlock(network->lock);
    return status ? "" : name;
}

static tt_status check(tt__rpc_network *network, int id) {
    pthread_mutex_lock(network->lock);
    tt_status status = network->ops->check(network, id);
    pthread_mutex_unlock(network->lock);
    return status;
}

/* Wait until a worker is judged to be lost. Returns after how many ms. */
static int64_t lost_after(tt__rpc_network *network, int id) {
    int64_t start_ms = tt__now_ms(), deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (!check(network, id)) {
        assert_true(tt__left_ms(deadline_ms));
        pthread_mutex_lock(network->lock);
        network->ops->sleep(network, 20);
        pthread_mutex_unlock(network->lock);
    }
    return tt__now_ms() - start_ms;
}

static void error_has(const char *part) {
    if (!strstr(tt_last_error(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, tt_last_error());
}

static void wait_for(tt__rpc_network *network, const tt__message *message) {
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    pthread_mutex_lock(network->lock);
    while (!message->done) {
        network->ops->sleep(network, 100);
        assert_true(tt__left_ms(deadline_ms));
    }
    pthread_mutex_unlock(network->lock);
    assert_int_equal(message->status, TT_OK);
}

/* A message from `a` to `b`, which are joined. */
static void pass(tt__rpc_network *a, tt__rpc_network *b, size_t bytes) {
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(i * 3 + i / 1000);
    tt__message s = {.key = {.group = 1, .step = 4}, .peer = b->self, .data = out, .bytes = bytes}, r = s;
    r.peer = a->self;
    r.data = in;
    pthread_mutex_lock(a->lock);
    tt__message_send(a->messages, &s);
    tt__messages_leave(a->messages);
    pthread_mutex_unlock(a->lock);
    pthread_mutex_lock(b->lock);
    tt__message_recv(b->messages, &r);
    tt__messages_leave(b->messages);
    pthread_mutex_unlock(b->lock);
    wait_for(b, &r);
    wait_for(a, &s);
    assert_memory_equal(out, in, bytes);
    free(in);
    free(out);
}

static tt_store *hash_store(void) {
    tt_store *store;
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    return store;
}

/* ---- in one process */

static void workers_reach_each_other(void **state) {
    (void)state;
    tt_store *store = hash_store();
    tt__rpc_network *a = join(store, "a"), *b = join(store, "b"), *c = join(store, "c");
    char name[TT__RPC_NAME_SIZE];
    assert_int_equal(a->self, 0);
    assert_int_equal(c->self, 2);
    assert_int_equal(find(a, "c"), 2);
    assert_int_equal(find(a, "a"), 0);
    assert_int_equal(find(a, "d"), -1);
    assert_int_equal(a->ops->next(a, -1), 0);
    assert_int_equal(a->ops->next(a, 0), 2);
    assert_int_equal(a->ops->next(a, 2), -1);
    reaches(a, 2);
    reaches(c, 0); /* by the same link */
    reaches(c, 1); /* by an id of which nothing is known yet */
    pass(a, c, 100);
    pass(c, a, LARGE);
    pass(b, c, 5000);
    assert_string_equal(name_of(b, 2, name), "c");
    assert_string_equal(name_of(b, 0, name), "a"); /* which it was never linked to */
    assert_string_equal(name_of(b, 77, name), "");
    assert_int_equal(a->messages->tcp_links, 1);
    assert_int_equal(c->messages->tcp_links, 2);
    assert_int_equal(reach(a, 77), TT__RPC_UNREACHABLE);
    error_has("there is no worker with id 77");
    assert_int_equal(reach(a, -5), TT__RPC_UNREACHABLE);
    leave(a);
    leave(b);
    leave(c);
    int64_t keys; /* nobody is left */
    assert_int_equal(tt_store_num_keys(store, &keys), TT_OK);
    assert_int_equal(keys, 3); /* the counter, and the functions */
    tt_store_free(store);
}

static void who_has_left_is_named(void **state) {
    (void)state;
    tt_store *store = hash_store();
    tt__rpc_network *a = join(store, "a"), *b = join(store, "b"), *c = join(store, "c");
    reaches(a, 1);
    leave(b);
    assert_true(lost_after(a, 1) < 1000 + leeway_ms());
    error_has("worker b (id 1, host ");
    error_has(") has left");
    assert_int_equal(reach(a, 1), TT__RPC_UNREACHABLE);
    error_has("has left");
    assert_int_equal(a->ops->next(a, 0), -1);
    assert_int_equal(find(a, "b"), -1);
    b = join(store, "b"); /* another, of the same name */
    assert_int_equal(b->self, 3);
    assert_int_equal(find(a, "b"), 3);
    assert_int_equal(find(c, "b"), 3);
    reaches(a, 3);
    reaches(b, 2);
    pass(a, b, 100);
    leave(a); /* the first may leave, too */
    assert_int_equal(reach(c, 0), TT__RPC_UNREACHABLE);
    pass(c, b, 100);
    leave(b);
    leave(c);
    tt_store_free(store);
}

typedef struct caller {
    tt__rpc_network *network;
    int to;
    pthread_barrier_t *start;
    tt__rpc_reach result;
} caller;

static void *call_at_once(void *arg) {
    caller *self = arg;
    pthread_barrier_wait(self->start);
    self->result = reach(self->network, self->to);
    if (self->result != TT__RPC_REACHED)
        fprintf(stderr, "%d: %s\n", self->network->self, tt_last_error());
    return NULL;
}

/* Both need each other at the same moment. */
static void a_tie_makes_one_link(void **state) {
    (void)state;
    const char *given = getenv("TT_RPC_TIES");
    int ties = given ? atoi(given) : TIES;
    tt_store *store = hash_store();
    setenv("TT_SECRET", SECRET, 1);
    for (int i = 0; i < ties; i++) {
        tt__rpc_network *n[2] = {join(store, "a"), join(store, "b")};
        pthread_barrier_t start;
        pthread_t threads[2];
        caller callers[2];
        pthread_barrier_init(&start, NULL, 2);
        assert_int_equal(find(n[0], "b"), n[1]->self);
        assert_int_equal(find(n[1], "a"), n[0]->self);
        for (int k = 0; k < 2; k++) {
            callers[k] = (caller){.network = n[k], .to = n[1 - k]->self, .start = &start};
            pthread_create(&threads[k], NULL, call_at_once, &callers[k]);
        }
        for (int k = 0; k < 2; k++)
            pthread_join(threads[k], NULL);
        for (int k = 0; k < 2; k++)
            assert_int_equal(callers[k].result, TT__RPC_REACHED);
        pass(n[0], n[1], 100);
        pass(n[1], n[0], 100000);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(n[k]->messages->tcp_links, 1);
            assert_int_equal(check(n[k], n[1 - k]->self), TT_OK);
        }
        pthread_barrier_destroy(&start);
        leave(n[i % 2]);
        leave(n[1 - i % 2]);
    }
    unsetenv("TT_SECRET");
    tt_store_free(store);
}

static void names_and_ids_are_ones_own(void **state) {
    (void)state;
    tt_store *store = hash_store();
    tt__rpc_network *a = join(store, "a"), *other;
    tt_rpc_init_args args = {.name = "a", .store = store};
    assert_int_equal(join_with(&other, &args), TT_ERR_EXISTS);
    error_has("two workers are named a: one with id 0 on host ");
    args = (tt_rpc_init_args){.name = "b", .store = store, .has_id = true};
    assert_int_equal(join_with(&other, &args), TT_ERR_MISMATCH);
    error_has("worker b can't have the id 0: worker a (host ");
    args.id = 2;
    assert_int_equal(join_with(&other, &args), TT_OK);
    assert_int_equal(other->self, 2);
    tt__rpc_network *c = join(store, "c");
    assert_int_equal(c->self, 3); /* 1 was given to the second a */
    reaches(a, 2);
    leave(other);
    args.name = "d";
    assert_int_equal(join_with(&other, &args), TT_ERR_MISMATCH);
    error_has("worker b had it, and has left");
    args.id = TT__RPC_STORE_IDS;
    assert_int_equal(join_with(&other, &args), TT_ERR_INVALID);
    args = (tt_rpc_init_args){.name = "no name", .store = store};
    assert_int_equal(join_with(&other, &args), TT_ERR_INVALID);
    leave(a);
    leave(c);
    tt_store_free(store);
}

static void another_secret_is_refused(void **state) {
    (void)state;
    tt_store *store = hash_store();
    setenv("TT_SECRET", SECRET, 1);
    tt__rpc_network *a = join(store, "a"), *good = join(store, "good");
    setenv("TT_SECRET", "another secret of another job", 1);
    tt__rpc_network *b = join(store, "b");
    unsetenv("TT_SECRET");
    tt__rpc_network *none = join(store, "none");
    assert_int_equal(reach(b, 0), TT__RPC_UNREACHABLE);
    assert_int_equal(tt_last_status(), TT_ERR_AUTH);
    error_has("worker b (id 2) can't reach worker a (id 0, host ");
    assert_int_equal(reach(none, 0), TT__RPC_UNREACHABLE);
    assert_int_equal(tt_last_status(), TT_ERR_AUTH);
    assert_int_equal(reach(a, 2), TT__RPC_UNREACHABLE);
    assert_int_equal(tt_last_status(), TT_ERR_AUTH);
    reaches(a, good->self);
    pass(a, good, LARGE);
    assert_int_equal(a->messages->tcp_links, 1);
    leave(none);
    leave(b);
    leave(good);
    leave(a);
    tt_store_free(store);
}

static int call(const tt__rpc_network *network) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(network->messages->addresses))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* More of them than are let in, some of which say something wrong. */
static void strangers_keep_nobody_out(void **state) {
    (void)state;
    enum { STRANGERS = 600 };
    int fds[STRANGERS];
    tt_store *store = hash_store();
    tt__rpc_network *a = join(store, "a"), *b = join(store, "b");
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = call(a);
        if (i % 3 == 1)
            assert_true(send(fds[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) > 0);
        if (i % 3 == 2)
            assert_true(send(fds[i], "\xF5\1\1\0\2", 5, MSG_NOSIGNAL) > 0);
    }
    reaches(b, 0);
    pass(a, b, LARGE);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    leave(a);
    leave(b);
    tt_store_free(store);
}

/* Many workers of one server: they find it, call it, and leave. */
static void many_workers_have_one_server(void **state) {
    (void)state;
    static tt__rpc_network *workers[MANY];
    tt_store *store = hash_store();
    tt__rpc_network *server = join(store, "server");
    char name[TT__RPC_NAME_SIZE];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "worker%d", i);
        workers[i] = join(store, name);
        assert_int_equal(find(workers[i], "server"), 0);
        reaches(workers[i], 0);
    }
    for (int i = 0; i < MANY; i++)
        pass(workers[i], server, 100);
    assert_int_equal(server->messages->tcp_links, MANY);
    for (int i = 0; i < MANY; i++)
        leave(workers[i]);
    for (int i = 0; i < MANY; i++)
        lost_after(server, workers[i] ? i + 1 : 0);
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    pthread_mutex_lock(server->lock);
    while (server->messages->active && tt__left_ms(deadline_ms)) /* their links are freed */
        server->ops->sleep(server, 50);
    assert_null(server->messages->active);
    pthread_mutex_unlock(server->lock);
    leave(server);
    tt_store_free(store);
}

/* ---- in children */

typedef struct child {
    pid_t pid;
    int id;
    int port_to[2], id_from[2];
} child;

/* What a child does once it has joined. */
typedef void (*child_fn)(tt_store *store, tt__rpc_network *network);

static void serve_for_ever(tt_store *store, tt__rpc_network *network) {
    (void)store;
    (void)network;
    for (;;)
        pause();
}

static void run_child(const child *self, const char *name, child_fn run) {
    tt_store *store;
    tt__rpc_network *network;
    int port;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(self->port_to[0], &port, sizeof port) != sizeof port ||
        tt_tcp_store(&store, "127.0.0.1", port, .timeout_ms = PATIENCE_MS) ||
        join_with(&network, &(tt_rpc_init_args){.name = name, .store = store, .heartbeat_ms = HEARTBEAT_MS})) {
        tt_report();
        _exit(1);
    }
    if (write(self->id_from[1], &network->self, sizeof(int)) != sizeof(int))
        _exit(2);
    run(store, network);
    _exit(0);
}

/* Before this process has threads. */
static child fork_child(const char *name, child_fn run) {
    child self = {.id = -1};
    assert_int_equal(pipe(self.port_to), 0);
    assert_int_equal(pipe(self.id_from), 0);
    self.pid = fork();
    assert_true(self.pid >= 0);
    if (!self.pid)
        run_child(&self, name, run);
    return self;
}

static void child_joins(child *self, int port) {
    assert_int_equal(write(self->port_to[1], &port, sizeof port), sizeof port);
    assert_int_equal(read(self->id_from[0], &self->id, sizeof self->id), sizeof self->id);
}

static void end_child(child *self) {
    kill(self->pid, SIGKILL);
    waitpid(self->pid, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(self->port_to[i]);
        close(self->id_from[i]);
    }
}

static tt_store *serve_store(int *port) {
    tt_store *store;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true, .timeout_ms = PATIENCE_MS), TT_OK);
    *port = tt_store_port(store);
    return store;
}

static tt__rpc_network *join_watchful(tt_store *store, const char *name) {
    tt__rpc_network *network;
    if (join_with(&network, &(tt_rpc_init_args){.name = name, .store = store, .heartbeat_ms = HEARTBEAT_MS}))
        fail_msg("%s: %s", name, tt_last_error());
    return network;
}

static void who_is_killed_is_named_and_followed(void **state) {
    (void)state;
    child b = fork_child("b", serve_for_ever), c = fork_child("c", serve_for_ever);
    int port;
    tt_store *store = serve_store(&port);
    tt__rpc_network *a = join_watchful(store, "a"), *next;
    child_joins(&b, port);
    child_joins(&c, port);
    reaches(a, b.id);
    kill(b.pid, SIGKILL);
    int64_t ms = lost_after(a, b.id);
    error_has("worker b (id 1, host ");
    error_has("is gone; its connection to worker a (id 0) ended");
    assert_true(ms < 1000 + leeway_ms());
    kill(c.pid, SIGKILL); /* which was never reached */
    waitpid(c.pid, NULL, 0);
    assert_int_equal(find(a, "c"), c.id);
    assert_int_equal(reach(a, c.id), TT__RPC_UNREACHABLE);
    assert_int_equal(tt_last_status(), TT_ERR_PEER);
    error_has("worker c (id 2, host ");
    error_has(" is gone: it listens no more at its addresses");
    int64_t start_ms = tt__now_ms();
    next = join_watchful(store, "c"); /* takes the name */
    printf("killed: named after %lld ms; its name is taken again in %lld ms\n", (long long)ms,
           (long long)(tt__now_ms() - start_ms));
    assert_int_equal(find(a, "c"), next->self);
    reaches(a, next->self);
    leave(next);
    leave(a);
    end_child(&b);
    end_child(&c);
    tt_store_free(store);
}

static void who_is_frozen_is_named(void **state) {
    (void)state;
    child b = fork_child("b", serve_for_ever), c = fork_child("c", serve_for_ever);
    int port;
    tt_store *store = serve_store(&port);
    tt__rpc_network *a = join_watchful(store, "a");
    child_joins(&b, port);
    child_joins(&c, port);
    reaches(a, b.id);
    kill(b.pid, SIGSTOP);
    kill(c.pid, SIGSTOP);
    int64_t ms = lost_after(a, b.id);
    error_has("worker b (id 1, host ");
    error_has("has been silent for");
    assert_true(ms < HEARTBEAT_MS + leeway_ms());
    int64_t start_ms = tt__now_ms();
    assert_int_equal(reach(a, c.id), TT__RPC_UNREACHABLE); /* as it begins to be reached */
    assert_int_equal(tt_last_status(), TT_ERR_PEER);
    error_has("worker c (id 2, host ");
    error_has("did not answer worker a (id 0) for");
    assert_true(tt__now_ms() - start_ms < HEARTBEAT_MS + leeway_ms());
    printf("frozen: named after %lld ms, and %lld ms when dialled\n", (long long)ms,
           (long long)(tt__now_ms() - start_ms));
    kill(b.pid, SIGCONT); /* it stays lost */
    assert_int_equal(reach(a, b.id), TT__RPC_UNREACHABLE);
    error_has("has been silent for");
    kill(c.pid, SIGCONT);
    poll(NULL, 0, 1100); /* the failure is told for a second */
    reaches(a, c.id);
    leave(a);
    end_child(&b);
    end_child(&c);
    tt_store_free(store);
}

static void few_descriptors(tt_store *store, tt__rpc_network *network) {
    (void)store;
    (void)network;
    int next = dup(0); /* a test's parent may leave it some */
    close(next);
    struct rlimit limit = {.rlim_cur = (rlim_t)next + 7, .rlim_max = (rlim_t)next + 7};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (;;)
        pause();
}

/* A server has descriptors for some workers only: these are served, the others are told. */
static void who_finds_no_descriptor_is_told(void **state) {
    (void)state;
    enum { CALLERS = 12 };
    tt__rpc_network *callers[CALLERS];
    child server = fork_child("server", few_descriptors);
    int port, reached = 0;
    tt_store *store = serve_store(&port);
    char name[TT__RPC_NAME_SIZE];
    child_joins(&server, port);
    for (int i = 0; i < CALLERS; i++) {
        snprintf(name, sizeof name, "caller%d", i);
        callers[i] = join_watchful(store, name);
        tt__rpc_reach result = reach(callers[i], server.id);
        reached += result == TT__RPC_REACHED;
        if (result != TT__RPC_REACHED)
            error_has("no descriptor left");
    }
    assert_in_range(reached, 1, CALLERS - 1);
    for (int i = 0; i < reached; i++)
        assert_int_equal(check(callers[i], server.id), TT_OK);
    leave(callers[0]); /* its place is another's */
    int64_t deadline_ms = tt__deadline_ms(PATIENCE_MS);
    while (reach(callers[CALLERS - 1], server.id) != TT__RPC_REACHED && tt__left_ms(deadline_ms))
        poll(NULL, 0, 100);
    assert_int_equal(reach(callers[CALLERS - 1], server.id), TT__RPC_REACHED);
    for (int i = 1; i < CALLERS; i++)
        leave(callers[i]);
    end_child(&server);
    tt_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_killed_is_named_and_followed),
        cmocka_unit_test(who_is_frozen_is_named),
        cmocka_unit_test(who_finds_no_descriptor_is_told),
        cmocka_unit_test(workers_reach_each_other),
        cmocka_unit_test(who_has_left_is_named),
        cmocka_unit_test(a_tie_makes_one_link),
        cmocka_unit_test(names_and_ids_are_ones_own),
        cmocka_unit_test(another_secret_is_refused),
        cmocka_unit_test(strangers_keep_nobody_out),
        cmocka_unit_test(many_workers_have_one_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
