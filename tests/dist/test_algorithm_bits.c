/* Every algorithm on messages, forced, over real links: the same bits as shared memory gives, which takes none of them.
 * (In simulation, with many more worlds and sizes: unit/test_algorithms.) */
#include "support/hosts.h"
#include "support/ranks.h"

#include "comm/collective/choose.h"

#include <sys/mman.h>

enum { COUNT = 3001, BIG = 90001, RANKS = 4 };

/* A rank's results of one call of each kind, one after the other. */
typedef struct results {
    float all_reduce[BIG], reduce[COUNT], reduce_scatter[COUNT], broadcast[COUNT], all_gather[RANKS * COUNT];
    float all_gather_v[RANKS * COUNT], gather[RANKS * COUNT], scatter[COUNT], all_to_all[RANKS * COUNT];
    float all_to_all_v[RANKS * COUNT], coalesced[COUNT];
} results;

static void fill(float *x, size_t n, int rank) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((i * 7919 + (size_t)rank * 104729) % 10007) / 771.0f - 6.0f;
}

static int64_t uneven(int from, int to) { return (from * 2 + to * 3) % 5 * 150; }

static void call_all(tt_group *group, results *r) {
    static float send[RANKS * COUNT];
    int rank = tt_get_rank(group), world = tt_get_world_size(group);
    int64_t counts[RANKS], gives[RANKS], gets[RANKS], halves[2] = {COUNT / 2, COUNT - COUNT / 2};
    void *parts[2] = {r->coalesced, r->coalesced + COUNT / 2};
    for (int i = 0; i < world; i++) {
        counts[i] = uneven(i, 1);
        gives[i] = uneven(rank, i);
        gets[i] = uneven(i, rank);
    }
    fill(send, RANKS * COUNT, rank);
    fill(r->all_reduce, BIG, rank);
    fill(r->reduce, COUNT, rank);
    fill(r->broadcast, COUNT, rank);
    fill(r->coalesced, COUNT, rank);
    CHECK_OK(tt_all_reduce(group, r->all_reduce, BIG, TT_F32, TT_AVG));
    CHECK_OK(tt_all_reduce(group, r->all_reduce, 5, TT_F32, TT_SUM));
    CHECK_OK(tt_reduce(group, r->reduce, COUNT, TT_F32, TT_SUM, world - 1));
    CHECK_OK(tt_reduce_scatter(group, send, r->reduce_scatter, COUNT, TT_F32, TT_PREMUL_SUM, .factor = 1 + rank / 3.0));
    CHECK_OK(tt_broadcast(group, r->broadcast, COUNT, TT_F32, world / 2));
    CHECK_OK(tt_all_gather(group, send, r->all_gather, COUNT, TT_F32));
    CHECK_OK(tt_all_gather_v(group, send, r->all_gather_v, counts, NULL, TT_F32));
    CHECK_OK(tt_gather(group, send, r->gather, COUNT, TT_F32, 1 % world));
    CHECK_OK(tt_scatter(group, send, r->scatter, COUNT, TT_F32, 1 % world));
    CHECK_OK(tt_all_to_all(group, send, r->all_to_all, COUNT, TT_F32));
    CHECK_OK(tt_all_to_all_v(group, send, gives, NULL, r->all_to_all_v, gets, NULL, TT_F32));
    CHECK_OK(tt_all_reduce_coalesced(group, parts, halves, 2, TT_F32, TT_MAX));
    CHECK_OK(tt_barrier(group));
}

typedef struct run {
    enum hosts hosts;
    const char *algorithms;
    results *all; /* (RANKS), shared */
} run;

static int run_calls(tt_store *store, int rank, int world, void *arg) {
    const run *what = arg;
    tt_group *group = NULL;
    hosts_enter(what->hosts, rank);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = 60000,
                                   .algorithms = what->algorithms));
    call_all(group, &what->all[rank]);
    tt_destroy_process_group(group);
    return 0;
}

static results *run_once(int world, enum hosts hosts, const char *algorithms) {
    results *all = mmap(NULL, RANKS * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    with_ranks(world, run_calls, &(run){.hosts = hosts, .algorithms = algorithms, .all = all});
    return all;
}

static void check_algorithm(const tt__algorithm *algorithm, int world, enum hosts hosts, const results *expected) {
    char forced[80];
    snprintf(forced, sizeof forced, "%s=%s", tt_op_name(algorithm->op), algorithm->name);
    results *got = run_once(world, hosts, forced);
    for (int r = 0; r < world; r++)
        if (memcmp(&got[r], &expected[r], sizeof *got) != 0)
            fail_msg("%s, %d ranks, %s: rank %d differs from shared memory", forced, world, hosts_name(hosts), r);
    munmap(got, RANKS * sizeof *got);
}

static void check_hosts(int world, enum hosts hosts) {
    results *expected = run_once(world, HOSTS_ONE, NULL);
    for (size_t i = 0; i < tt__algorithm_count; i++) {
        const tt__algorithm *a = tt__algorithms[i];
        bool hierarchical = !strcmp(a->name, "hierarchical");
        if (!a->shared && a->op <= TT_OP_ALL_TO_ALL_V && !a->own_order && (hosts != HOSTS_PAIRS || hierarchical))
            check_algorithm(a, world, hosts, expected);
    }
    munmap(expected, RANKS * sizeof *expected);
}

static void test_tcp(void **state) {
    (void)state;
    check_hosts(3, HOSTS_TCP);
    check_hosts(4, HOSTS_ALONE);
}

static void test_shared_memory_inside_hosts(void **state) {
    (void)state;
    check_hosts(4, HOSTS_PAIRS);
}

/* ---- few elements, or none, on any number of ranks */

enum { MOST_FEW = 37, FEW_RANKS = 8 };

/* all_reduce and reduce of i + rank, and what only moves elements; every result is a whole number. */
static void call_with_few(tt_group *group, int64_t n) {
    float x[MOST_FEW], sum[MOST_FEW], all[FEW_RANKS * MOST_FEW], back[FEW_RANKS * MOST_FEW], part[MOST_FEW];
    int rank = tt_get_rank(group), world = tt_get_world_size(group);
    for (int i = 0; i < MOST_FEW; i++)
        x[i] = sum[i] = (float)(i + rank);
    CHECK_OK(tt_all_reduce(group, sum, n, TT_F32, TT_SUM));
    for (int i = 0; i < n; i++)
        CHECK((int)sum[i] == world * i + world * (world - 1) / 2);
    memcpy(sum, x, sizeof sum);
    CHECK_OK(tt_reduce(group, sum, n, TT_F32, TT_MAX, world - 1));
    for (int i = 0; i < n; i++)
        CHECK(sum[i] == x[i]); /* the root's is the largest; the others' stay */
    CHECK_OK(tt_all_gather(group, x, all, n, TT_F32));
    for (int i = 0; i < n * world; i++)
        CHECK((int)all[i] == i % (int)n + i / (int)n);
    CHECK_OK(tt_all_to_all(group, all, back, n, TT_F32));
    for (int i = 0; i < n * world; i++)
        CHECK(back[i] == (float)(i % n + rank));
    CHECK_OK(tt_reduce_scatter(group, all, part, n, TT_F32, TT_SUM));
    for (int i = 0; i < n; i++)
        CHECK(part[i] == (float)(world * (i + rank)));
    CHECK_OK(tt_scatter(group, all, part, n, TT_F32, 0));
    for (int i = 0; i < n; i++)
        CHECK(part[i] == x[i]);
    CHECK_OK(tt_gather(group, part, back, n, TT_F32, 0));
    for (int i = 0; i < n * world && !rank; i++)
        CHECK(back[i] == all[i]);
    CHECK_OK(tt_broadcast(group, part, n, TT_F32, world / 2));
    for (int i = 0; i < n; i++)
        CHECK((int)part[i] == i + world / 2);
}

static int run_few(tt_store *store, int rank, int world, void *arg) {
    static const int64_t counts[] = {0, 1, 0, MOST_FEW};
    const run *what = arg;
    tt_group *group = NULL;
    hosts_enter(what->hosts, rank);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = 60000,
                                   .algorithms = what->algorithms));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        call_with_few(group, counts[i]);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

/* Write "all_reduce=ring,reduce=direct,...": of each operation the algorithm number k of those on shared memory or on
 * messages. False: no operation has so many. */
static bool force(int k, bool shared, int world, char *text, size_t size) {
    int seen[TT_OP_ALL_TO_ALL_V + 1] = {0};
    size_t used = 0;
    for (size_t i = 0; i < tt__algorithm_count; i++) {
        const tt__algorithm *a = tt__algorithms[i];
        bool elsewhere = !strcmp(a->name, "hierarchical") || (world & (world - 1) && a->serves);
        if (a->shared == shared && a->op <= TT_OP_ALL_TO_ALL_V && !elsewhere && seen[a->op]++ == k)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? "," : "", tt_op_name(a->op), a->name);
    }
    return used;
}

static void test_few_elements(void **state) {
    char algorithms[400];
    (void)state;
    for (int world = 1; world <= FEW_RANKS; world++)
        for (int k = 0; world_is_tried(world) && force(k, true, world, algorithms, sizeof algorithms); k++)
            with_ranks(world, run_few, &(run){.hosts = HOSTS_ONE, .algorithms = algorithms});
    for (int world = 2; world <= FEW_RANKS; world++)
        for (int k = 0; world_is_tried(world) && force(k, false, world, algorithms, sizeof algorithms); k++)
            with_ranks(world, run_few, &(run){.hosts = HOSTS_TCP, .algorithms = algorithms});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tcp), cmocka_unit_test(test_shared_memory_inside_hosts),
                                       cmocka_unit_test(test_few_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
