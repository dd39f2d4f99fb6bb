/* The store in etcd where servers die and answers get lost. What every store does is test_store.c. */
#include "support/etcd_fixture.h"

#include "base/machine/clock.h"
#include "store/etcd/etcd_client.h"
#include "store/etcd/etcd_lease.h"
#include "store/etcd/json_scan.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <tutti/comm.h>

enum { USERS = 8, SHORT_MS = 1000 };

static void holds(tt_store *store, const char *key, const char *expected) {
    tt_store_value value;
    good(tt_store_get(store, key, &value));
    assert_string_equal(value.data, expected);
    tt_store_value_free(&value);
}

static int adds_of_a_user(void) {
    const char *given = getenv("TT_ETCD_ADDS");
    return given ? atoi(given) : getenv("TT_SANITIZED") ? 20 : 60;
}

/* ---- threads that count */

typedef struct user {
    const char *endpoints;
    int adds;
    _Atomic int done;
    _Atomic tt_status status;
    char text[512];
    pthread_t thread;
} user;

static void *count(void *arg) {
    user *u = arg;
    tt_store *store = NULL;
    u->status = tt_etcd_store(&store, u->endpoints, .prefix = "jobs/17", .timeout_ms = PATIENCE_MS);
    for (; u->done < u->adds && !u->status; u->done++)
        u->status = tt_store_add(store, "count", 1, NULL);
    if (u->status)
        snprintf(u->text, sizeof u->text, "%s", tt_last_error());
    tt_store_free(store);
    return NULL;
}

static void start_user(user *u, const char *endpoints, int adds) {
    *u = (user){.endpoints = endpoints, .adds = adds};
    assert_int_equal(pthread_create(&u->thread, NULL, count, u), 0);
}

static void join_user(user *u) {
    pthread_join(u->thread, NULL);
    if (u->status)
        fail_msg("%s", u->text);
}

static void wait_for_adds(user *u, int n) {
    while (u->done < n && !u->status)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void counted(int64_t expected) {
    tt_store *store = open_store();
    int64_t sum = 0;
    good(tt_store_add(store, "count", 0, &sum));
    assert_int_equal(sum, expected);
    tt_store_free(store);
}

static void users_count_together(void **state) {
    (void)state;
    user users[USERS];
    for (int i = 0; i < USERS; i++)
        start_user(&users[i], cluster.endpoints, adds_of_a_user());
    for (int i = 0; i < USERS; i++)
        join_user(&users[i]);
    counted((int64_t)USERS * adds_of_a_user());
}

/* Killed and restarted with what it knew; every write counts once, and no call fails. */
static void a_restarted_server_is_found_again(void **state) {
    (void)state;
    user users[2];
    const int adds = 60;
    for (int i = 0; i < 2; i++)
        start_user(&users[i], cluster.endpoints, adds);
    for (int round = 1; round <= 2; round++) {
        wait_for_adds(&users[0], round * 20);
        etcd_kill(&cluster, 0);
        etcd_run(&cluster, 0);
    }
    for (int i = 0; i < 2; i++)
        join_user(&users[i]);
    counted(2 * adds);
}

static void a_dead_server_ends_in_a_timeout(void **state) {
    (void)state;
    tt_store *store = open_store();
    set(store, "k", "v");
    etcd_kill(&cluster, 0);
    tt_store_set_timeout_ms(store, SHORT_MS);
    int64_t begun = tt__now_ms();
    tt_store_value value;
    fails(tt_store_get(store, "k", &value), TT_ERR_TIMEOUT, cluster.one[0]);
    assert_non_null(strstr(tt_last_error(), "get \"k\""));
    assert_true(tt__now_ms() - begun >= SHORT_MS - 1 && tt__now_ms() - begun < PATIENCE_MS);
    etcd_run(&cluster, 0);
    tt_store_set_timeout_ms(store, PATIENCE_MS);
    holds(store, "k", "v"); /* the same store */
    tt_store_free(store);
}

/* ---- those who wait */

typedef struct waiter {
    tt_store *store;
    int kind;
    tt_status status;
    char text[512];
    pthread_t thread;
} waiter;

static void *wait_for_keys(void *arg) {
    waiter *w = arg;
    const char *keys[] = {"zebra", "ape", "zebra"};
    tt_store_value values[3] = {{0}};
    if (w->kind == 0)
        w->status = tt_store_get(w->store, "ape", values);
    else if (w->kind == 1)
        w->status = tt_store_wait(w->store, keys, 3, 0);
    else if (w->kind == 2)
        w->status = tt_store_multi_get(w->store, keys, 3, values);
    else
        w->status = tt_store_barrier(w->store, "barrier", 2, 0);
    if (w->status)
        snprintf(w->text, sizeof w->text, "%s", tt_last_error());
    else if (w->kind == 2 &&
             (strcmp(values[0].data, "z") || strcmp(values[1].data, "a") || strcmp(values[2].data, "z")))
        w->status = TT_ERR_MISMATCH;
    for (int i = 0; i < 3; i++)
        tt_store_value_free(&values[i]);
    return NULL;
}

static void start_waiters(waiter *waiters) {
    for (int k = 0; k < 4; k++) {
        waiters[k] = (waiter){.store = open_store(), .kind = k};
        assert_int_equal(pthread_create(&waiters[k].thread, NULL, wait_for_keys, &waiters[k]), 0);
    }
}

static void wake_waiters(tt_store *store, waiter *waiters) {
    set(store, "zebra", "z");
    set(store, "bat", "in between");
    set(store, "ape", "a");
    good(tt_store_barrier(store, "barrier", 2, 0));
    for (int k = 0; k < 4; k++) {
        pthread_join(waiters[k].thread, NULL);
        if (waiters[k].status)
            fail_msg("%d: %s, %s", k, tt_status_name(waiters[k].status), waiters[k].text);
        tt_store_free(waiters[k].store);
    }
}

static void wait_until_counted(tt_store *store) { /* the one at the barrier; the others come at about that time */
    holds(store, "barrier", "1");
}

static void waiters_are_woken(void **state) {
    (void)state;
    waiter waiters[4];
    tt_store *store = open_store();
    start_waiters(waiters);
    wait_until_counted(store);
    wake_waiters(store, waiters);
    tt_store_free(store);
}

/* The watches end with their server, and go on with the next one. */
static void waiters_outlive_their_server(void **state) {
    (void)state;
    waiter waiters[4];
    tt_store *store = open_store();
    start_waiters(waiters);
    wait_until_counted(store);
    etcd_kill(&cluster, 0); /* where all are, as the first of the list */
    wake_waiters(store, waiters);
    tt_store_free(store);
}

/* Whoever leads: each member dies once. */
static void a_cluster_outlives_each_of_its_members(void **state) {
    (void)state;
    user users[3];
    const int adds = 60;
    for (int i = 0; i < 3; i++)
        start_user(&users[i], cluster.endpoints, adds);
    for (int i = 0; i < ETCD_MEMBERS; i++) {
        wait_for_adds(&users[0], (i + 1) * 12);
        etcd_kill(&cluster, i);
        wait_for_adds(&users[0], (i + 1) * 12 + 3); /* with two of three */
        etcd_run(&cluster, i);
    }
    for (int i = 0; i < 3; i++)
        join_user(&users[i]);
    counted(3 * adds);
}

/* Stopped, so that its connections stay open and nothing comes: the next member is asked after a while, by calls and
 * instead of the watch. */
static void a_frozen_member_is_left(void **state) {
    (void)state;
    waiter waiters[4];
    tt_store *store = open_store();
    start_waiters(waiters);
    wait_until_counted(store);
    kill(cluster.pids[0], SIGSTOP);
    wake_waiters(store, waiters);
    kill(cluster.pids[0], SIGCONT);
    tt_store_free(store);
}

/* ---- lost answers */

/* Stands before a server, and of every few answers lets one get lost, with its connection, or waits until the client
 * has asked again elsewhere: what was asked has happened then. */
typedef struct lossy {
    int listener, to, port;
    _Atomic bool ends;
    _Atomic int answers, lost;
    pthread_t thread;
} lossy;

static int connect_to(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static bool pass_on(int from, int to) {
    char bytes[65536];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t done = 0; done < n;) {
        ssize_t sent = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        done += sent;
    }
    return n > 0;
}

/* One connection at a time: this test's client has no more. */
static void *lose_answers(void *arg) {
    lossy *l = arg;
    while (!l->ends) {
        struct pollfd listening = {l->listener, POLLIN, 0};
        if (poll(&listening, 1, 20) <= 0)
            continue;
        int client = accept(l->listener, NULL, NULL), server = connect_to(l->to);
        for (bool open = true; open && !l->ends;) {
            struct pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
            if (poll(both, 2, 20) <= 0)
                continue;
            if (both[1].revents && l->answers++ % 3 == 2) {
                l->lost++;
                open = false;
            } else if (both[1].revents) {
                open = pass_on(server, client);
            } else {
                open = pass_on(client, server);
            }
        }
        close(client);
        close(server);
    }
    return NULL;
}

static void start_losing(lossy *l, int to) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *l = (lossy){.to = to, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(l->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(l->listener, 8), 0);
    assert_int_equal(getsockname(l->listener, (struct sockaddr *)&address, &size), 0);
    l->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&l->thread, NULL, lose_answers, l), 0);
}

static void writes_happen_once_though_answers_get_lost(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    lossy l;
    char endpoint[32], expected[ROUNDS + 1];
    int64_t number = 0;
    start_losing(&l, cluster.ports[0]);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", l.port);
    tt_store *store = open_at(endpoint);
    for (int i = 0; i < ROUNDS; i++) {
        bool deleted = false;
        tt_store_value value = {0};
        char now[8], next[8];
        snprintf(now, sizeof now, "%d", i);
        snprintf(next, sizeof next, "%d", i + 1);
        good(tt_store_add(store, "count", 1, &number));
        assert_int_equal(number, i + 1);
        good(tt_store_append(store, "text", "x", 1));
        good(tt_store_compare_set(store, "swap", i ? now : "", i ? strlen(now) : 0, next, strlen(next), &value));
        assert_string_equal(value.data, next);
        tt_store_value_free(&value);
        set(store, "gone", now);
        good(tt_store_delete_key(store, "gone", &deleted));
        assert_true(deleted);
    }
    tt_store_free(store);
    l.ends = true;
    pthread_join(l.thread, NULL);
    close(l.listener);
    assert_true(l.lost >= ROUNDS);
    store = open_store();
    memset(expected, 'x', ROUNDS);
    expected[ROUNDS] = '\0';
    holds(store, "text", expected);
    holds(store, "count", "20");
    tt_store_free(store);
}

/* ---- limits, prefixes, what stays */

static void large_values_are_refused_here(void **state) {
    (void)state;
    tt_store *store = open_store();
    const size_t size = ((size_t)1 << 20) + 1;
    char *data = calloc(1, size);
    const char *keys[] = {"small", "large"};
    const void *values[] = {"s", data};
    fails(tt_store_set(store, "large", data, size), TT_ERR_INVALID, "1048577 bytes; at most 1048576");
    assert_non_null(strstr(tt_last_error(), "1.5 MiB"));
    fails(tt_store_multi_set(store, keys, values, (size_t[]){1, size}, 2), TT_ERR_INVALID, "1048577");
    assert_false(has(store, "small"));
    good(tt_store_append(store, "grows", data, size - 1));
    fails(tt_store_append(store, "grows", data, 1), TT_ERR_INVALID, "1048577");
    fails(tt_store_compare_set(store, "c", NULL, 0, data, size, NULL), TT_ERR_INVALID, "1048577");
    assert_false(has(store, "large"));
    free(data);
    tt_store_free(store);
}

/* More than a transaction has room for, by number and by size; read back in several, too. */
static void many_keys_go_in_several_requests(void **state) {
    (void)state;
    enum { MANY = 1300, BIG = 5 };
    tt_store *store = open_store();
    static char names[MANY][16];
    const char *keys[MANY];
    const void *values[MANY];
    size_t sizes[MANY];
    tt_store_value *got = calloc(MANY, sizeof *got);
    const size_t big = 700000;
    char *data = malloc(big);
    memset(data, 'b', big);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "many/%d", i);
        keys[i] = names[i];
        values[i] = i < BIG ? data : names[i];
        sizes[i] = i < BIG ? big : strlen(names[i]);
    }
    good(tt_store_multi_set(store, keys, values, sizes, MANY));
    good(tt_store_multi_get(store, keys, MANY, got));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(got[i].size, sizes[i]);
        assert_memory_equal(got[i].data, values[i], sizes[i]);
        tt_store_value_free(&got[i]);
    }
    char **list;
    int64_t n, number;
    good(tt_store_list_keys(store, &list, &n));
    assert_int_equal(n, MANY);
    free(list);
    good(tt_store_num_keys(store, &number));
    assert_int_equal(number, MANY);
    good(tt__etcd_clear(store));
    good(tt_store_num_keys(store, &number));
    assert_int_equal(number, 0);
    free(data);
    free(got);
    tt_store_free(store);
}

/* What anyone would find in etcd: the revision's number of keys, by a request of etcd's own. */
static int64_t keys_in_etcd(void) {
    tt__etcd_client client;
    tt__span answer, count;
    int64_t n = 0;
    good(tt__etcd_client_begin(&client, cluster.one[0], &(tt__etcd_credentials){0}));
    static const char all[] = "{\"key\":\"AA==\",\"range_end\":\"AA==\",\"count_only\":true}";
    good(tt__etcd_call(&client, "/v3/kv/range", (tt__span){(const uint8_t *)all, sizeof all - 1}, 65536,
                       tt__deadline_ms(PATIENCE_MS), &answer));
    if (tt__json_member(answer, "count", &count))
        assert_true(tt__json_i64(count, &n));
    tt__etcd_client_end(&client);
    return n;
}

static void prefixes_part_stores(void **state) {
    (void)state;
    tt_store *a, *b, *c;
    int64_t n;
    good(tt_etcd_store(&a, cluster.endpoints, .prefix = "jobs/1/", .timeout_ms = PATIENCE_MS));
    good(tt_etcd_store(&b, cluster.endpoints, .prefix = "jobs/12", .timeout_ms = PATIENCE_MS));
    good(tt_etcd_store(&c, cluster.endpoints, .timeout_ms = PATIENCE_MS));
    set(a, "k", "a");
    set(a, "", "the empty name");
    set(a, "\xff\xff", "the last name");
    set(b, "k", "b");
    assert_false(has(c, "k"));
    holds(a, "k", "a");
    holds(a, "", "the empty name");
    holds(b, "k", "b");
    good(tt_store_num_keys(a, &n));
    assert_int_equal(n, 3);
    assert_int_equal(keys_in_etcd(), 4 + 2); /* two of them have written */
    tt_store_free(a);
    tt_store_free(b);
    tt_store_free(c);
    assert_int_equal(keys_in_etcd(), 4); /* nothing is left but what was set */
    fails(tt_etcd_store(&a, cluster.endpoints, .prefix = "//"), TT_ERR_INVALID, "prefix");
}

#define ON_ONE(test) cmocka_unit_test_setup_teardown(test, start_one, stop_all)
#define ON_THREE(test) cmocka_unit_test_setup_teardown(test, start_three, stop_all)

int main(void) {
    if (!etcd_is_installed()) {
        puts("skipped: etcd is not installed (package etcd-server)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        ON_ONE(users_count_together),
        ON_ONE(a_restarted_server_is_found_again),
        ON_ONE(a_dead_server_ends_in_a_timeout),
        ON_ONE(waiters_are_woken),
        ON_THREE(waiters_outlive_their_server),
        ON_THREE(a_frozen_member_is_left),
        ON_THREE(a_cluster_outlives_each_of_its_members),
        ON_ONE(writes_happen_once_though_answers_get_lost),
        ON_ONE(large_values_are_refused_here),
        ON_ONE(many_keys_go_in_several_requests),
        ON_ONE(prefixes_part_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
