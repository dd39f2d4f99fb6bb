/* Calls between workers that come and go: in this process, and to children that are killed or frozen. */
#include "support/patience.h"

#include <tutti/rpc.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEARTBEAT_MS = 2000, CALLERS = 20, LARGE = 5 << 20 };

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION(add, "(int a, int b) -> int");

/* Call another worker, by name, which calls add() of the caller. */
static tt_status add_there(tt_rpc_call *call) {
    tt_rpc_value sum;
    tt_status status =
        tt_rpc_sync(tt_rpc_of_call(call), tt_rpc_arg_text(call, 0), "add",
                    .args = TT_RPC_ARGS(tt_rpc_int(tt_rpc_arg_int(call, 1)), tt_rpc_int(1)), .result = &sum);
    return status ? status : tt_rpc_return(call, sum);
}
TT_RPC_FUNCTION(add_there, "(text worker, int a) -> int");

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value bytes;
    tt_status status = tt_rpc_take_arg(call, 0, &bytes);
    return status ? status : tt_rpc_return(call, bytes);
}
TT_RPC_FUNCTION(echo, "(bytes data) -> bytes");

static tt_status sleep_long(tt_rpc_call *call) {
    (void)call;
    sleep(1000);
    return TT_OK;
}
TT_RPC_FUNCTION(sleep_long, "()");

static tt_rref *held;

static tt_status hold(tt_rpc_call *call) {
    held = tt_rref_share(tt_rpc_arg_rref(call, 0));
    return TT_OK;
}
TT_RPC_FUNCTION(hold, "(rref value)");

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static tt_rpc *join_watchful(tt_store *store, const char *name, int heartbeat_ms) {
    tt_rpc *rpc = NULL;
    if (tt_rpc_init(&rpc, name, .store = store, .heartbeat_ms = heartbeat_ms, .threads = 2))
        fail_msg("%s: %s", name, tt_last_error());
    return rpc;
}

static tt_rpc *join(tt_store *store, const char *name) { return join_watchful(store, name, CALM_MS); }

static void leave(tt_rpc *rpc) {
    if (tt_rpc_shutdown(rpc))
        fail_msg("%s", tt_last_error());
}

static int64_t call_add(tt_rpc *rpc, const char *to, int64_t a, int64_t b) {
    tt_rpc_value sum;
    if (tt_rpc_sync(rpc, to, "add", .args = TT_RPC_ARGS(tt_rpc_int(a), tt_rpc_int(b)), .result = &sum))
        fail_msg("%s", tt_last_error());
    return sum.integer;
}

static void error_has(const char *part) {
    if (!strstr(tt_last_error(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, tt_last_error());
}

/* ---- in this process */

static void workers_call_each_other(void **state) {
    (void)state;
    tt_store *store;
    tt_rpc_value sum;
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    tt_rpc *a = join(store, "a"), *b = join(store, "b");
    assert_int_equal(call_add(a, "b", 2, 3), 5);
    assert_int_equal(call_add(b, "a", 4, 5), 9);
    assert_int_equal(
        tt_rpc_sync(a, "b", "add_there", .args = TT_RPC_ARGS(tt_rpc_text("a"), tt_rpc_int(7)), .result = &sum), TT_OK);
    assert_int_equal(sum.integer, 8);
    assert_int_equal(tt_rpc_sync(a, "nobody", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))),
                     TT_ERR_NOT_FOUND);
    error_has("there is no worker nobody in the store: it has not joined yet, or has left; a knows a, b");
    tt_rpc *c = join(store, "c"); /* and comes later */
    assert_int_equal(
        tt_rpc_sync(a, "b", "add_there", .args = TT_RPC_ARGS(tt_rpc_text("c"), tt_rpc_int(1)), .result = &sum), TT_OK);
    leave(a); /* the first */
    assert_int_equal(call_add(c, "b", 1, 1), 2);
    assert_int_not_equal(tt_rpc_sync(c, "a", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))), TT_OK);
    leave(b);
    a = join(store, "a"); /* again */
    assert_int_equal(call_add(c, "a", 1, 2), 3);
    leave(c);
    leave(a);
    tt_store_free(store);
}

static void large_values_arrive_whole(void **state) {
    (void)state;
    tt_store *store;
    tt_rpc_value back;
    unsigned char *data = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (unsigned char)(i * 7 + i / 1001);
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    tt_rpc *a = join(store, "a"), *b = join(store, "b");
    for (size_t bytes = 1; bytes <= LARGE; bytes *= 7) {
        if (tt_rpc_sync(a, "b", "echo", .args = TT_RPC_ARGS(tt_rpc_bytes(data, bytes)), .result = &back))
            fail_msg("%zu bytes: %s", bytes, tt_last_error());
        assert_int_equal(back.bytes.size, bytes);
        assert_memory_equal(back.bytes.data, data, bytes);
        tt_rpc_value_free(&back);
    }
    leave(b);
    leave(a);
    tt_store_free(store);
    free(data);
}

/* Each begins to call at the moment at which it has joined, and leaves at once. */
static void *come_call_and_go(void *arg) {
    tt_store *store = ((void **)arg)[0];
    char name[32];
    snprintf(name, sizeof name, "worker%d", (int)(intptr_t)((void **)arg)[1]);
    for (int i = 0; i < 3; i++) {
        tt_rpc *rpc = join(store, name);
        if (call_add(rpc, "server", i, 1) != i + 1)
            return "wrong";
        tt_rpc_value sum; /* the server calls back: by name */
        if (tt_rpc_sync(rpc, "server", "add_there", .args = TT_RPC_ARGS(tt_rpc_text(name), tt_rpc_int(i)),
                        .result = &sum)) {
            tt_report();
            return "no call back";
        }
        leave(rpc);
    }
    return NULL;
}

static void many_come_and_go_while_others_work(void **state) {
    (void)state;
    tt_store *store;
    pthread_t threads[CALLERS];
    void *args[CALLERS][2], *why;
    assert_int_equal(tt_hash_store(&store, PATIENCE_MS), TT_OK);
    tt_rpc *server = join(store, "server");
    for (int i = 0; i < CALLERS; i++) {
        args[i][0] = store;
        args[i][1] = (void *)(intptr_t)i;
        assert_int_equal(pthread_create(&threads[i], NULL, come_call_and_go, args[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], &why);
        if (why)
            fail_msg("%s", (const char *)why);
    }
    leave(server);
    tt_store_free(store);
}

/* ---- in children */

static int ports[2], joined[2];

static pid_t fork_server(void) {
    tt_store *store;
    int port;
    assert_int_equal(pipe(ports) | pipe(joined), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(ports[0], &port, sizeof port) != sizeof port || tt_tcp_store(&store, "127.0.0.1", port)) {
        tt_report();
        _exit(1);
    }
    join_watchful(store, "server", HEARTBEAT_MS);
    if (write(joined[1], &port, sizeof port) != sizeof port)
        _exit(1);
    for (;;)
        pause();
}

static void a_call_ends_when_its_worker_does(void **state) {
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        pid_t pid = fork_server();
        tt_store *store;
        tt_future *future;
        assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true), TT_OK);
        int port = tt_store_port(store);
        assert_int_equal(write(ports[1], &port, sizeof port), sizeof port);
        assert_int_equal(read(joined[0], &port, sizeof port), sizeof port);
        tt_rpc *rpc = join_watchful(store, "caller", HEARTBEAT_MS);
        assert_int_equal(call_add(rpc, "server", 1, 2), 3);
        assert_int_equal(tt_rpc_async(&future, rpc, "server", "sleep_long"), TT_OK);
        int64_t start_ms = now_ms();
        kill(pid, frozen ? SIGSTOP : SIGKILL);
        assert_int_equal(tt_future_wait(future, 0), TT_ERR_PEER);
        int64_t ms = now_ms() - start_ms;
        printf("%s: %lld ms: %s\n", frozen ? "frozen" : "killed", (long long)ms, tt_last_error());
        error_has("server");
        assert_true(ms < (frozen ? HEARTBEAT_MS : 1000) + leeway_ms());
        assert_int_equal(tt_rpc_sync(rpc, "server", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))),
                         TT_ERR_PEER);
        tt_future_free(future);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        tt_rpc *other = join(store, "server"); /* of the same name */
        assert_int_equal(call_add(rpc, "server", 5, 2), 7);
        leave(other);
        leave(rpc);
        tt_store_free(store);
    }
}

/* A worker is given a reference by a third one, and dies before its owner has ever spoken to it: its value ends. */
static void a_holder_that_nobody_knew_is_released(void **state) {
    (void)state;
    pid_t pid = fork_server();
    tt_store *store;
    tt_rref *sum;
    tt_rpc_counts counts;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true), TT_OK);
    int port = tt_store_port(store);
    assert_int_equal(write(ports[1], &port, sizeof port), sizeof port);
    assert_int_equal(read(joined[0], &port, sizeof port), sizeof port);
    tt_rpc *owner = join(store, "owner"), *giver = join(store, "giver");
    assert_int_equal(tt_rpc_remote(&sum, giver, "owner", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(2))),
                     TT_OK);
    assert_int_equal(tt_rpc_sync(giver, "server", "hold", .args = TT_RPC_ARGS(tt_rpc_rref(sum))), TT_OK);
    tt_rref_free(sum);
    assert_int_equal(call_add(giver, "owner", 1, 2), 3); /* it has come after what the giver told */
    assert_int_equal(tt_rpc_get_counts(owner, &counts), TT_OK);
    assert_int_equal(counts.owned, 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    int64_t start_ms = now_ms();
    do
        assert_int_equal(tt_rpc_get_counts(owner, &counts), TT_OK);
    while (counts.owned && now_ms() - start_ms < PATIENCE_MS);
    assert_int_equal(counts.owned, 0);
    leave(giver);
    leave(owner);
    tt_store_free(store);
}

/* A child that has one function more joins, and exits with what came of it: 0, 1 the right error, 2 another. */
static pid_t fork_other_program(int port_from) {
    tt_store *store;
    tt_rpc *rpc;
    int port;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(port_from, &port, sizeof port) != sizeof port || tt_tcp_store(&store, "127.0.0.1", port) ||
        tt_rpc_register("extra", "() -> int", add))
        _exit(3);
    tt_status status = tt_rpc_init(&rpc, "other", .store = store, .heartbeat_ms = CALM_MS);
    bool right = status == TT_ERR_MISMATCH && strstr(tt_last_error(), "extra") && strstr(tt_last_error(), "caller");
    if (status)
        tt_report();
    _exit(!status ? 0 : right ? 1 : 2);
}

/* Functions of those that are there count, and not of one that has left. */
static void functions_are_compared_with_who_is_there(void **state) {
    (void)state;
    int to[2][2], code, port;
    pid_t children[2];
    tt_store *store;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(to[i]), 0);
        children[i] = fork_other_program(to[i][0]);
    }
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true), TT_OK);
    port = tt_store_port(store);
    tt_rpc *rpc = join(store, "caller");
    assert_int_equal(write(to[0][1], &port, sizeof port), sizeof port);
    waitpid(children[0], &code, 0);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 1);
    leave(rpc);
    assert_int_equal(write(to[1][1], &port, sizeof port), sizeof port);
    waitpid(children[1], &code, 0);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    tt_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_compared_with_who_is_there),
        cmocka_unit_test(a_call_ends_when_its_worker_does),
        cmocka_unit_test(a_holder_that_nobody_knew_is_released),
        cmocka_unit_test(workers_call_each_other),
        cmocka_unit_test(large_values_arrive_whole),
        cmocka_unit_test(many_come_and_go_while_others_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
