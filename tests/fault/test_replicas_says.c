/* What `tutti store --replicas` says to who runs it: whom it waits for, that too few are left, and what to do. */
#include "support/replicas.h"
#include "support/storm.h"

#include "base/error.h"

static replicas all;

static int find_places(void **state) {
    (void)state;
    memset(&all, 0, sizeof all);
    replicas_open(&all);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    replicas_close(&all);
    return 0;
}

/* As users start it: nothing says that more is to be logged. */
static void start_plainly(int i) {
    const char *const argv[] = {tutti(), "store", "--replicas", all.list, NULL};
    char where[64];
    if (all.running[i])
        replicas_stop_one(&all, i, SIGKILL);
    snprintf(where, sizeof where, "replica %d of 3,", i + 1);
    all.running[i] = process_start(argv, NULL, -1);
    process_expect(all.running[i], 0, where, 1);
}

static void stop_all(void) {
    for (int i = 0; i < REPLICAS; i++)
        replicas_stop_one(&all, i, SIGKILL);
}

static void expect_said(int i, const char *format, int a, int b) {
    char text[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, a, b);
#pragma GCC diagnostic pop
    process_expect(all.running[i], 1, text, 1);
}

static void test_whom_it_waits_for(void **state) {
    (void)state;
    stop_all();
    start_plainly(0);
    expect_said(0, "store: 1 of 3 replicas reached, all must be for the store to begin: waiting for 127.0.0.1:%d (",
                all.ports[1], 0);
    expect_said(0, "), 127.0.0.1:%d (", all.ports[2], 0);
    start_plainly(1);
    expect_said(0, "store: 2 of 3 replicas reached, all must be for the store to begin: waiting for 127.0.0.1:%d (",
                all.ports[2], 0);
    expect_said(1, "all must be for the store to begin: waiting for 127.0.0.1:%d (", all.ports[2], 0);
    start_plainly(2);
    for (int i = 0; i < 2; i++)
        expect_said(i, "of 3 replicas reached: the store is served\n", 0, 0);
}

static void begin_plainly(void) {
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    stop_all();
    for (int i = 0; i < REPLICAS; i++)
        start_plainly(i);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    tt_store_free(store);
}

/* They are silent for a while, and come back with all that they held. */
static void test_too_few_are_left(void **state) {
    (void)state;
    begin_plainly();
    for (int i = 1; i < REPLICAS; i++)
        kill(all.running[i]->pid, SIGSTOP);
    expect_said(0,
                "store: 1 of 3 replicas reached, 2 must be: nothing is written until one of 127.0.0.1:%d, "
                "127.0.0.1:%d is back; start it again\n",
                all.ports[1], all.ports[2]);
    kill(all.running[1]->pid, SIGCONT);
    expect_said(0, "of 3 replicas reached: the store is served\n", 0, 0);
    kill(all.running[2]->pid, SIGCONT);
}

/* ... whenever that is: also between the store's beginning and the moment in which this one is part of it. */
static void test_it_is_left_at_any_moment(void **state) {
    (void)state;
    uint64_t draw = storm_case(0);
    for (int round = 0; round < storm_number("TT_STORM_CASES", 3); round++) {
        stop_all();
        for (int i = 0; i < REPLICAS; i++)
            start_plainly(i);
        nanosleep(&(struct timespec){.tv_nsec = (long)storm_below(&draw, 300000000)}, NULL); /* the random moment */
        for (int i = 1; i < REPLICAS; i++)
            kill(all.running[i]->pid, SIGSTOP);
        process_expect(all.running[0], 1, "store: 1 of 3 replicas reached, ", 1);
        for (int i = 1; i < REPLICAS; i++)
            kill(all.running[i]->pid, SIGCONT);
    }
}

/* They are started again, and know nothing: the one that does is to be, too. */
static void test_what_most_have_forgotten(void **state) {
    (void)state;
    begin_plainly();
    replicas_stop_one(&all, 0, SIGKILL);
    replicas_stop_one(&all, 1, SIGKILL);
    start_plainly(0);
    start_plainly(1);
    expect_said(
        2,
        "store: 1 of 3 replicas reached, 2 must be: 127.0.0.1:%d, 127.0.0.1:%d came back without what the store "
        "held, which is lost: start this replica again, too\n",
        all.ports[0], all.ports[1]);
    for (int i = 0; i < 2; i++)
        expect_said(i, "store: 127.0.0.1:%d still has a store, of which 2 of 3 replicas must be there", all.ports[2],
                    0);
    start_plainly(2);
    for (int i = 0; i < 2; i++)
        expect_said(i, "of 3 replicas reached: the store is served\n", 0, 0);
}

/* Each names both lists, once, however often the others come; started with the right one it is one of them. */
static void test_lists_in_another_order(void **state) {
    (void)state;
    char other[128], refused[400], why[400];
    const char *const argv[] = {tutti(), "store", "--replicas", other, NULL};
    snprintf(other, sizeof other, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", all.ports[2], all.ports[1], all.ports[0]);
    snprintf(refused, sizeof refused,
             "store: refused a replica: expected it to be started with --replicas %s, got %s: all need one list",
             all.list, other);
    snprintf(why, sizeof why, "(it was started with --replicas %s, this one with %s)", all.list, other);
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    replicas_wait(&all);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    replicas_stop_one(&all, 2, SIGKILL);
    all.running[2] = process_start(argv, NULL, -1);
    process_expect(all.running[2], 0, "replica 1 of 3,", 1);
    process_expect(all.running[2], 1, why, 2);
    for (int i = 0; i < 2; i++) {
        process_expect(all.running[i], 1, "another list of replicas", 3);
        assert_int_equal(count_of(all.running[i]->text[1], refused), 1);
    }
    replicas_stop_one(&all, 2, SIGKILL);
    replicas_run(&all, 2);
    replicas_wait(&all);
    replicas_stop_one(&all, 0, SIGKILL);
    tt_store_value value;
    assert_int_equal(tt_store_get(store, "key", &value), TT_OK);
    tt_store_value_free(&value);
    tt_store_free(store);
}

/* With however few descriptors: one line that says so, or a replica that the others can count on. */
static void test_few_descriptors(void **state) {
    (void)state;
    enum { LEAST = 4, MOST = 60 };
    char command[400];
    const char *const argv[] = {"sh", "-c", command, NULL};
    int limit = LEAST;
    stop_all();
    for (process *p = NULL; !p && limit < MOST; limit++) {
        snprintf(command, sizeof command, "ulimit -n %d; exec \"$TUTTI\" store --replicas %s", limit, all.list);
        p = process_start(argv, NULL, -1);
        while (p->fds[0] >= 0 && !strchr(p->text[0], '\n'))
            process_read(p, 100);
        all.running[0] = p;
        if (p->fds[0] >= 0)
            break;
        process_finish(p);
        assert_int_not_equal(p->code, 0);
        if (limit > 7) /* to load the command takes some */
            assert_int_equal(count_of(p->text[1], "\n"), 1);
        process_free(p);
        p = all.running[0] = NULL;
    }
    assert_true(limit > 15 && limit < MOST);
    start_plainly(1);
    start_plainly(2);
    tt_store *store = replicas_client(&all, PATIENCE_MS);
    assert_int_equal(tt_store_set(store, "key", "value", 5), TT_OK);
    for (int i = 1; i < REPLICAS; i++) {
        replicas_stop_one(&all, i, SIGKILL); /* the first is needed */
        assert_int_equal(tt_store_set(store, "key", "other", 5), TT_OK);
        all.running[i] = replicas_start_one(&all);
        process_expect(all.running[i], 1, "holds all of the store", 1);
    }
    process_read(all.running[0], 0);
    assert_true(count_of(all.running[0]->text[1], "\n") < 12);
    tt_store_free(store);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whom_it_waits_for, find_places, close_all),
        cmocka_unit_test_setup_teardown(test_too_few_are_left, find_places, close_all),
        cmocka_unit_test_setup_teardown(test_it_is_left_at_any_moment, find_places, close_all),
        cmocka_unit_test_setup_teardown(test_what_most_have_forgotten, find_places, close_all),
        cmocka_unit_test_setup_teardown(test_lists_in_another_order, find_places, close_all),
        cmocka_unit_test_setup_teardown(test_few_descriptors, find_places, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
