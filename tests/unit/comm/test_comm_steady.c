/* In the steady state collectives allocate nothing; and a group leaves nothing behind: no descriptor, no mapping, no
 * file. */
#include "support/leftovers.h"
#include "unit/alloc_count.h"

static void all_kinds(tt_group *group, float *symmetric, float *plain, size_t count) {
    tt_work *work;
    CHECK_OK(tt_all_reduce(group, symmetric, count, TT_F32, TT_AVG, .work = &work));
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
    for (int i = 0; i < 2; i++) {
        float *buf = i ? symmetric : plain;
        CHECK_OK(tt_all_reduce(group, buf, count, TT_F32, TT_SUM));
        CHECK_OK(tt_reduce(group, buf, count, TT_F32, TT_SUM, 0));
        CHECK_OK(tt_broadcast(group, buf, count, TT_F32, 0));
        CHECK_OK(tt_all_gather(group, buf, buf + count, count / 4, TT_F32));
    }
    CHECK_OK(tt_barrier(group));
}

static int steady_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    enum { COUNT = 80000 };
    tt_group *group = join_group(store, rank, world);
    float *symmetric, *plain = calloc(2 * COUNT, sizeof *plain);
    CHECK_OK(tt_group_alloc((void **)&symmetric, group, 2 * COUNT * sizeof(float)));
    all_kinds(group, symmetric, plain, COUNT);
    long before = alloc_count;
    for (int i = 0; i < 20; i++)
        all_kinds(group, symmetric, plain, i % 2 ? COUNT : 100);
    CHECK(alloc_count == before);
    tt_destroy_process_group(group);
    free(plain);
    return 0;
}

static void the_steady_state_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("allocations can't be counted under a sanitizer\n");
        skip();
    }
    with_ranks(3, steady_body, NULL);
}

static int leak_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    int fds = count_names("/proc/self/fd", "");
    CHECK(count_shared_mappings() == 0);
    for (int round = 0; round < 3; round++) {
        tt_group *group = join_group(store, rank, world);
        CHECK(count_shared_mappings() >= world);
        if (round == 1 && rank == 0) /* a failed group is released as well */
            CHECK(tt_barrier(group) == TT_ERR_MISMATCH);
        else if (round == 1)
            CHECK(tt_broadcast(group, NULL, 0, TT_U8, 0) == TT_ERR_MISMATCH);
        tt_destroy_process_group(group);
        CHECK(count_shared_mappings() == 0);
        CHECK(count_names("/proc/self/fd", "") == fds);
    }
    return 0;
}

static void nothing_is_left(void **state) {
    (void)state;
    with_ranks(3, leak_body, NULL);
    assert_int_equal(count_names("/dev/shm", "tutti"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steady_state_allocates_nothing),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
