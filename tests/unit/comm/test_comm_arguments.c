/* Counts below zero are refused before anything is sent, by a text that says where; what is only read may be const. */
#include "support/ranks.h"

#define REFUSED(call, text)              \
    do {                                 \
        CHECK((call) == TT_ERR_INVALID); \
        CHECK_TEXT(text);                \
    } while (0)

static float x[8], y[8];
static const int64_t good[2] = {1, 1}, bad[2] = {1, -4};

static void one_count(tt_group *g) {
    REFUSED(tt_all_reduce(g, x, -1, TT_F32, TT_SUM), "all_reduce: expected a count of 0 or more elements, got -1");
    REFUSED(tt_all_reduce(g, x, INT64_MIN, TT_F32, TT_SUM), "got -9223372036854775808");
    REFUSED(tt_reduce(g, x, -2, TT_F32, TT_SUM, 0), "reduce: expected a count of 0 or more elements, got -2");
    REFUSED(tt_reduce_scatter(g, x, y, -3, TT_F32, TT_SUM), "reduce_scatter: expected a count of 0 or more");
    REFUSED(tt_broadcast(g, x, -4, TT_F32, 0), "broadcast: expected a count of 0 or more elements, got -4");
    REFUSED(tt_all_gather(g, x, y, -5, TT_F32), "all_gather: expected a count of 0 or more elements, got -5");
    REFUSED(tt_gather(g, x, y, -6, TT_F32, 0), "gather: expected a count of 0 or more elements, got -6");
    REFUSED(tt_scatter(g, x, y, -7, TT_F32, 0), "scatter: expected a count of 0 or more elements, got -7");
    REFUSED(tt_all_to_all(g, x, y, -8, TT_F32), "all_to_all: expected a count of 0 or more elements, got -8");
    REFUSED(tt_send(g, x, -9, TT_F32, 1), "send: expected a count of 0 or more elements, got -9");
    REFUSED(tt_recv(g, x, -10, TT_F32, 1), "recv: expected a count of 0 or more elements, got -10");
}

static void lists_of_counts(tt_group *g) {
    void *const bufs[] = {x, y};
    const tt_p2p_op ops[] = {tt_recv_op(x, 1, TT_F32, 1), tt_send_op(y, -1, TT_F32, 1)};
    REFUSED(tt_all_gather_v(g, x, y, bad, NULL, TT_F32),
            "all_gather_v: expected counts of 0 or more elements, got -4 of rank 1");
    REFUSED(tt_all_gather_v(g, x, y, good, bad, TT_F32), "expected offsets of 0 or more elements, got -4 of rank 1");
    REFUSED(tt_all_to_all_v(g, x, bad, NULL, y, good, NULL, TT_F32),
            "all_to_all_v: expected send counts of 0 or more elements, got -4 of rank 1");
    REFUSED(tt_all_to_all_v(g, x, good, NULL, y, bad, NULL, TT_F32), "expected receive counts of 0 or more elements");
    REFUSED(tt_all_to_all_v(g, x, good, bad, y, good, NULL, TT_F32), "expected send offsets of 0 or more elements");
    REFUSED(tt_all_to_all_v(g, x, good, NULL, y, good, bad, TT_F32), "expected receive offsets of 0 or more elements");
    REFUSED(tt_all_reduce_coalesced(g, bufs, bad, 2, TT_F32, TT_SUM),
            "all_reduce_coalesced: buffer 1: expected a count of 0 or more elements, got -4");
    REFUSED(tt_all_reduce_coalesced(g, bufs, good, -2, TT_F32, TT_SUM), "expected 0 or more buffers, got -2");
    REFUSED(tt_batch_isend_irecv(g, ops, 2), "batch_isend_irecv: operation 1: send: expected a count of 0 or more");
    REFUSED(tt_batch_isend_irecv(g, ops, -1), "batch_isend_irecv: expected 0 or more operations, got -1");
    REFUSED(tt_work_wait_all(NULL, -1), "tt_work_wait_all: expected 0 or more works, got -1");
}

static void other_counts(tt_group *g, tt_store *store) {
    tt_group *made = g;
    bool all;
    REFUSED(tt_new_group(&made, g, ((int[]){0}), -1), "new_group: expected a list of 1 to 2 ranks, got one of -1");
    CHECK(!made);
    REFUSED(tt_store_wait(store, ((const char *[]){"k"}), -1, 0),
            "tt_store_wait: expected a number of keys of 0 or more");
    REFUSED(tt_store_check(store, ((const char *[]){"k"}), -1, &all), "tt_store_check: expected a number of keys");
}

/* A failed call leaves *work NULL, and the group as it was. */
static void asynchronous(tt_group *g) {
    tt_work *work = (tt_work *)&work;
    REFUSED(tt_all_reduce(g, x, -1, TT_F32, TT_SUM, .work = &work), "got -1");
    CHECK(!work);
    work = (tt_work *)&work;
    REFUSED(tt_isend(&work, g, x, -1, TT_F32, 1), "got -1");
    CHECK(!work);
}

static int negative_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    one_count(group);
    lists_of_counts(group);
    other_counts(group, store);
    asynchronous(group);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static void negative_counts_are_refused(void **state) {
    (void)state;
    with_ranks(2, negative_body, NULL);
}

/* In memory that can't be written: a call that did would end this rank. */
static const int32_t constant[4] = {3, 1, 4, 1};
static const int64_t twos[2] = {2, 2};

static void send_constant(tt_group *group, int rank) {
    int32_t got[4] = {0};
    if (rank == 0) {
        tt_work *work;
        CHECK_OK(tt_send(group, constant, 4, TT_I32, 1));
        CHECK_OK(tt_isend(&work, group, constant, 4, TT_I32, 1));
        CHECK_OK(tt_work_wait(work));
        tt_work_free(work);
        CHECK_OK(tt_batch_isend_irecv(group, &tt_send_op(constant, 4, TT_I32, 1), 1));
        return;
    }
    for (int i = 0; i < 3; i++) {
        memset(got, 0, sizeof got);
        CHECK_OK(tt_recv(group, got, 4, TT_I32, 0));
        CHECK(!memcmp(got, constant, sizeof got));
    }
}

static int constant_body(tt_store *store, int rank, int world, void *arg) {
    int32_t all[8], part[2];
    tt_group *group = join_group(store, rank, world);
    (void)arg;
    send_constant(group, rank);
    CHECK_OK(tt_all_gather(group, constant, all, 4, TT_I32));
    CHECK(!memcmp(all + 4, constant, sizeof constant));
    CHECK_OK(tt_reduce_scatter(group, constant, part, 2, TT_I32, TT_SUM));
    CHECK(part[0] == 2 * constant[2 * rank]);
    CHECK_OK(tt_all_to_all(group, constant, all, 2, TT_I32));
    CHECK(all[2] == constant[2 * rank]);
    CHECK_OK(tt_all_to_all_v(group, constant, twos, NULL, all, twos, NULL, TT_I32));
    CHECK(all[3] == constant[2 * rank + 1]);
    CHECK_OK(tt_gather(group, constant, all, 4, TT_I32, 0));
    CHECK_OK(tt_scatter(group, constant, part, 2, TT_I32, 0));
    CHECK(part[1] == constant[2 * rank + 1]);
    tt_destroy_process_group(group);
    return 0;
}

static void what_is_sent_may_be_const(void **state) {
    (void)state;
    with_ranks(2, constant_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negative_counts_are_refused),
        cmocka_unit_test(what_is_sent_may_be_const),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
