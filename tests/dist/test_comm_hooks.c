/* The library's communication hooks: against naive references, as state, with bad input, and when a rank dies. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "base/half.h"
#include "parallel/ddp.h"
#include "parallel/hooks/hook_kernels.h"
#include "support/ranks.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- a module whose gradients are what the test says: the sum over its parameters of parameter * gradient */

enum { PARAMS = 5, MOST_RANKS = 4, LARGEST = 40 * 30 };
static const int64_t shapes[PARAMS][2] = {{40, 30}, {30, 0}, {24, 32}, {40, 30}, {3, 2}};

static int64_t elements(int p) { return shapes[p][0] * (shapes[p][1] ? shapes[p][1] : 1); }

typedef struct drawn_step {
    float gradients[PARAMS][LARGEST];
} drawn_step;

/* Numbers like gradients: most of them small. */
static float number(uint32_t seed) {
    uint32_t x = seed * 2654435761u + 12345;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13, x *= 3266489917u, x ^= x >> 16;
    float u = (float)(x >> 8) * 0x1p-24f - 0.5f;
    return u * u * u * 8;
}

static void draw_step(drawn_step *s, int rank, int step) {
    for (int p = 0; p < PARAMS; p++)
        for (int64_t k = 0; k < elements(p); k++)
            s->gradients[p][k] = number((uint32_t)(((step * 7 + rank) * PARAMS + p) * LARGEST + k));
}

static tt_tensor *given_forward(tt_module *self, tt_tensor *x) {
    const drawn_step *s = tt_module_user(self);
    tt_tensor *sum = tt_sum(x);
    const tt_named_tensors *list = tt_module_parameters(self);
    for (int p = 0; p < PARAMS; p++) {
        tt_tensor *g = tt_from_data(s->gradients[p], tt_tensor_shape(list->tensors[p]), TT_F32);
        sum = tt_add(sum, tt_sum(tt_mul(list->tensors[p], g)));
    }
    return sum;
}

static tt_module *given_module(drawn_step *s) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Given", .forward = given_forward);
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e"};
    tt_module *m = tt_module_new(&cls, s);
    for (int p = 0; p < PARAMS; p++)
        CHECK_OK(tt_module_register_parameter(
            m, names[p],
            tt_zeros(shapes[p][1] ? TT_SHAPE(shapes[p][0], shapes[p][1]) : TT_SHAPE(shapes[p][0]), TT_F32)));
    return m;
}

/* A pass with these gradients. */
static tt_status pass(tt_module *ddp) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *list = tt_module_parameters(ddp);
    for (int p = 0; p < PARAMS; p++)
        tt_zero_grad(list->tensors[p]);
    return tt_backward(tt_module_forward(ddp, tt_zeros(TT_SHAPE(1), TT_F32)));
}

static const float *result(tt_module *ddp, int p) {
    return tt_tensor_f32(tt_grad(tt_module_parameters(ddp)->tensors[p]));
}

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
static void naive_half(drawn_step *all, int world, drawn_step *out, uint16_t (*narrow)(float), float (*widen)(uint16_t)) {
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
                            fprintf(stderr, "%s, step %d: parameter %d, element %lld: %g, expected %g\n", c->name,
                                    step, p, (long long)k, (double)x, (double)y);
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

/* ---- state */

static void steps(tt_module *ddp, drawn_step *own, int rank, int from, int to) {
    for (int step = from; step < to; step++) {
        draw_step(own, rank, step);
        CHECK_OK(pass(ddp));
    }
}

static void resume(tt_group *group, int rank, void *user) {
    static tt_status (*const sets[])(tt_module *) = {set_int8, set_top_k, set_power};
    static drawn_step own;
    (void)user;
    for (size_t h = 0; h < COUNT(sets); h++) {
        TT_AUTO_SCOPE;
        tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
        CHECK_OK(sets[h](ddp));
        steps(ddp, &own, rank, 0, 5);
        const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
        CHECK(state && state->count > 3);
        static drawn_step first;
        tt_module *m2 = given_module(&own), *ddp2 = tt_ddp(m2, group);
        CHECK_OK(sets[h](ddp2));
        CHECK_OK(tt_comm_hook_load_state_dict(ddp2, state));
        steps(ddp, &own, rank, 5, 8);
        for (int p = 0; p < PARAMS; p++)
            memcpy(first.gradients[p], result(ddp, p), (size_t)elements(p) * sizeof(float));
        steps(ddp2, &own, rank, 5, 8);
        for (int p = 0; p < PARAMS; p++)
            CHECK(!memcmp(first.gradients[p], result(ddp2, p), (size_t)elements(p) * sizeof(float)));
        /* One that is new takes what is alike from the others; all else fails on all ranks, by name. */
        state = tt_comm_hook_state_dict(ddp);
        CHECK_OK(tt_comm_hook_load_state_dict(ddp2, rank ? state : TT_NAMED_TENSORS(0, NULL, NULL)));
        steps(ddp2, &own, rank, 8, 9);
        if (sets[h] == set_power) {
            tt_tensor *step = tt_named_tensors_find(tt_comm_hook_state_dict(ddp2), "powersgd.step");
            CHECK(step && *(int64_t *)tt_tensor_data(step) == 9);
        }
        const tt_named_tensors short_list = {state->size, 1, state->names, state->tensors};
        CHECK(tt_comm_hook_load_state_dict(ddp2, rank ? &short_list : state) == TT_ERR_NOT_FOUND);
        CHECK_TEXT(rank ? "is missing" : "rank 1 has failed in this");
        steps(ddp2, &own, rank, 0, 2);
        CHECK(tt_comm_hook_load_state_dict(ddp2, NULL) == TT_ERR_INVALID);
        tt_module_free(ddp2);
        tt_module_free(m2);
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

static void training_goes_on_from_state(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, resume, NULL), 0);
    assert_int_equal(run_ranks(3, resume, NULL), 0);
}

/* A state of four ranks on two: matrices stay, errors begin anew. */
static void resume_elsewhere(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    static drawn_step own;
    (void)user;
    tt_group *pair;
    CHECK_OK(tt_group_split(&pair, group, rank / 2, rank));
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group);
    CHECK_OK(set_power(ddp));
    steps(ddp, &own, rank, 0, 5);
    const tt_named_tensors *state = tt_comm_hook_state_dict(ddp);
    tt_tensor *q = tt_named_tensors_find(state, "powersgd.q.a");
    CHECK(q && tt_tensor_numel(q) == 2 * 30 && !tt_named_tensors_find(state, "powersgd.q.b"));
    tt_module *m2 = given_module(&own), *ddp2 = tt_ddp(m2, pair);
    CHECK_OK(set_power(ddp2));
    CHECK_OK(tt_comm_hook_load_state_dict(ddp2, state));
    const tt_named_tensors *taken = tt_comm_hook_state_dict(ddp2);
    const float *again = tt_tensor_f32(tt_named_tensors_find(taken, "powersgd.q.a"));
    const float *error = tt_tensor_f32(tt_named_tensors_find(taken, "powersgd.error.a"));
    CHECK(!memcmp(again, tt_tensor_f32(q), 2 * 30 * sizeof *again));
    for (int i = 0; i < 40 * 30; i++)
        CHECK(error[i] == 0);
    steps(ddp2, &own, rank, 5, 6);
    tt_module_free(ddp2);
    tt_module_free(m2);
    tt_module_free(ddp);
    tt_module_free(m);
    tt_destroy_process_group(pair);
}

static void another_number_of_ranks_drops_errors(void **state) {
    (void)state;
    assert_int_equal(run_ranks(4, resume_elsewhere, NULL), 0);
}

/* As tt_elastic_restore() does: two ranks' wrappers let go of their group, and are bound to one with a third rank whose
 * wrapper is new; then to the pair again. */
static void rebind(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    static drawn_step own;
    static const int both[] = {0, 1};
    (void)user;
    tt_group *pair = NULL;
    CHECK_OK(tt_new_group(&pair, group, both, 2));
    tt_module *m = given_module(&own), *ddp = tt__ddp_make(&(tt_ddp_args){.module = m});
    CHECK(ddp);
    CHECK_OK(set_power(ddp)); /* before there is a group */
    CHECK(tt_comm_hook_load_state_dict(ddp, tt_comm_hook_state_dict(ddp)) == TT_ERR_STATE);
    if (rank < 2) {
        CHECK_OK(tt__ddp_bind(ddp, pair));
        steps(ddp, &own, rank, 0, 3);
        CHECK_OK(tt__ddp_bind(ddp, NULL));
        CHECK_OK(tt__ddp_bind(ddp, pair)); /* of as many ranks: errors stay */
        const float *error = tt_tensor_f32(tt_named_tensors_find(tt_comm_hook_state_dict(ddp), "powersgd.error.a"));
        CHECK(error && (error[0] != 0 || error[1] != 0));
    }
    CHECK_OK(tt__ddp_bind(ddp, group));
    const tt_named_tensors *dict = tt_comm_hook_state_dict(ddp);
    const float *error = tt_tensor_f32(tt_named_tensors_find(dict, "powersgd.error.a"));
    CHECK(error && error[0] == 0 && error[1] == 0);
    steps(ddp, &own, rank, 3, 6);
    dict = tt_comm_hook_state_dict(ddp);
    CHECK(*(int64_t *)tt_tensor_data(tt_named_tensors_find(dict, "powersgd.step")) == 6);
    tt_tensor *q = tt_named_tensors_find(dict, "powersgd.q.c"), *first = tt_clone(q);
    CHECK_OK(tt_tensor_broadcast(group, first, 0));
    CHECK(!memcmp(tt_tensor_f32(first), tt_tensor_f32(q), (size_t)tt_tensor_numel(q) * sizeof(float)));
    if (rank < 2) {
        CHECK_OK(tt__ddp_bind(ddp, pair));
        steps(ddp, &own, rank, 6, 7);
    }
    tt_module_free(ddp);
    tt_module_free(m);
    if (pair)
        tt_destroy_process_group(pair);
}

static void rebound_wrappers_keep_their_hook(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, rebind, NULL), 0);
}

/* ---- bad input */

static void misuse(tt_group *group, int rank, void *user) {
    static drawn_step own;
    (void)user;
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group), *plain = tt_nn_linear(2, 2);
    CHECK(tt_f16_hook(NULL) == TT_ERR_INVALID && tt_bf16_hook(plain) == TT_ERR_INVALID);
    CHECK_TEXT("tt_bf16_hook: expected a wrapper");
    CHECK(tt_all_reduce_hook(NULL) == TT_ERR_INVALID && tt_int8_hook(NULL) == TT_ERR_INVALID);
    CHECK(tt_top_k_hook(NULL) == TT_ERR_INVALID && tt_powersgd_hook(plain) == TT_ERR_INVALID);
    CHECK(tt_int8_hook(ddp, .block = 4) == TT_ERR_INVALID);
    CHECK_TEXT("expected a block of 8 to 65536 elements, got 4");
    CHECK(tt_top_k_hook(ddp, .density = 1.5) == TT_ERR_INVALID);
    CHECK_TEXT("expected a density above 0, at most 1, got 1.5");
    CHECK(tt_top_k_hook(ddp, .density = NAN) == TT_ERR_INVALID);
    CHECK(tt_powersgd_hook(ddp, .rank = -1) == TT_ERR_INVALID);
    CHECK_TEXT("expected a rank of at least 1");
    CHECK(tt_powersgd_hook(ddp, .min_compression_rate = -1) == TT_ERR_INVALID);
    CHECK(tt_powersgd_hook(ddp, .orthogonalization_epsilon = NAN) == TT_ERR_INVALID);
    CHECK(tt_comm_hook_state_dict(ddp) == NULL);
    CHECK_TEXT("expected a wrapper with one of the hooks");
    CHECK_OK(tt_f16_hook(ddp));
    CHECK(tt_powersgd_hook(ddp, .rank = rank ? 2 : 4) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has communication hook powersgd (rank 2, start 1000,");
    CHECK_TEXT("where rank 0 has communication hook powersgd (rank 4, start 1000,");
    CHECK((rank ? tt_f16_hook(ddp) : tt_bf16_hook(ddp)) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has communication hook f16 where rank 0 has communication hook bf16");
    steps(ddp, &own, rank, 0, 1); /* by the one before */
    tt_module_free(ddp);
    tt_module_free(m);
    tt_module_free(plain);
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, misuse, NULL), 0);
}

/* Which element types are taken. */
static void other_types(tt_group *group, int rank, void *user) {
    static const tt_dtype types[] = {TT_F64, TT_F16, TT_BF16};
    (void)user;
    for (size_t t = 0; t < COUNT(types); t++) {
        TT_AUTO_SCOPE;
        static const tt_module_class cls = TT_MODULE_CLASS(.name = "Typed", .forward = given_forward);
        tt_module *m = tt_module_new(&cls, NULL);
        CHECK_OK(tt_module_register_parameter(m, "w", tt_zeros(TT_SHAPE(8, 8), types[t])));
        tt_module *ddp = tt_ddp(m, group);
        CHECK_OK(tt_all_reduce_hook(ddp));
        CHECK(tt_f16_hook(ddp) == (types[t] == TT_BF16 ? TT_ERR_UNSUPPORTED : TT_OK));
        CHECK(tt_bf16_hook(ddp) == (types[t] == TT_F16 ? TT_ERR_UNSUPPORTED : TT_OK));
        CHECK(set_int8(ddp) == TT_ERR_UNSUPPORTED && set_top_k(ddp) == TT_ERR_UNSUPPORTED);
        CHECK(set_power(ddp) == TT_ERR_UNSUPPORTED);
        CHECK_TEXT("communication hook \"powersgd\": it takes gradients of f32; \"w\" is ");
        CHECK_OK(types[t] == TT_BF16 ? tt_bf16_hook(ddp) : tt_f16_hook(ddp));
        tt_tensor *w = tt_module_parameters(ddp)->tensors[0];
        tt_tensor *by = tt_full(TT_SHAPE(8, 8), types[t], rank ? 0.5 : 0.25);
        CHECK_OK(tt_backward(tt_sum(tt_mul(w, by))));
        const float *x = tt_tensor_f32(tt_to(tt_grad(w), TT_F32));
        for (int i = 0; i < 64; i++)
            CHECK(x[i] == 0.375F);
        tt_module_free(ddp);
        tt_module_free(m);
    }
}

static void types_are_taken_or_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, other_types, NULL), 0);
}

/* ---- a rank that dies or freezes inside a hook */

typedef struct failing {
    tt_status (*set)(tt_module *ddp);
    bool freeze;
    int64_t at; /* the bucket that rank 1 still begins: all stages of those before it have begun */
} failing;

static void end_here(const tt_reducer_event *event, void *user) {
    const failing *f = user;
    if (event->kind != TT_REDUCER_BEGIN || event->index != f->at)
        return;
    if (f->freeze)
        raise(SIGSTOP);
    _exit(0);
}

static int fail_in_hook(tt_store *store, int rank, int world, void *arg) {
    static drawn_step own;
    const failing *f = arg;
    tt_group *group;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = f->freeze ? 1000 : CALM_MS));
    tt_module *m = given_module(&own), *ddp = tt_ddp(m, group, .bucket_cap_bytes = 1);
    CHECK_OK(f->set(ddp));
    steps(ddp, &own, rank, 0, 2);
    wait_for_all(store, world);
    if (rank == 1)
        tt_reducer_set_trace(tt_ddp_reducer(ddp), end_here, (void *)f);
    CHECK(pass(ddp) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    CHECK(pass(ddp) != TT_OK); /* and none follows */
    CHECK(tt_comm_hook_load_state_dict(ddp, TT_NAMED_TENSORS(0, NULL, NULL)) != TT_OK);
    tt_module_free(ddp);
    tt_module_free(m);
    tt_destroy_process_group(group);
    return 0;
}

static void a_rank_that_ends_is_named(void **state) {
    (void)state;
    static tt_status (*const sets[])(tt_module *) = {tt_f16_hook, set_int8, set_top_k, set_power};
    for (size_t h = 0; h < COUNT(sets); h++)
        for (int freeze = 0; freeze < 2; freeze++)
            for (int64_t at = 1; at < PARAMS; at += 3) {
                ranks ranks;
                start_ranks(&ranks, 3, fail_in_hook, &(failing){sets[h], freeze != 0, at});
                assert_int_equal(end_of_rank(&ranks, 0), 0);
                assert_int_equal(end_of_rank(&ranks, 2), 0);
                kill(ranks.pid[1], SIGKILL);
                assert_int_equal(end_of_rank(&ranks, 1), freeze ? 128 + SIGKILL : 0);
                tt_store_server_free(ranks.server);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_do_what_naive_ones_do),
        cmocka_unit_test(kernels_agree_with_plain_loops),
        cmocka_unit_test(what_is_not_finite_is_not_lost),
        cmocka_unit_test(training_goes_on_from_state),
        cmocka_unit_test(another_number_of_ranks_drops_errors),
        cmocka_unit_test(rebound_wrappers_keep_their_hook),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(types_are_taken_or_refused),
        cmocka_unit_test(a_rank_that_ends_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
