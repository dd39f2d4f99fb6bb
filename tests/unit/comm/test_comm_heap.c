/* The symmetric heap: same place everywhere, zeroed, aligned, reused; exhaustion is an error on all ranks. */
#include "support/ranks.h"

#include <sys/resource.h>

#include "base/build.h"
#include "comm/native_group.h"

enum { SLOTS = 12, ROUNDS = 300 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* The place in the own heap, compared over all ranks by an exact maximum and minimum. */
static void check_same_place(tt_group *group, const void *p) {
    int64_t offset = (const unsigned char *)p - group->native->bases[group->rank], low = offset, high = offset;
    CHECK_OK(tt_all_reduce(group, &low, 1, TT_I64, TT_MIN));
    CHECK_OK(tt_all_reduce(group, &high, 1, TT_I64, TT_MAX));
    CHECK(low == high);
}

static bool is_filled(const unsigned char *p, size_t bytes, int with) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != with)
            return false;
    return true;
}

static int random_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    unsigned char *at[SLOTS] = {0};
    size_t size[SLOTS] = {0};
    uint32_t random = 7;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned slot = next_random(&random) % SLOTS;
        if (at[slot]) {
            CHECK(is_filled(at[slot], size[slot], (int)slot + 1));
            CHECK_OK(tt_group_free(group, at[slot]));
            at[slot] = NULL;
            continue;
        }
        size[slot] = next_random(&random) % (round % 10 ? 20000 : 3000000);
        CHECK_OK(tt_group_alloc((void **)&at[slot], group, size[slot]));
        CHECK(at[slot] && (uintptr_t)at[slot] % 64 == 0);
        CHECK(is_filled(at[slot], size[slot], 0));
        memset(at[slot], (int)slot + 1, size[slot]);
        check_same_place(group, at[slot]);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        CHECK_OK(tt_group_free(group, at[slot]));
    const tt__heap *heap = &group->native->world->heap; /* the group's area, and all the rest */
    CHECK(heap->extents->used && heap->extents->next && !heap->extents->next->next && !heap->extents->next->used);
    CHECK(!heap->allocated && !group->allocations);
    CHECK(tt_group_free(group, &random) == TT_ERR_INVALID);
    void *a, *b;
    CHECK_OK(tt_group_alloc(&a, group, 0));
    CHECK_OK(tt_group_alloc(&b, group, 0));
    CHECK(a && b && a != b);
    tt_destroy_process_group(group);
    return 0;
}

static void random_sequences_agree(void **state) {
    (void)state;
    with_ranks(1, random_body, NULL);
    with_ranks(3, random_body, NULL);
}

/* Rank 1's heap is the smallest: what doesn't fit there is given to nobody. */
static int exhaust_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    CHECK(!setenv("TT_SYMMETRIC_HEAP", rank == 1 ? "1M" : "3M", 1));
    tt_group *group = join_group(store, rank, world);
    void *half, *p = &half, *rest;
    CHECK_OK(tt_group_alloc(&half, group, 512 << 10));
    CHECK(tt_group_alloc(&p, group, (512 << 10) + 1) == TT_ERR_MEMORY);
    CHECK_TEXT("TT_SYMMETRIC_HEAP");
    CHECK(!p);
    CHECK(tt_group_alloc(&p, group, SIZE_MAX) == TT_ERR_MEMORY);
    CHECK_OK(tt_group_alloc(&rest, group, 512 << 10));
    CHECK(tt_group_alloc(&p, group, 1) == TT_ERR_MEMORY);
    CHECK_OK(tt_group_free(group, half));
    CHECK_OK(tt_group_alloc(&p, group, 1));
    CHECK(p == half);
    tt_destroy_process_group(group);
    return 0;
}

static void exhaustion_is_an_error_everywhere(void **state) {
    (void)state;
    with_ranks(3, exhaust_body, NULL);
}

static int bad_size_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static const char *const bad[] = {
        "x", "12Q", "-1", "1", "99999999T", "0x100000", "111111111111111111111111111111111111"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tt_group *group = NULL;
        CHECK(!setenv("TT_SYMMETRIC_HEAP", bad[i], 1));
        CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world) == TT_ERR_INVALID);
        CHECK_TEXT("TT_SYMMETRIC_HEAP");
        CHECK(!group);
    }
    return 0;
}

static void bad_sizes_are_named(void **state) {
    (void)state;
    with_ranks(1, bad_size_body, NULL);
}

/* Batch systems limit the addresses of a process, and the sizes of its files. */
typedef struct limit_of {
    int resource;
    rlim_t bytes;
} limit_of;

static int limited_body(tt_store *store, int rank, int world, void *arg) {
    void *p;
    const limit_of *l = arg;
    const struct rlimit limit = {l->bytes, l->bytes};
    CHECK(!setrlimit(l->resource, &limit));
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_group_alloc(&p, group, 1 << 20));
    tt_destroy_process_group(group);
    return 0;
}

static void the_heap_fits_a_limit_of_addresses(void **state) {
    (void)state;
    if (TT__ASAN || TT__TSAN)
        skip(); /* a sanitizer's own memory does not fit the limit */
    with_ranks(4, limited_body, &(limit_of){RLIMIT_AS, (rlim_t)2 << 30});
    with_ranks(4, limited_body, &(limit_of){RLIMIT_AS, (rlim_t)300 << 20});
}

static void the_heap_fits_a_limit_of_files(void **state) {
    (void)state;
    with_ranks(2, limited_body, &(limit_of){RLIMIT_FSIZE, (rlim_t)100 << 20});
    with_ranks(2, limited_body, &(limit_of){RLIMIT_FSIZE, (rlim_t)12 << 20});
}

/* Join with room for few descriptors more: whoever fails by itself says what it lacks. */
static int few_descriptors_body(tt_store *store, int rank, int world, void *arg) {
    struct rlimit limit;
    tt_group *group = NULL;
    int next = dup(0);
    CHECK(!close(next) && !getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = (rlim_t)(next + *(const int *)arg);
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world,
                                             .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS);
    if (status && status != TT_ERR_PEER)
        CHECK_TEXT("ulimit -n");
    CHECK(status || !tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static int tiny_files_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    const struct rlimit limit = {1 << 20, 1 << 20};
    (void)arg;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world) == TT_ERR_MEMORY);
    CHECK_TEXT("ulimit -f");
    return 0;
}

static void limits_that_leave_too_little_are_named(void **state) {
    (void)state;
    with_ranks(1, tiny_files_body, NULL);
    for (int few = 0; few < 10; few++)
        with_ranks(2, few_descriptors_body, &few);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences_agree),
        cmocka_unit_test(exhaustion_is_an_error_everywhere),
        cmocka_unit_test(bad_sizes_are_named),
        cmocka_unit_test(the_heap_fits_a_limit_of_addresses),
        cmocka_unit_test(the_heap_fits_a_limit_of_files),
        cmocka_unit_test(limits_that_leave_too_little_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
