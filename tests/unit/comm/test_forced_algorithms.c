/* Algorithms on shared memory, forced by rank 0: the same bits, and the recorder has their names. */
#include "support/ranks.h"

#include "comm/collective/choose.h"

#include <math.h>
#include <sys/mman.h>

enum { RANKS = 3, BIG = 70001, MIDDLE = 20001, SMALL = 50, TINY = 2, ALL = BIG + MIDDLE + SMALL + TINY };

/* The algorithm of the newest call of `op`; "" where none is written down, as by an all_reduce at once. */
static const char *served_by(const tt_group *group, tt_op op) {
    const tt__recorder *recorder = &tt__world_control(group->native->world)->recorder;
    tt__call_record last = {0}, record;
    uint32_t newest = 0;
    for (uint32_t i = 0; i < TT__RECORDS; i++) {
        uint32_t number = atomic_load(&recorder->records[i].number);
        if (number > newest && tt__record_read(recorder, number, &record) && record.op == op) {
            last = record;
            newest = number;
        }
    }
    return last.algorithm ? tt__algorithm_name(last.algorithm) : "";
}

static void fill(float *x, int n, int rank) {
    for (int i = 0; i < n; i++)
        x[i] = sinf((float)(i * 31 + rank * 977)) * 100.0f;
}

typedef struct forced_case {
    const char *algorithms; /* of rank 0; the others pass something else */
    bool plain;
    const char *big, *middle, *small, *tiny; /* what is to serve; NULL: whatever */
    float (*results)[ALL];                   /* (RANKS), shared */
} forced_case;

static void reduce(tt_group *group, float *x, int n, const char *expected) {
    fill(x, n, tt_get_rank(group));
    CHECK_OK(tt_all_reduce(group, x, (size_t)n, TT_F32, TT_SUM));
    if (expected && strcmp(served_by(group, TT_OP_ALL_REDUCE), expected) != 0) {
        fprintf(stderr, "%d elements: expected %s, got %s\n", n, expected, served_by(group, TT_OP_ALL_REDUCE));
        _exit(1);
    }
}

static int forced_body(tt_store *store, int rank, int world, void *arg) {
    const forced_case *what = arg;
    tt_group *group = NULL;
    float *x = NULL, *own = malloc(BIG * sizeof *own), *result = what->results[rank];
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .algorithms = rank ? "no such thing" : what->algorithms));
    CHECK_OK(tt_group_alloc((void **)&x, group, BIG * sizeof *x));
    float *buffer = what->plain ? own : x;
    reduce(group, buffer, BIG, what->big);
    memcpy(result, buffer, BIG * sizeof *x);
    reduce(group, buffer, MIDDLE, what->middle);
    memcpy(result + BIG, buffer, MIDDLE * sizeof *x);
    reduce(group, buffer, SMALL, what->small);
    memcpy(result + BIG + MIDDLE, buffer, SMALL * sizeof *x);
    reduce(group, buffer, TINY, what->tiny);
    memcpy(result + BIG + MIDDLE + SMALL, buffer, TINY * sizeof *x);
    reduce(group, rank ? own : x, SMALL, NULL); /* some in place: nothing may hang */
    reduce(group, rank ? own : x, MIDDLE, NULL);
    tt_destroy_process_group(group);
    free(own);
    return 0;
}

static void the_named_algorithm_serves(void **state) {
    (void)state;
    size_t bytes = RANKS * sizeof(float[ALL]);
    forced_case cases[] = {
        {.algorithms = NULL},
        {.algorithms = NULL, .plain = true, .big = "staged", .middle = "carried"},
        {.algorithms = "all_reduce=staged", .big = "staged", .middle = "staged", .small = "staged", .tiny = "staged"},
        {.algorithms = "all_reduce = staged, broadcast=chain", .plain = true, .middle = "staged", .small = "staged"},
        {.algorithms = "all_reduce=carried", .plain = true, .big = "staged", .middle = "carried", .small = "inline"},
        {.algorithms = "all_reduce=carried", .big = "symmetric", .middle = "symmetric"},
        {.algorithms = "all_reduce=symmetric", .big = "symmetric", .small = "symmetric", .tiny = "symmetric"},
        {.algorithms = "all_reduce=symmetric", .plain = true, .big = "staged", .small = "inline", .tiny = "inline"},
        {.algorithms = "all_reduce=inline", .big = "symmetric", .small = "inline", .tiny = "inline"},
        {.algorithms = "all_reduce=ring"}, /* on messages: passed over */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].results = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(cases[i].results, MAP_FAILED);
        with_ranks(RANKS, forced_body, &cases[i]);
        assert_memory_equal(cases[i].results, cases[0].results, bytes);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        munmap(cases[i].results, bytes);
}

static int wrong_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                .algorithms = rank ? NULL : (const char *)arg) == TT_ERR_INVALID);
    CHECK(!group);
    CHECK_TEXT("rank 0");
    if (strlen(arg) < 1024)
        CHECK_TEXT("inline, carried, symmetric, staged");
    else
        CHECK_TEXT("at most 1023 characters");
    return 0;
}

/* An error lists the algorithms that exist, on all ranks. */
static void a_wrong_name_is_everybodys_error(void **state) {
    (void)state;
    char text[3000];
    with_ranks(2, wrong_body, "all_reduce=steged");
    with_ranks(1, wrong_body, "all_reduce=steged");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    with_ranks(2, wrong_body, text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_named_algorithm_serves),
                                       cmocka_unit_test(a_wrong_name_is_everybodys_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
