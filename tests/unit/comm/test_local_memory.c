/* Memory that one rank alone takes from its symmetric heap: it serves collectives wherever it lies in each rank, is
 * used again, outlives its group, and is left alone where a peer may still write to it. */
#include "support/ranks.h"

#include "comm/native/peer_memory.h"
#include "comm/native_group.h"

enum { FLOATS = 300000 };

static float *take(tt_group *group, size_t bytes, tt__local_memory **memory) {
    void *at;
    CHECK_OK(tt__local_memory_alloc(group, bytes, memory, &at));
    CHECK((uintptr_t)at % 64 == 0);
    return at;
}

static void check_sums(tt_group *group, float *x, int rank, int world) {
    for (int i = 0; i < FLOATS; i++)
        x[i] = (float)(i % 1000 + rank);
    CHECK_OK(tt_all_reduce(group, x, FLOATS, TT_F32, TT_SUM));
    for (int i = 0; i < FLOATS; i++)
        CHECK(x[i] == (float)(world * (i % 1000)) + (float)world * (float)(world - 1) / 2);
}

/* Each rank takes another number of ranges before, and frees them in another order. */
static int anywhere_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    CHECK(tt__local_memory_is_there(group));
    tt__local_memory *before[8] = {0}, *memory;
    for (int i = 0; i <= rank; i++)
        take(group, 5000, &before[i]);
    tt__shared_bytes bytes = tt__group_shared_bytes(group);
    CHECK(bytes.used == ((size_t)rank + 1) * 2 * TT__PAGE && bytes.used < bytes.limit && bytes.area >= TT__PAGE);
    float *x = take(group, FLOATS * sizeof(float), &memory);
    CHECK(tt__group_shared_bytes(group).used == bytes.used + TT__ALIGN_UP(FLOATS * sizeof(float), TT__PAGE));
    CHECK(tt__is_symmetric(group, x, FLOATS * sizeof(float)) && !tt__is_symmetric(group, &x, sizeof x));
    for (int i = 0; i < FLOATS; i++)
        CHECK(x[i] == 0);
    check_sums(group, x, rank, world);
    for (int i = 0; i <= rank; i++)
        tt__local_memory_free(before[(i + 1) % (rank + 1)]);
    check_sums(group, x, rank, world);
    tt__local_memory_free(memory);
    float *again = take(group, FLOATS * sizeof(float), &memory);
    CHECK((unsigned char *)again == group->native->bases[rank] + group->native->area_extent->bytes + TT__HEAP_AT);
    tt__local_memory_free(memory);
    CHECK(!group->native->world->heap.allocated && !tt__group_shared_bytes(group).used);
    tt_destroy_process_group(group);
    return 0;
}

static void ranges_may_lie_anywhere(void **state) {
    (void)state;
    with_ranks(3, anywhere_body, NULL);
}

/* What is left of a group that is gone is ordinary memory; the process can be a rank again meanwhile. */
static int outlives_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    tt__local_memory *memory;
    float *x = take(group, FLOATS * sizeof(float), &memory);
    check_sums(group, x, rank, world);
    tt_destroy_process_group(group);
    for (int i = 0; i < FLOATS; i++)
        x[i] += 1;
    wait_for_all(store, world);
    tt_store *fresh;
    CHECK_OK(tt_prefix_store(&fresh, "again/", store));
    group = join_group(fresh, rank, world);
    CHECK_OK(tt_all_reduce(group, x, FLOATS, TT_F32, TT_MAX));
    tt__local_memory_free(memory);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    tt_store_free(fresh);
    return 0;
}

static void it_outlives_its_group(void **state) {
    (void)state;
    with_ranks(2, outlives_body, NULL);
}

static int failed_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world), *other;
    tt__local_memory *memory, *next;
    CHECK_OK(tt_new_group(&other, group, ((const int[]){0, 1}), 2));
    float *x = take(group, FLOATS * sizeof(float), &memory);
    x[0] = 1;
    CHECK(tt_all_reduce(group, x, FLOATS - rank, TT_F32, TT_SUM) == TT_ERR_MISMATCH);
    void *refused;
    CHECK(tt__local_memory_alloc(group, 1, &next, &refused) == TT_ERR_MISMATCH);
    tt__local_memory_free(memory);
    float *y = take(other, FLOATS * sizeof(float), &memory);
    CHECK(y != x);
    check_sums(other, y, rank, world);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) { /* a child's copy is the parent's memory */
        tt__local_memory_free(memory);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
    check_sums(other, y, rank, world);
    tt__local_memory_free(memory);
    tt_destroy_process_group(other);
    tt_destroy_process_group(group);
    return 0;
}

static void a_failed_group_s_ranges_are_not_given_out_again(void **state) {
    (void)state;
    with_ranks(2, failed_body, NULL);
}

static int alone_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt__local_memory *memory;
    void *at;
    CHECK(!setenv("TT_TRANSPORT", "tcp", 1));
    tt_group *group = join_group(store, rank, world);
    CHECK(!tt__local_memory_is_there(group));
    CHECK(tt__local_memory_alloc(group, 1, &memory, &at) == TT_ERR_UNSUPPORTED && !memory && !at);
    CHECK(tt__local_memory_alloc(NULL, 1, &memory, &at) == TT_ERR_INVALID);
    tt__local_memory_free(NULL);
    tt_destroy_process_group(group);
    return 0;
}

static void without_shared_memory_there_is_none(void **state) {
    (void)state;
    with_ranks(1, alone_body, NULL);
    with_ranks(2, alone_body, NULL);
}

static int full_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    CHECK(!setenv("TT_SYMMETRIC_HEAP", "1M", 1));
    tt_group *group = join_group(store, rank, world);
    tt__local_memory *memory, *more;
    void *at;
    take(group, 1 << 20, &memory);
    CHECK(tt__local_memory_alloc(group, 1, &more, &at) == TT_ERR_MEMORY && !more);
    CHECK(tt__local_memory_alloc(group, SIZE_MAX, &more, &at) == TT_ERR_MEMORY);
    tt__local_memory_free(memory);
    take(group, 1 << 20, &memory);
    tt_destroy_process_group(group);
    tt__local_memory_free(memory);
    return 0;
}

static void a_full_heap_is_an_error_of_one_rank(void **state) {
    (void)state;
    with_ranks(2, full_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_may_lie_anywhere),
        cmocka_unit_test(it_outlives_its_group),
        cmocka_unit_test(a_failed_group_s_ranges_are_not_given_out_again),
        cmocka_unit_test(without_shared_memory_there_is_none),
        cmocka_unit_test(a_full_heap_is_an_error_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
