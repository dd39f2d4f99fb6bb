/* Every store operation on every kind of store: TCPStore in both dialects, HashStore, FileStore, etcd where it is
 * installed, and each of them through prefixes. */
#include "support/etcd.h"
#include "support/patience.h"

#include "base/machine/clock.h"

#include <tutti/store.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 4, ADDS = 50, SHORT_MS = 30, ETCD_SHORT_MS = 1000 };

/* ---- one more user of the store that a test is about, whatever its kind */

typedef enum kind { TORCH_2, TORCH_1_13, HASH, FILE_STORE, ETCD, KINDS } kind;
static const char *const kind_names[] = {"TCPStore", "TCPStore 1.13", "HashStore", "FileStore", "etcd"};

static tt_store_server *server;
static tt_store *hash;
static char path[64];
static etcd cluster; /* one for all tests; none if etcd is not installed */
static char job[16];
static int jobs;

static int begin_all(void **state) {
    (void)state;
    if (etcd_is_installed())
        etcd_start(&cluster, 1);
    else
        print_message("etcd is not installed: its store is not tested\n");
    return 0;
}

static int end_all(void **state) {
    (void)state;
    etcd_stop(&cluster);
    return 0;
}

static int kinds(void) { return cluster.members ? KINDS : ETCD; }

static void start(kind k) {
    snprintf(job, sizeof job, "job/%d", jobs++);
    snprintf(path, sizeof path, "/tmp/test_store.%d", (int)getpid());
    unlink(path);
    if (k == HASH)
        assert_int_equal(tt_hash_store(&hash, PATIENCE_MS), TT_OK);
    else if (k < HASH)
        assert_int_equal(tt_store_server_new(&server, NULL, 0), TT_OK);
}

static void stop(void) {
    tt_store_free(hash);
    hash = NULL;
    tt_store_server_free(server);
    server = NULL;
    unlink(path);
}

static tt_store *join(kind k) {
    tt_store *store = hash;
    if (k == FILE_STORE)
        assert_int_equal(tt_file_store(&store, path, .timeout_ms = PATIENCE_MS), TT_OK);
    else if (k == ETCD)
        assert_int_equal(tt_etcd_store(&store, cluster.endpoints, .prefix = job, .timeout_ms = PATIENCE_MS), TT_OK);
    else if (k != HASH)
        assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server), .timeout_ms = PATIENCE_MS,
                                      .dialect = k == TORCH_2 ? TT_STORE_TORCH_2 : TT_STORE_TORCH_1_13),
                         TT_OK);
    return store;
}

static void leave(tt_store *store) {
    if (store != hash)
        tt_store_free(store);
}

static void fails(tt_status status, tt_status expected, const char *part) {
    assert_int_equal(status, expected);
    if (!strstr(tt_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tt_last_error(), part);
}

static void holds(tt_store *store, const char *key, const char *expected) {
    tt_store_value value;
    assert_int_equal(tt_store_get(store, key, &value), TT_OK);
    assert_int_equal(value.size, strlen(expected));
    assert_string_equal(value.data, expected);
    tt_store_value_free(&value);
}

/* Operations that all stores have, on an empty store. */
static void common_operations(tt_store *store) {
    int64_t number = 0;
    bool flag = false;
    tt_store_value value = {0};

    assert_int_equal(tt_store_set(store, "k", "vv", 2), TT_OK);
    holds(store, "k", "vv");
    assert_int_equal(tt_store_set(store, "empty", NULL, 0), TT_OK);
    holds(store, "empty", "");

    assert_int_equal(tt_store_add(store, "n", 5, &number), TT_OK);
    assert_int_equal(number, 5);
    assert_int_equal(tt_store_add(store, "n", -7, NULL), TT_OK);
    holds(store, "n", "-2");
    assert_int_equal(tt_store_set(store, "n", "12abc", 5), TT_OK);
    assert_int_equal(tt_store_add(store, "n", 1, &number), TT_OK);
    assert_int_equal(number, 13);

    assert_int_equal(tt_store_compare_set(store, "c", "x", 1, "new", 3, &value), TT_OK);
    assert_string_equal(value.data, "x"); /* missing, expected not empty: nothing is stored */
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", NULL, 0, "new", 3, &value), TT_OK);
    assert_string_equal(value.data, "new");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", "old", 3, "other", 5, &value), TT_OK);
    assert_string_equal(value.data, "new");
    tt_store_value_free(&value);
    assert_int_equal(tt_store_compare_set(store, "c", "new", 3, "newer", 5, NULL), TT_OK);
    holds(store, "c", "newer");

    const char *there[] = {"k", "n", "k"}, *missing[] = {"k", "no such key"};
    assert_int_equal(tt_store_check(store, there, 3, &flag), TT_OK);
    assert_true(flag);
    assert_int_equal(tt_store_check(store, missing, 2, &flag), TT_OK);
    assert_false(flag);
    assert_int_equal(tt_store_wait(store, there, 3, 0), TT_OK);
    assert_int_equal(tt_store_wait(store, NULL, 0, 0), TT_OK);

    assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
    assert_int_equal(number, 4);
    assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
    assert_true(flag);
    assert_int_equal(tt_store_delete_key(store, "k", &flag), TT_OK);
    assert_false(flag);
    assert_int_equal(tt_store_num_keys(store, &number), TT_OK);
    assert_int_equal(number, 3);
}

/* Operations that PyTorch 1.13's dialect lacks. `base` sees the keys with their prefix. */
static void newer_operations(tt_store *base, tt_store *store, const char *prefix) {
    assert_int_equal(tt_store_append(store, "a", "one", 3), TT_OK);
    assert_int_equal(tt_store_append(store, "a", "two", 3), TT_OK);
    holds(store, "a", "onetwo");

    const char *keys[] = {"x", "y"};
    const void *values[] = {"first", ""};
    const size_t sizes[] = {5, 0};
    tt_store_value got[2];
    assert_int_equal(tt_store_multi_set(store, keys, values, sizes, 2), TT_OK);
    assert_int_equal(tt_store_multi_get(store, keys, 2, got), TT_OK);
    assert_string_equal(got[0].data, "first");
    assert_int_equal(got[1].size, 0);
    tt_store_value_free(&got[0]);
    tt_store_value_free(&got[1]);

    char **list;
    int64_t n;
    assert_int_equal(tt_store_list_keys(store, &list, &n), TT_OK);
    assert_int_equal(n, 6); /* and those of common_operations() */
    bool found = false;
    for (int64_t i = 0; i < n; i++)
        found = found || !strcmp(list[i], "x");
    assert_true(found);
    free(list);
    char name[64];
    snprintf(name, sizeof name, "%sx", prefix);
    holds(base, name, "first");
    assert_int_equal(tt_store_barrier(store, "bar", 1, 0), TT_OK);
}

static void large_values(tt_store *store, size_t size) {
    unsigned char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    tt_store_value value;
    assert_int_equal(tt_store_set(store, "large", data, size), TT_OK);
    assert_int_equal(tt_store_get(store, "large", &value), TT_OK);
    assert_int_equal(value.size, size);
    assert_memory_equal(value.data, data, size);
    tt_store_value_free(&value);
    assert_int_equal(tt_store_delete_key(store, "large", NULL), TT_OK);
    free(data);
}

static void limits(tt_store *store) {
    char *key = malloc(TT_STORE_MAX_KEY + 1);
    assert_non_null(key);
    memset(key, 'k', TT_STORE_MAX_KEY);
    key[TT_STORE_MAX_KEY] = '\0';
    assert_int_equal(tt_store_set(store, key, "v", 1), TT_ERR_INVALID);
    assert_int_equal(tt_store_set(store, "k", "v", TT_STORE_MAX_VALUE + 1), TT_ERR_INVALID);
    assert_int_equal(tt_store_set(NULL, "k", "v", 1), TT_ERR_INVALID);
    assert_int_equal(tt_store_set(store, NULL, "v", 1), TT_ERR_INVALID);
    free(key);
}

static void operations_of(kind k, bool below_prefix) {
    start(k);
    tt_store *base = join(k), *outer = NULL, *inner = NULL, *store = base;
    if (below_prefix) {
        assert_int_equal(tt_prefix_store(&outer, "a", base), TT_OK);
        assert_int_equal(tt_prefix_store(&inner, "b", outer), TT_OK);
        assert_int_equal(tt_store_port(inner), server ? tt_store_server_port(server) : 0);
        store = inner;
    }
    common_operations(store);
    large_values(store, (size_t)(k == ETCD ? 1 : 3) << 20);
    limits(store);
    holds(base, below_prefix ? "a/b/c" : "c", "newer");
    if (k == TORCH_1_13) {
        assert_int_equal(tt_store_append(store, "k", "x", 1), TT_ERR_UNSUPPORTED);
        assert_int_equal(tt_store_barrier(store, "b", 1, 0), TT_ERR_UNSUPPORTED);
        holds(store, "c", "newer"); /* refused here, so the connection is as it was */
    } else {
        newer_operations(base, store, below_prefix ? "a/b/" : "");
    }
    assert_int_equal(tt_store_set(store, "text", "no number", 9), TT_OK);
    fails(tt_store_add(store, "text", 1, NULL), TT_ERR_PROTOCOL, "number");
    tt_store_free(inner);
    tt_store_free(outer);
    leave(base);
    stop();
}

static void operations(void **state) {
    (void)state;
    for (kind k = TORCH_2; (int)k < kinds(); k++)
        operations_of(k, false);
}

static void operations_below_prefixes(void **state) {
    (void)state;
    for (kind k = TORCH_2; (int)k < kinds(); k++)
        operations_of(k, true);
}

/* ---- several users */

typedef struct user {
    kind k;
    int number;
    tt_status status;
    pthread_t thread;
} user;

/* Each counts, leaves a key of its own, and waits for the others'; those whose store can meet at a barrier. */
static void *use(void *arg) {
    user *u = arg;
    tt_store *store = join(u->k);
    char names[THREADS][16];
    const char *keys[THREADS];
    for (int i = 0; i < ADDS && !u->status; i++)
        u->status = tt_store_add(store, "count", 1, NULL);
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "user/%d", i);
        keys[i] = names[i];
    }
    if (!u->status)
        u->status = tt_store_set(store, keys[u->number], "here", 4);
    if (!u->status)
        u->status = tt_store_wait(store, keys, THREADS, 0);
    if (!u->status && u->k != TORCH_1_13)
        u->status = tt_store_barrier(store, "all", THREADS, 0);
    leave(store);
    return NULL;
}

static void users_meet(void **state) {
    (void)state;
    for (kind k = TORCH_2; (int)k < kinds(); k++) {
        user users[THREADS];
        start(k);
        for (int i = 0; i < THREADS; i++) {
            users[i] = (user){.k = k, .number = i};
            assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(users[i].thread, NULL);
            if (users[i].status)
                fail_msg("%s: %s", kind_names[k], tt_status_name(users[i].status));
        }
        int64_t count;
        tt_store *store = join(k);
        assert_int_equal(tt_store_add(store, "count", 0, &count), TT_OK);
        assert_int_equal(count, THREADS * ADDS);
        leave(store);
        stop();
    }
}

/* One store, used by all threads. */
static tt_store *shared;

static void *use_shared(void *arg) {
    user *u = arg;
    for (int i = 0; i < ADDS && !u->status; i++)
        u->status = tt_store_add(shared, "count", 1, NULL);
    return NULL;
}

static void threads_share_a_store(void **state) {
    (void)state;
    for (kind k = TORCH_2; (int)k < kinds(); k++) {
        user users[THREADS] = {{.k = k}};
        int64_t count;
        start(k);
        shared = join(k);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&users[i].thread, NULL, use_shared, &users[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(users[i].thread, NULL);
            assert_int_equal(users[i].status, TT_OK);
        }
        assert_int_equal(tt_store_add(shared, "count", 0, &count), TT_OK);
        assert_int_equal(count, THREADS * ADDS);
        leave(shared);
        stop();
    }
}

static void waits_end_in_time(void **state) {
    (void)state;
    for (kind k = TORCH_2; (int)k < kinds(); k++) {
        const char *keys[] = {"there", "missing", "lost"};
        const int64_t short_ms = k == ETCD ? ETCD_SHORT_MS : SHORT_MS; /* a server that has to find out first */
        start(k);
        tt_store *store = join(k);
        assert_int_equal(tt_store_set(store, "there", "x", 1), TT_OK);
        int64_t begun = tt__now_ms();
        fails(tt_store_wait(store, keys, 3, short_ms), TT_ERR_TIMEOUT, "missing, lost");
        if (k != TORCH_1_13) {
            assert_null(strstr(tt_last_error(), "there,"));
            fails(tt_store_barrier(store, "b", 2, short_ms), TT_ERR_TIMEOUT, "timed out");
            tt_store_set_timeout_ms(store, short_ms);
            assert_int_equal(tt_store_timeout_ms(store), short_ms);
            tt_store_value value;
            fails(tt_store_get(store, "missing", &value), TT_ERR_TIMEOUT, "missing");
            holds(store, "there", "x"); /* and it is still of use */
            begun += 2 * short_ms;
        }
        assert_true(tt__now_ms() - begun >= short_ms - 1 && tt__now_ms() - begun < PATIENCE_MS);
        leave(store);
        stop();
    }
}

static void clients_are_counted(void **state) {
    (void)state;
    tt_store *serving, *client;
    assert_int_equal(
        tt_tcp_store(&serving, "localhost", 0, .is_server = true, .world_size = 2, .no_wait_for_workers = true), TT_OK);
    assert_int_equal(tt_tcp_store(&client, "localhost", tt_store_port(serving), .world_size = 2), TT_OK);
    int64_t count;
    assert_int_equal(tt_store_num_keys(client, &count), TT_OK);
    assert_int_equal(count, 1);
    tt_store_free(client);
    tt_store_free(serving);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),        cmocka_unit_test(operations_below_prefixes),
        cmocka_unit_test(users_meet),        cmocka_unit_test(threads_share_a_store),
        cmocka_unit_test(waits_end_in_time), cmocka_unit_test(clients_are_counted),
    };
    return cmocka_run_group_tests(tests, begin_all, end_all);
}
