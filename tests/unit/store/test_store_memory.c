/* Allocations that fail: the nth of a scenario, for every n until the scenario succeeds. Each failure must be an error,
 * never a crash, and everything must be given back.
 *
 * Only Tutti's own allocations fail: libuv ends the process when it has no memory for its loop. A sanitizer has a
 * malloc of its own, so under one the test is skipped. */
#include <tutti/store.h>

#include "store/server/service.h"
#include "unit/store/store_transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/etcd.h"
#include "unit/alloc_fail.h"

/* One conversation with the service; the client's last words may fall on deaf ears. */
static bool converse(const transcript *t, long n) {
    tt__store_service service;
    tt__store_session session;
    uint8_t bytes[TRANSCRIPT_MAX];
    tt__store_service_init(&service);
    tt__store_session_init(&session, &service, NULL);
    alloc_fail_nth(n);
    for (int i = 0; t->lines[i]; i++)
        if (*t->lines[i] == '>') {
            size_t size = transcript_bytes(t->lines[i] + 1, bytes);
            tt__store_session_feed(&session, bytes, size / 2);
            tt__store_session_feed(&session, bytes + size / 2, size - size / 2);
        }
    bool failed = alloc_fail_end();
    bool told = session.broken;
    tt__store_session_end(&session);
    bool clean = service.table.entries == service.table.kept;
    tt__store_service_free(&service);
    assert_true(clean);
    assert_true(!failed || told);
    return failed;
}

static void a_service_without_memory(void **state) {
    (void)state;
    for (int i = 0; i < TRANSCRIPTS; i++) {
        long n = 1, before = alloc_in_use();
        while (converse(&transcripts[i], n++))
            assert_int_equal(alloc_in_use(), before);
        assert_int_equal(alloc_in_use(), before);
    }
}

static tt_status use(tt_store *store) {
    tt_store *prefix = NULL;
    tt_store_value value = {0}, values[2] = {{0}, {0}};
    const char *keys[] = {"a", "b"};
    char **list = NULL;
    int64_t n = 0;
    tt_status status = tt_prefix_store(&prefix, "p", store);
    if (!status)
        status = tt_store_multi_set(prefix, keys, (const void *[]){"1", "2"}, (size_t[]){1, 1}, 2);
    if (!status)
        status = tt_store_get(prefix, "a", &value);
    if (!status)
        status = tt_store_multi_get(prefix, keys, 2, values);
    if (!status)
        status = tt_store_list_keys(prefix, &list, &n);
    tt_store_value_free(&value);
    for (int i = 0; i < 2; i++)
        tt_store_value_free(&values[i]);
    free(list);
    tt_store_free(prefix);
    return status;
}

static tt_status open_tcp(tt_store **store) {
    return tt_tcp_store(store, "127.0.0.1", 0, .is_server = true, .timeout_ms = 20000);
}

static tt_status open_proven(tt_store **store) {
    return tt_tcp_store(store, "127.0.0.1", 0, .is_server = true, .timeout_ms = 20000, .auth = TT_STORE_AUTH_REQUIRED,
                        .secret = "an old and well kept secret");
}

static tt_status open_hash(tt_store **store) { return tt_hash_store(store, 5000); }

static const char *file_path(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_store_memory.%d", (int)getpid());
    return path;
}

static tt_status open_file(tt_store **store) {
    unlink(file_path());
    return tt_file_store(store, file_path(), .world_size = 1, .timeout_ms = 20000);
}

static etcd cluster;

static tt_status open_etcd(tt_store **store) { return tt_etcd_store(store, cluster.endpoints, .timeout_ms = 20000); }

typedef struct opener {
    tt_status (*open)(tt_store **);
} opener;

static tt_status open_and_use(void *arg) {
    tt_store *store = NULL;
    tt_status status = ((opener *)arg)->open(&store);
    if (!status)
        status = use(store);
    tt_store_free(store);
    return status;
}

static void without_memory(tt_status (*open)(tt_store **)) {
    assert_true(alloc_fail_each(open_and_use, &(opener){open}, ALLOC_MAY_END) > 10); /* allocations did fail */
}

static void stores_without_memory(void **state) {
    (void)state;
    without_memory(open_tcp);
    without_memory(open_proven);
    without_memory(open_hash);
    without_memory(open_file);
    unlink(file_path());
}

static void etcd_stores_without_memory(void **state) {
    (void)state;
    if (!etcd_is_installed())
        skip();
    etcd_start(&cluster, 1);
    without_memory(open_etcd);
    etcd_stop(&cluster);
}

int main(void) {
    if (!alloc_count_works) {
        printf("skipped: needs glibc's malloc, which a sanitizer replaces\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_without_memory),
        cmocka_unit_test(stores_without_memory),
        cmocka_unit_test(etcd_stores_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
