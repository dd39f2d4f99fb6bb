/* The library's communication hooks against naive references. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "parallel/hooks/comm_hook.h"
#include "support/given_gradients.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What each test of a hook runs: the hook on each rank, and beside it the naive one for all ranks. */
typedef struct checked_hook {
    const char *name;
    tt_status (*set)(tt_module *ddp);
    /* `all`: the gradients of all ranks. out: the averages. State from step to step is in statics, begun at step 0. */
    void (*naive)(drawn_step *all, int world, int step, drawn_step *out);
    float tolerance; /* 0: to the bit */
} checked_hook;

static void naive_average(drawn_step *all, int world, int step, drawn_step *out) {
    (void)step;
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < elements(p); k++) {
            double sum = 0;
            for (int r = 0; r < world; r++)
                sum += (double)all[r].gradients[p][k];
            out->gradients[p][k] = (float)(sum / world);
        }
}

/* On more than two ranks the order of a sum of f32 may move the last of 16 bits: see `tolerance`. */
static void naive_half(drawn_step *all, int world, drawn_step *out, uint16_t (*narrow)(float),
                       float (*widen)(uint16_t)) {
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < elements(p); k++) {
            float sum = 0;
            for (int r = 0; r < world; r++)
                sum += widen(narrow(widen(narrow(all[r].gradients[p][k])) / (float)world));
            out->gradients[p][k] = widen(narrow(sum));
        }
}
static uint16_t to_f16(float x) { return tt__f16_of_float(x); }
static uint16_t to_bf16(float x) { return tt__bf16_of_float(x); }
static float of_f16(uint16_t x) { return tt__float_of_f16(x); }
static float of_bf16(uint16_t x) { return tt__float_of_bf16(x); }
static void naive_f16(drawn_step *all, int world, int step, drawn_step *out) {
    (void)step;
    naive_half(all, world, out, to_f16, of_f16);
}
static void naive_bf16(drawn_step *all, int world, int step, drawn_step *out) {
    (void)step;
    naive_half(all, world, out, to_bf16, of_bf16);
}

/* The largest of each gradient, found by sorting. */
static const float *sorted_of;
static int by_magnitude(const void *a, const void *b) {
    int i = *(const int *)a, j = *(const int *)b;
    float x = fabsf(sorted_of[i]), y = fabsf(sorted_of[j]);
    return x > y ? -1 : x < y ? 1 : i - j;
}

static void naive_top_k_of(drawn_step *all, int world, int step, drawn_step *out, double density, bool feedback) {
    static drawn_step errors[MOST_RANKS];
    if (step == 0)
        memset(errors, 0, sizeof errors);
    memset(out, 0, sizeof *out);
    for (int r = 0; r < world; r++)
        for (int p = 0; p < PARAMS; p++) {
            int order[LARGEST];
            float *x = all[r].gradients[p], *error = errors[r].gradients[p];
            int64_t n = elements(p), k = (int64_t)ceil(density * (double)n);
            for (int64_t i = 0; i < n; i++) {
                order[i] = (int)i;
                error[i] = feedback ? x[i] + error[i] : x[i];
            }
            sorted_of = error;
            qsort(order, (size_t)n, sizeof *order, by_magnitude);
            for (int64_t i = 0; i < k; i++) {
                out->gradients[p][order[i]] += error[order[i]];
                error[order[i]] = 0;
            }
        }
    for (int p = 0; p < PARAMS; p++)
        for (int64_t i = 0; i < elements(p); i++)
            out->gradients[p][i] /= (float)world;
}
static void naive_top_k(drawn_step *all, int world, int step, drawn_step *out) {
    naive_top_k_of(all, world, step, out, 0.05, true);
}
static void naive_top_k_forgetful(drawn_step *all, int world, int step, drawn_step *out) {
    naive_top_k_of(all, world, step, out, 0.3, false);
}

/* 8 bits, by the book, in a flat bucket as the reducer lays it out: parameters in reverse order, each from a multiple
 * of 16 elements on. */
enum { FLAT = 4096, BLOCK = 64 };
static int64_t offset_of(int p) {
    int64_t at = 0;
    for (int q = PARAMS - 1; q > p; q--)
        at += (elements(q) + 15) / 16 * 16;
    return at;
}

/* x (n), the values and their error := what 8 bits make of them, and what is left. */
static void naive_round(float *x, float *error, int64_t n) {
    for (int64_t at = 0; at < n; at += BLOCK) {
        float most = 0;
        for (int64_t i = at; i < at + BLOCK && i < n; i++)
            most = fmaxf(most, fabsf(x[i]));
        for (int64_t i = at; i < at + BLOCK && i < n; i++) {
            float scale = most / 127, whole = most > 0 ? rintf(x[i] * (1 / scale)) : 0;
            error[i] = x[i] - whole * scale;
            x[i] = whole * scale;
        }
    }
}

static void naive_int8(drawn_step *all, int world, int step, drawn_step *out) {
    static float errors[MOST_RANKS][FLAT], average_error[FLAT], flat[FLAT], sum[FLAT];
    int64_t n = offset_of(0) + (elements(0) + 15) / 16 * 16, blocks = (n + BLOCK - 1) / BLOCK;
    int64_t slice = (blocks + world - 1) / world * BLOCK;
    if (step == 0) {
        memset(errors, 0, sizeof errors);
        memset(average_error, 0, sizeof average_error);
    }
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < world; r++) {
        memset(flat, 0, sizeof flat);
        for (int p = 0; p < PARAMS; p++)
            memcpy(flat + offset_of(p), all[r].gradients[p], (size_t)elements(p) * sizeof(float));
        for (int64_t i = 0; i < n; i++)
            flat[i] += errors[r][i];
        naive_round(flat, errors[r], n);
        for (int64_t i = 0; i < n; i++)
            sum[i] += flat[i];
    }
    for (int64_t i = 0; i < n; i++)
        sum[i] = sum[i] / (float)world + average_error[i];
    for (int64_t at = 0; at < n; at += slice)
        naive_round(sum + at, average_error + at, n - at < slice ? n - at : slice);
    for (int p = 0; p < PARAMS; p++)
        memcpy(out->gradients[p], sum + offset_of(p), (size_t)elements(p) * sizeof(float));
}

static tt_status set_top_k(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 0.05); }
static tt_status set_top_k_forgetful(tt_module *ddp) {
    return tt_top_k_hook(ddp, .density = 0.3, .no_error_feedback = true);
}
static tt_status set_top_k_all(tt_module *ddp) { return tt_top_k_hook(ddp, .density = 1); }
static tt_status set_int8(tt_module *ddp) { return tt_int8_hook(ddp, .block = BLOCK); }
static tt_status set_power_late(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2); }
static tt_status set_power(tt_module *ddp) { return tt_powersgd_hook(ddp, .rank = 2, .start = -1); }
/* As many columns as there are: nothing is left out. */
static tt_status set_power_whole(tt_module *ddp) {
    return tt_powersgd_hook(ddp, .rank = 64, .start = -1, .min_compression_rate = 1e-3);
}

static const checked_hook checked[] = {
    {"all_reduce", tt_all_reduce_hook, naive_average, 1e-6F},
    {"f16", tt_f16_hook, naive_f16, 6e-4F},
    {"bf16", tt_bf16_hook, naive_bf16, 5e-3F},
    {"int8", set_int8, naive_int8, 0},
    {"top-k", set_top_k, naive_top_k, 0},
    {"top-k, forgetful", set_top_k_forgetful, naive_top_k_forgetful, 0},
    {"top-k of all", set_top_k_all, naive_average, 1e-6F},
    {"PowerSGD before it begins", set_power_late, naive_average, 1e-6F},
    {"PowerSGD of full rank", set_power_whole, naive_average, 1e-4F},
};

static void compare_hook(tt_group *group, int rank, void *user) {
    int world = tt_get_world_size(group);
    static drawn_step own, all[MOST_RANKS], expected;
    for (size_t h = 0; h < COUNT(checked); h++)
        for (int buckets = 0; buckets < 2; buckets++) {
            const checked_hook *c = &checked[h];
            if (buckets && c->naive == naive_int8) /* which blocks there are depends on buckets */
                continue;
            tt_module *m = given_module(&own), *ddp = tt_ddp(m, group, .bucket_cap_bytes = buckets ? 2000 : 0);
            CHECK_OK(c->set(ddp));
            CHECK(!buckets || tt_reducer_bucket_count(tt_ddp_reducer(ddp)) > 2);
            for (int step = 0; step < 6; step++) {
                for (int r = 0; r < world; r++)
                    draw_step(&all[r], r, step);
                own = all[rank];
                CHECK_OK(pass(ddp));
                c->naive(all, world, step, &expected);
                for (int p = 0; p < PARAMS; p++)
                    for (int64_t k = 0; k < elements(p); k++) {
                        float x = result(ddp, p)[k], y = expected.gradients[p][k];
                        float tolerance = world == 2 && c->tolerance > 1e-4F ? 0 : c->tolerance;
                        if (fabsf(x - y) > tolerance * fmaxf(fabsf(y), 0.2F))
                            fprintf(stderr, "%s, step %d: parameter %d, element %lld: %g, expected %g\n", c->name, step,
                                    p, (long long)k, (double)x, (double)y);
                        CHECK(fabsf(x - y) <= tolerance * fmaxf(fabsf(y), 0.2F));
                    }
            }
            tt_module_free(ddp);
            tt_module_free(m);
        }
    (void)user;
}

static void hooks_do_what_naive_ones_do(void **state) {
    (void)state;
    for (int world = 1; world <= MOST_RANKS; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, compare_hook, NULL), 0);
}

/* ---- every level of kernels */

static void fill(float *x, int n, uint32_t seed) {
    for (int i = 0; i < n; i++)
        x[i] = number(seed + (uint32_t)i) * (i % 7 ? 1 : 1000);
}

static void check_kernels(const tt__hook_kernels *k) {
    enum { N = 1003, ROWS = 5, COLUMNS = 601, RANK = 3 };
    static float x[ROWS * COLUMNS], y[ROWS * COLUMNS], error[ROWS * COLUMNS], p[RANK * ROWS], q[RANK * COLUMNS];
    static uint16_t half[N];
    static int8_t bytes[N];
    fill(x, N, 1);
    x[17] = INFINITY, x[18] = -INFINITY, x[19] = NAN, x[20] = 1e30F, x[21] = 1e-30F;
    k->f16.narrow_f32(half, x, N, 3);
    for (int i = 0; i < N; i++)
        assert_int_equal(half[i], tt__f16_of_float(tt__float_of_f16(tt__f16_of_float(x[i])) / 3));
    k->bf16.narrow_f32(half, x, N, 3);
    k->bf16.widen_f32(y, half, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(half[i], tt__bf16_of_float(tt__float_of_bf16(tt__bf16_of_float(x[i])) / 3));
        assert_int_equal(tt__bits_of_float(y[i]), tt__bits_of_float(tt__float_of_bf16(half[i])));
    }
    assert_true(k->largest(x, 17) < 0x7f800000 && k->largest(x, 19) == 0x7f800000 && k->largest(x, 20) > 0x7f800000);
    fill(x, N, 2);
    float scale = tt__float_of_bits(k->largest(x, N)) / 127;
    k->quantise(bytes, error, x, N, scale);
    k->scale(y, bytes, N, scale);
    for (int i = 0; i < N; i++) {
        assert_int_equal(bytes[i], (int)rintf(x[i] * (1 / scale)));
        assert_true(error[i] == x[i] - (float)bytes[i] * scale && y[i] == (float)bytes[i] * scale);
    }
    fill(x, ROWS * COLUMNS, 3);
    fill(p, RANK * ROWS, 4);
    fill(q, RANK * COLUMNS, 5);
    memcpy(y, x, sizeof y);
    k->low_rank(y, error, p, q, ROWS, COLUMNS, RANK);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float sum = 0;
        for (int r = 0; r < RANK; r++)
            sum += p[r * ROWS + i / COLUMNS] * q[r * COLUMNS + i % COLUMNS];
        assert_true(y[i] == sum && error[i] == x[i] - sum);
    }
}

static void kernels_agree_with_plain_loops(void **state) {
    (void)state;
    check_kernels(&tt__hook_kernels_base);
#if defined(__x86_64__)
    if (tt__cpu_level_get() >= TT__CPU_AVX2)
        check_kernels(&tt__hook_kernels_avx2);
    if (tt__cpu_level_get() >= TT__CPU_AVX512)
        check_kernels(&tt__hook_kernels_avx512);
#endif
}

/* numpy's own answers. */
static void seeds_are_numpys(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        uint32_t drawn[5];
    } known[] = {{0, {209652396, 398764591, 924231285, 404868288, 441365315}},
                 {12345, {771445218, 601959909, 285080861, 561383553, 789925284}}};
    for (size_t i = 0; i < COUNT(known); i++) {
        tt_generator *g = tt_generator_new(known[i].seed);
        for (int k = 0; k < 5; k++)
            assert_int_equal(tt__numpy_randint_billion(g), known[i].drawn[k]);
        tt_generator_free(g);
    }
}

/* ---- what is not finite, and zeros */

static void spoil_step(tt_group *group, int rank, void *user) {
    static tt_status (*const sets[])(tt_module *) = {tt_f16_hook, tt_bf16_hook, set_int8, set_top_k, set_power};
    static const float bad[] = {INFINITY, NAN, 1e6F};
    static drawn_step own;
    (void)user;
    for (size_t h = 0; h < COUNT(sets); h++) {
        tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
        CHECK_OK(sets[h](ddp));
        for (int step = 0; step < 8; step++) {
            bool spoiled = step == 2 || step == 4 || step == 6, seen = false;
            draw_step(&own, rank, step);
            if (step == 1 || step == 2)
                memset(&own, 0, sizeof own); /* of zeros no NaN may come */
            if (spoiled && rank == 0)
                own.gradients[2][7] = bad[step / 2 - 1];
            CHECK_OK(pass(ddp));
            for (int p = 0; p < PARAMS; p++)
                for (int64_t k = 0; k < elements(p); k++)
                    seen |= !isfinite(result(ddp, p)[k]);
            CHECK(seen == (spoiled && (step != 6 || sets[h] == tt_f16_hook)));
        }
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

static void what_is_not_finite_is_not_lost(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, spoil_step, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_do_what_naive_ones_do),
        cmocka_unit_test(kernels_agree_with_plain_loops),
        cmocka_unit_test(seeds_are_numpys),
        cmocka_unit_test(what_is_not_finite_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
