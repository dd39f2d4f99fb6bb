/* reducer: how gradients are put into buckets, and averaged while others are still computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/reducer.h>

#include <cmocka.h>

#include "reducer/reducer.h"
#include "support/ranks.h"
#include "support/reducer_trace.h"

#define MIB ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- buckets ---- */

static void buckets_are_pytorchs(void **state) {
    (void)state;
    enum { MAX = 6 };
    static const struct {
        size_t limits[2], limit_count, count;
        tt__bucket_item items[MAX];
        size_t buckets, bucket_of[MAX];
    } cases[] = {
        {{MIB, 25 * MIB}, 2, 4, {{MIB / 2, 0}, {MIB / 2, 0}, {64, 0}, {64, 0}}, 2, {0, 0, 1, 1}},
        {{MIB, 25 * MIB},
         2,
         6,
         {{MIB, 0}, {10 * MIB, 0}, {10 * MIB, 0}, {10 * MIB, 0}, {4 * MIB, 0}, {64, 0}},
         3,
         {0, 1, 1, 1, 2, 2}},
        {{MIB, 25 * MIB}, 2, 3, {{100 * MIB, 0}, {64, 0}, {64, 0}}, 2, {0, 1, 1}},
        {{MIB, 25 * MIB}, 2, 4, {{64, TT_F32}, {64, TT_F64}, {64, TT_F32}, {64, TT_F64}}, 2, {0, 1, 0, 1}},
        {{2 * MIB}, 1, 5, {{MIB, 0}, {MIB, 0}, {MIB, 0}, {MIB, 0}, {MIB, 0}}, 3, {0, 0, 1, 1, 2}},
        {{1}, 1, 3, {{64, 0}, {0, 0}, {64, 0}}, 2, {0, 1, 1}},
        /* f64 closes first, though f32 was opened first; each dtype has limits of its own */
        {{MIB, 25 * MIB}, 2, 4, {{64, TT_F32}, {MIB, TT_F64}, {MIB, TT_F64}, {MIB, TT_F32}}, 3, {1, 0, 2, 1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t bucket_of[MAX];
        assert_int_equal(
            tt__bucket_assign(cases[i].items, cases[i].count, cases[i].limits, cases[i].limit_count, bucket_of),
            cases[i].buckets);
        for (size_t k = 0; k < cases[i].count; k++)
            assert_int_equal(bucket_of[k], cases[i].bucket_of[k]);
    }
}

/* 3 x Linear(512,512), Linear(512,10): what PyTorch's DDP shows from its second iteration on. */
static const tt_reducer_param deep[] = {
    {"1.weight", 262144, TT_F32}, {"1.bias", 512, TT_F32}, {"2.weight", 262144, TT_F32}, {"2.bias", 512, TT_F32},
    {"3.weight", 262144, TT_F32}, {"3.bias", 512, TT_F32}, {"4.weight", 5120, TT_F32},   {"4.bias", 10, TT_F32},
};

static void deep_models_buckets(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    static const int64_t expected[] = {1, 1, 1, 1, 0, 0, 0, 0};
    tt_reducer *r;
    CHECK(tt_reducer_new(&r, group, deep, COUNT(deep)) == TT_OK);
    CHECK(tt_reducer_bucket_count(r) == 2);
    for (int i = 0; i < (int)COUNT(deep); i++) {
        CHECK(tt_reducer_bucket_of(r, i) == expected[i]);
        CHECK((uintptr_t)tt_reducer_gradient(r, i) % 64 == 0);
        for (int64_t k = 0; k < deep[i].count; k++)
            CHECK(((float *)tt_reducer_gradient(r, i))[k] == 0);
    }
    CHECK(tt_reducer_gradient(r, COUNT(deep)) == NULL && tt_reducer_gradient(r, -1) == NULL);
    CHECK(tt_reducer_bucket_of(r, -1) == -1);
    CHECK(tt_reducer_bucket_of(r, COUNT(deep)) == -1);
    tt_reducer_free(r);
}

static void a_deep_model_gets_pytorchs_buckets(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, deep_models_buckets, NULL), 0);
}

/* ---- averages ---- */

/* A few types and sizes, an empty one too. */
static const tt_reducer_param mixed[] = {
    {"a", 1000, TT_F32}, {"b", 7, TT_F64}, {"c", 0, TT_F32}, {"d", 33, TT_F32}, {"e", 1, TT_F64},
};

/* Something exact in f32 and f64: a multiple of 1/8. */
static double value(int rank, int step, size_t param, size_t k) {
    return (double)((rank * 31 + step * 17 + (int)param * 7 + (int)k * 3) % 64 - 32) / 8;
}

static void set(void *gradient, tt_dtype dtype, size_t k, double v) {
    if (dtype == TT_F32)
        ((float *)gradient)[k] = (float)v;
    else
        ((double *)gradient)[k] = v;
}

static double get(const void *gradient, tt_dtype dtype, size_t k) {
    return dtype == TT_F32 ? (double)((const float *)gradient)[k] : ((const double *)gradient)[k];
}

/* Ranks mark in different orders: the order of buckets is the same all the same. */
static void fill_and_mark(tt_reducer *r, int rank, int step) {
    for (size_t n = 0; n < COUNT(mixed); n++) {
        size_t p = (n * 3 + (size_t)(rank + step)) % COUNT(mixed);
        for (size_t k = 0; k < (size_t)mixed[p].count; k++)
            set(tt_reducer_gradient(r, p), mixed[p].dtype, k, value(rank, step, p, k));
        CHECK(tt_reducer_mark_ready(r, p) == TT_OK);
    }
    CHECK(tt_reducer_finish(r) == TT_OK);
}

static void check_averages(tt_reducer *r, int world, int step) {
    for (size_t p = 0; p < COUNT(mixed); p++)
        for (size_t k = 0; k < (size_t)mixed[p].count; k++) {
            double sum = 0;
            for (int rank = 0; rank < world; rank++)
                sum += value(rank, step, p, k);
            double is = get(tt_reducer_gradient(r, p), mixed[p].dtype, k);
            CHECK(is >= sum / world - 1e-5 && is <= sum / world + 1e-5);
            CHECK((world & (world - 1)) != 0 || is == sum / world); /* exact for powers of two */
        }
}

static void average_steps(tt_group *group, int rank, void *user) {
    static const size_t caps[] = {0, 1, 256};
    (void)user;
    for (size_t c = 0; c < COUNT(caps); c++) {
        tt_reducer *r;
        CHECK(tt_reducer_new(&r, group, mixed, COUNT(mixed), .bucket_cap_bytes = caps[c]) == TT_OK);
        for (int step = 0; step < 5; step++) {
            fill_and_mark(r, rank, step);
            check_averages(r, tt_get_world_size(group), step);
        }
        tt_reducer_free(r);
    }
}

static void gradients_are_averaged(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4};
    for (size_t i = 0; i < COUNT(worlds); i++)
        assert_int_equal(run_ranks(worlds[i], average_steps, NULL), 0);
}

/* ---- overlap ---- */

static void count_release(void *user) { ++*(int *)user; }

static size_t find(const reducer_trace *t, tt_reducer_event_kind kind, int64_t index) {
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].kind == kind && t->events[i].index == index) {
            CHECK(at == SIZE_MAX); /* once a step */
            at = i;
        }
    CHECK(at != SIZE_MAX);
    return at;
}

/* Cap of one byte: a bucket for each. The first marked is begun at once; one whose turn has not come waits. */
static void trace_a_step(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    enum { N = 4 };
    static const tt_reducer_param params[N] = {{"a", 8, TT_F32}, {"b", 8, TT_F32}, {"c", 8, TT_F32}, {"d", 8, TT_F32}};
    static const size_t order[N] = {3, 1, 2, 0};
    tt_reducer *r;
    CHECK(tt_reducer_new(&r, group, params, N, .bucket_cap_bytes = 1) == TT_OK);
    CHECK(tt_reducer_bucket_count(r) == N && tt_reducer_bucket_of(r, 3) == 0 && tt_reducer_bucket_of(r, 0) == 3);
    for (int step = 0; step < 2; step++) {
        reducer_trace t = {.count = 0};
        tt_reducer_set_trace(r, reducer_trace_note, &t);
        for (int i = 0; i < N; i++)
            CHECK(tt_reducer_mark_ready(r, order[i]) == TT_OK);
        CHECK(tt_reducer_finish(r) == TT_OK);
        CHECK(t.count == 3 * N);
        for (size_t b = 0; b < N; b++) {
            CHECK(find(&t, TT_REDUCER_BEGIN, b) < find(&t, TT_REDUCER_END, b));
            CHECK(find(&t, TT_REDUCER_READY, N - 1 - b) < find(&t, TT_REDUCER_BEGIN, b));
            CHECK(b == 0 || find(&t, TT_REDUCER_BEGIN, b - 1) < find(&t, TT_REDUCER_BEGIN, b));
            CHECK(b == 0 || find(&t, TT_REDUCER_END, b - 1) < find(&t, TT_REDUCER_END, b));
        }
        CHECK(find(&t, TT_REDUCER_BEGIN, 0) < find(&t, TT_REDUCER_READY, 0)); /* begun before the last was ready */
        CHECK(find(&t, TT_REDUCER_BEGIN, 2) >
              find(&t, TT_REDUCER_READY, 2)); /* b was ready, but c's bucket goes first */
        for (size_t i = 1; i < t.count; i++)
            CHECK(t.events[i - 1].time_ns <= t.events[i].time_ns);
    }
    int released = 0;
    tt_reducer_set_trace(r, reducer_trace_note, &released, .destroy = count_release);
    tt_reducer_set_trace(r, reducer_trace_note, &released, .destroy = count_release);
    CHECK(released == 1);
    tt_reducer_set_trace(r, NULL, NULL);
    CHECK(released == 2);
    tt_reducer_set_trace(r, NULL, &released, .destroy = count_release);
    tt_reducer_free(r);
    CHECK(released == 3);
}

static void reductions_begin_before_the_last_gradient(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, trace_a_step, NULL), 0);
}

/* ---- mistakes ---- */

static const tt_reducer_param same[] = {{"net1.weight", 100, TT_F32}, {"net1.bias", 10, TT_F32}};
static const tt_reducer_param other_count[] = {{"net1.weight", 100, TT_F32}, {"net1.bias", 11, TT_F32}};
static const tt_reducer_param other_name[] = {{"net1.w", 100, TT_F32}, {"net1.bias", 10, TT_F32}};
static const tt_reducer_param other_dtype[] = {{"net1.weight", 100, TT_F64}, {"net1.bias", 10, TT_F32}};
static const tt_reducer_param more[] = {
    {"net1.weight", 100, TT_F32}, {"net1.bias", 10, TT_F32}, {"net2.bias", 1, TT_F32}};

typedef struct Mismatch {
    const tt_reducer_param *params; /* of rank 2; the others have `same` */
    size_t count, cap;
    const char *text;
} Mismatch;

static void create_unlike(tt_group *group, int rank, void *user) {
    const Mismatch *m = user;
    tt_reducer *r = (tt_reducer *)user;
    tt_status status = rank == 2 ? tt_reducer_new(&r, group, m->params, m->count, .bucket_cap_bytes = m->cap)
                                 : tt_reducer_new(&r, group, same, COUNT(same));
    CHECK(status == TT_ERR_MISMATCH && r == NULL);
    CHECK(strstr(tt_last_error(), m->text));
    /* the group is as usable as before */
    CHECK(tt_reducer_new(&r, group, same, COUNT(same)) == TT_OK);
    tt_reducer_free(r);
}

static void ranks_that_differ_are_named(void **state) {
    (void)state;
    static Mismatch cases[] = {
        {other_count, 2, 0,
         "rank 2 has parameter 1 \"net1.bias\" f32 x 11 where rank 0 has parameter 1 \"net1.bias\" f32 x 10"},
        {other_name, 2, 0, "rank 2 has parameter 0 \"net1.w\" f32 x 100 where rank 0 has parameter 0 \"net1.weight\""},
        {other_dtype, 2, 0, "\"net1.weight\" f64 x 100 where"},
        {more, 3, 0, "rank 2 has parameter 2 \"net2.bias\" f32 x 1 where rank 0 has nothing more"},
        {same, 1, 0, "rank 2 has nothing more where rank 0 has parameter 1 \"net1.bias\""},
        {same, 2, 77, "rank 2 has bucket_cap_bytes 77 where rank 0 has bucket_cap_bytes 0"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(run_ranks(3, create_unlike, &cases[i]), 0);
}

static void misuse(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    static const tt_reducer_param integer[] = {{"steps", 3, TT_I64}}, unnamed[] = {{NULL, 3, TT_F32}};
    static const tt_reducer_param huge[] = {{"w", INT64_MAX / 2, TT_F32}}, negative[] = {{"w", -3, TT_F32}};
    tt_reducer *r;
    CHECK(tt_reducer_new(&r, group, NULL, 0) == TT_ERR_INVALID && !r);
    CHECK(tt_reducer_new(&r, NULL, same, 2) == TT_ERR_INVALID && !r);
    CHECK(tt_reducer_new(NULL, group, same, 2) == TT_ERR_INVALID);
    CHECK(tt_reducer_new(&r, group, integer, 1) == TT_ERR_INVALID && strstr(tt_last_error(), "steps"));
    CHECK(tt_reducer_new(&r, group, unnamed, 1) == TT_ERR_INVALID);
    CHECK(tt_reducer_new(&r, group, huge, 1) == TT_ERR_INVALID && strstr(tt_last_error(), "which is too many"));
    CHECK(tt_reducer_new(&r, group, negative, 1) == TT_ERR_INVALID &&
          strstr(tt_last_error(), "\"w\": expected a count"));
    CHECK(tt_reducer_new(&r, group, same, -1) == TT_ERR_INVALID && strstr(tt_last_error(), "got a list of -1"));
    CHECK(tt_reducer_mark_ready(NULL, 0) == TT_ERR_INVALID && tt_reducer_finish(NULL) == TT_ERR_INVALID);
    CHECK(tt_reducer_mark_unused(NULL, 0) == TT_ERR_INVALID && !tt_reducer_was_used(NULL, 0));
    CHECK(tt_reducer_new(&r, group, same, 2) == TT_OK);
    CHECK(tt_reducer_mark_ready(r, 2) == TT_ERR_INVALID && tt_reducer_mark_ready(r, -1) == TT_ERR_INVALID);
    CHECK(tt_reducer_mark_unused(r, 2) == TT_ERR_INVALID && strstr(tt_last_error(), "tt_reducer_mark_unused"));
    CHECK(!tt_reducer_was_used(r, 0) && !tt_reducer_was_used(r, 2));
    CHECK(tt_reducer_mark_ready(r, 1) == TT_OK);
    CHECK(tt_reducer_mark_unused(r, 1) == TT_ERR_STATE && strstr(tt_last_error(), "net1.bias"));
    CHECK(tt_reducer_mark_ready(r, 1) == TT_ERR_STATE && strstr(tt_last_error(), "net1.bias"));
    CHECK(tt_reducer_finish(r) == TT_ERR_STATE &&
          strstr(tt_last_error(), "\"net1.weight\" got no gradient in this step, and"));
    CHECK(tt_reducer_mark_ready(r, 0) == TT_ERR_STATE && tt_reducer_finish(r) == TT_ERR_STATE);
    char before[256];
    snprintf(before, sizeof before, "%s", tt_last_error());
    tt_reducer_free(r);
    tt_reducer_free(NULL);
    CHECK(strcmp(before, tt_last_error()) == 0); /* freeing hides no error */
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, misuse, NULL), 0);
    assert_int_equal(run_ranks(2, misuse, NULL), 0);
}

/* ---- parameters without a gradient ---- */

static void put(void *at, tt_dtype dtype, double x) {
    uint16_t f16 = x == 2 ? 0x4000 : 0x4200, bf16 = x == 2 ? 0x4000 : 0x4040; /* 2 or 3 */
    if (dtype == TT_F32)
        *(float *)at = (float)x;
    else if (dtype == TT_F64)
        *(double *)at = x;
    else
        *(uint16_t *)at = dtype == TT_F16 ? f16 : bf16;
}

static bool is_number(const void *at, tt_dtype dtype, double x) {
    unsigned char expected[8];
    put(expected, dtype, x);
    return !memcmp(at, expected, tt_dtype_size(dtype));
}

/* Parameter 0 is used by rank 1, 1 by nobody, 2 by all. */
static void use_some(tt_group *group, int rank, void *user) {
    tt_dtype dtype = *(tt_dtype *)user;
    const tt_reducer_param params[] = {{"a", 1, dtype}, {"b", 1, dtype}, {"c", 1, dtype}};
    tt_reducer *r;
    CHECK(tt_reducer_new(&r, group, params, COUNT(params)) == TT_OK);
    for (int step = 0; step < 3; step++) {
        put(tt_reducer_gradient(r, 0), dtype, 2);
        put(tt_reducer_gradient(r, 1), dtype, rank ? 2 : 3);
        put(tt_reducer_gradient(r, 2), dtype, 3);
        CHECK((rank == 1 ? tt_reducer_mark_ready(r, 0) : tt_reducer_mark_unused(r, 0)) == TT_OK);
        CHECK(tt_reducer_mark_unused(r, 1) == TT_OK && tt_reducer_mark_ready(r, 2) == TT_OK);
        CHECK(tt_reducer_finish(r) == TT_OK);
        CHECK(tt_reducer_was_used(r, 0) && !tt_reducer_was_used(r, 1) && tt_reducer_was_used(r, 2));
        CHECK(is_number(tt_reducer_gradient(r, 0), dtype, 2));
        CHECK(is_number(tt_reducer_gradient(r, 1), dtype, rank ? 2 : 3)); /* not averaged */
        CHECK(is_number(tt_reducer_gradient(r, 2), dtype, 3));
    }
    tt_reducer_free(r);
}

static void what_no_rank_uses_stays_as_it_was(void **state) {
    (void)state;
    static tt_dtype dtypes[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
    for (size_t i = 0; i < COUNT(dtypes); i++)
        for (int world = 2; world < 5; world += 2)
            assert_int_equal(run_ranks(world, use_some, &dtypes[i]), 0);
}

/* A rank that dies in the middle of a step ends it for the others, and freeing waits for nobody. */
static void die_in_step(tt_group *group, int rank, void *user) {
    (void)user;
    tt_reducer *r;
    CHECK(tt_reducer_new(&r, group, same, 2, .bucket_cap_bytes = 1) == TT_OK);
    for (int step = 0; step < 2; step++) {
        tt_status status = tt_reducer_mark_ready(r, 1);
        if (rank == 1 && step == 1)
            _exit(0);
        if (!status)
            status = tt_reducer_mark_ready(r, 0);
        if (!status)
            status = tt_reducer_finish(r);
        CHECK(step == 0 ? status == TT_OK : status == TT_ERR_PEER && strstr(tt_last_error(), "rank 1"));
    }
    CHECK(tt_reducer_mark_ready(r, 0) == TT_ERR_STATE);
    tt_reducer_free(r);
}

static void a_dead_rank_ends_the_step(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, die_in_step, NULL), 0);
}

/* Freed in the order in which PyTorch's users end things: the group first. */
static int outlive_the_group(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_reducer *r;
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_reducer_new(&r, group, same, 2));
    CHECK_OK(tt_reducer_mark_ready(r, 1)); /* with a reduction under way */
    tt_destroy_process_group(group);
    *(float *)tt_reducer_gradient(r, 0) = 1;
    CHECK(tt_reducer_mark_ready(r, 0) == TT_ERR_STATE);
    CHECK_TEXT("destroyed");
    CHECK(tt_barrier(group) == TT_ERR_STATE);
    tt_destroy_process_group(group); /* once more is no harm while something stands on it */
    tt_reducer_free(r);
    return 0;
}

static void a_reducer_may_outlive_its_group(void **state) {
    (void)state;
    with_ranks(1, outlive_the_group, NULL);
    with_ranks(2, outlive_the_group, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_pytorchs),
        cmocka_unit_test(a_deep_model_gets_pytorchs_buckets),
        cmocka_unit_test(gradients_are_averaged),
        cmocka_unit_test(reductions_begin_before_the_last_gradient),
        cmocka_unit_test(ranks_that_differ_are_named),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(what_no_rank_uses_stays_as_it_was),
        cmocka_unit_test(a_dead_rank_ends_the_step),
        cmocka_unit_test(a_reducer_may_outlive_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
