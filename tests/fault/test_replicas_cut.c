/* Three replicas of a store on three hosts, whose links are cut one after the other: most of them go on, the one that
 * is alone serves nobody, and what was acknowledged stays. */
#include "store/replica_store.h"
#include "support/netlab.h"
#include "support/process.h"

enum { HOSTS = 3, ROUNDS = 2 };

static netlab lab;
static process *running[HOSTS];
static const char places[] = "10.77.0.1:29500,10.77.0.2:29500,10.77.0.3:29500";

static int open_lab(void **state) {
    (void)state;
    const char *const argv[] = {tutti(), "store", "--replicas", places, "--store-auth=none", NULL};
    const char *const environment[] = {"TT_LOG=info", NULL};
    const char *why = netlab_open(&lab, HOSTS);
    if (why) {
        fprintf(stderr, "skipped: %s\n", why);
        exit(77);
    }
    for (int h = 0; h < HOSTS; h++) {
        assert_int_equal(setns(lab.space[h], CLONE_NEWNET), 0);
        running[h] = process_start(argv, environment, -1);
        assert_int_equal(setns(lab.lab, CLONE_NEWNET), 0);
        while (running[h]->fds[0] >= 0 && !strchr(running[h]->text[0], '\n'))
            process_read(running[h], 100);
        if (strstr(running[h]->text[1], "libraft")) {
            fprintf(stderr, "skipped: %s", running[h]->text[1]);
            exit(77);
        }
    }
    for (int h = 0; h < HOSTS; h++)
        process_expect(running[h], 1, "holds all of the store", 1);
    return 0;
}

static int close_lab(void **state) {
    (void)state;
    for (int h = 0; h < HOSTS; h++) {
        kill(running[h]->pid, SIGTERM);
        process_finish(running[h]);
        if (running[h]->code)
            fail_msg("exit code %d: %s", running[h]->code, running[h]->text[1]);
        process_free(running[h]);
    }
    netlab_close(&lab);
    return 0;
}

static tt_store *client(int64_t timeout_ms) {
    tt__replica_place place;
    tt_store *store = NULL;
    if (tt__replica_place_read(&place, "test", places, 0) || tt__replica_store(&store, &place, NULL, timeout_ms))
        fail_msg("%s", tt_last_error());
    return store;
}

static void expect_sum(tt_store *store, int64_t delta, int64_t expected) {
    int64_t sum;
    if (tt_store_add(store, "sum", delta, &sum))
        fail_msg("%s", tt_last_error());
    assert_int_equal(sum, expected);
}

/* Each host is cut off in turn, the leader's too, which believes for a moment that it still leads. */
static void test_one_host_is_cut_off(void **state) {
    (void)state;
    tt_store *store = client(PATIENCE_MS);
    int64_t sum = 0;
    for (int i = 0; i < ROUNDS * HOSTS; i++) {
        expect_sum(store, 1, ++sum);
        assert_true(netlab_link(&lab, i % HOSTS, false));
        expect_sum(store, 1, ++sum);
        assert_true(netlab_link(&lab, i % HOSTS, true));
    }
    tt_store_free(store);
}

static void test_a_host_alone_serves_nobody(void **state) {
    (void)state;
    tt_store *store = client(PATIENCE_MS), *brief = client(3000);
    tt_store_value value;
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    for (int alone = 0; alone < HOSTS; alone++) {
        for (int h = 0; h < HOSTS; h++)
            assert_true(h == alone || netlab_link(&lab, h, false));
        assert_int_equal(tt_store_set(brief, "key", "other", 5), TT_ERR_TIMEOUT);
        assert_contains(tt_last_error(), "none of the store's 3 replicas served it in time, of which 2 must be there");
        assert_int_equal(tt_store_get(brief, "key", &value), TT_ERR_TIMEOUT);
        for (int h = 0; h < HOSTS; h++)
            assert_true(h == alone || netlab_link(&lab, h, true));
        assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK); /* the other one may have come late */
        assert_int_equal(tt_store_get(store, "key", &value), TT_OK);
        assert_string_equal(value.data, "value");
        tt_store_value_free(&value);
    }
    tt_store_free(brief);
    tt_store_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host_is_cut_off),
        cmocka_unit_test(test_a_host_alone_serves_nobody),
    };
    return cmocka_run_group_tests(tests, open_lab, close_lab);
}
