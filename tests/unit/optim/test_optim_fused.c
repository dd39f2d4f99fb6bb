/* The pass over all parameters of a group, and LAMB, which measures them first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "optim/rules/rule.h"
#include "unit/autograd/gradcheck.h"
#include "unit/expect.h"
#include "unit/vectors.h"

static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

/* ---- one pass ---- */

/* Sizes that end in the middle of a block, at its end, and nowhere. */
static const int64_t sizes[] = {5, (int64_t)1 << 14, 0, 40000, 1, 16383, 100003, 3};
enum { COUNT = sizeof sizes / sizeof sizes[0] };

static tt_tensor *leaf(int k) {
    const tt_dtype dtype = k % 3 == 2 ? TT_F64 : TT_F32;
    tt_tensor *x = tt_empty(TT_SHAPE(sizes[k]), TT_F32);
    for (int64_t i = 0; i < sizes[k]; i++)
        tt_tensor_f32(x)[i] = (float)gradcheck_value(k, i);
    return tt_requires_grad_(tt_to(x, dtype), true);
}

static void set_grad(tt_tensor *x, int step) {
    TT_AUTO_SCOPE;
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_scale(tt_mul(x, x), 0.1 * step))), TT_OK);
}

typedef tt_optimizer *(*maker)(const tt_named_tensors *params);
static tt_optimizer *adamw(const tt_named_tensors *params) { return tt_adamw(params, 0.01, 0.1, .amsgrad = true); }
static tt_optimizer *sgd(const tt_named_tensors *params) {
    return tt_sgd(params, 0.1, .momentum = 0.9, .dampening = 0.5);
}
static tt_optimizer *adagrad(const tt_named_tensors *params) {
    return tt_adagrad(params, 0.1, .initial_accumulator_value = 0.5);
}
static tt_optimizer *lamb(const tt_named_tensors *params) { return tt_lamb(params, 0.01, 0.1); }

/* Three steps over all of them by one optimizer, with so many threads; without gradients of some in the first one. */
static void train(maker make, int threads, tt_tensor **x) {
    for (int k = 0; k < COUNT; k++)
        x[k] = leaf(k);
    tt_optimizer *o = make(TT_NAMED_TENSORS(COUNT, names, x));
    assert_int_equal(tt_set_num_threads(threads), TT_OK);
    for (int step = 1; step <= 3; step++) {
        for (int k = 0; k < COUNT; k++)
            if (step > 1 || k % 4 != 3)
                set_grad(x[k], step);
        assert_int_equal(tt_optimizer_step(o), TT_OK);
    }
    tt_optimizer_free(o);
}

static void threads_do_not_change_bits(void **state) {
    (void)state;
    static const maker makers[] = {adamw, sgd, adagrad, lamb};
    for (int i = 0; i < 4; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *one[COUNT], *many[COUNT];
        train(makers[i], 1, one);
        train(makers[i], 4, many);
        for (int k = 0; k < COUNT; k++)
            assert_true(tt_equal(one[k], many[k]));
    }
    assert_int_equal(tt_set_num_threads(0), TT_OK);
}

/* An optimizer of many parameters does what one of each does. */
static void one_pass_is_a_pass_for_each(void **state) {
    (void)state;
    static const maker makers[] = {adamw, sgd, adagrad};
    for (int i = 0; i < 3; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *all[COUNT];
        train(makers[i], 2, all);
        for (int k = 0; k < COUNT; k++) {
            tt_tensor *x = leaf(k);
            tt_optimizer *o = makers[i](TT_NAMED_TENSORS(1, names, &x));
            for (int step = 1; step <= 3; step++) {
                if (step > 1 || k % 4 != 3)
                    set_grad(x, step);
                assert_int_equal(tt_optimizer_step(o), TT_OK);
            }
            tt_optimizer_free(o);
            assert_true(tt_equal(x, all[k]));
        }
    }
    assert_int_equal(tt_set_num_threads(0), TT_OK);
}

/* ---- LAMB ---- */

enum { N = 19, STEPS = 100 };

static void assert_near(const tt_tensor *x, const json_t *want) {
    for (size_t i = 0; i < N; i++) {
        const void *data = tt_tensor_data(x);
        const bool f32 = tt_tensor_dtype(x) == TT_F32;
        const double got = f32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
        const double expected = vectors_number(want, i);
        if (fabs(got - expected) > (f32 ? 1e-5 : 1e-12) * (1 + fabs(expected)))
            fail_msg("element %zu: expected %.17g, got %.17g", i, expected, got);
    }
}

static void check_lamb(const json_t *c, tt_dtype dtype) {
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {tt_requires_grad_(gradcheck_row(N, 0, dtype), true),
                      tt_requires_grad_(tt_zeros(TT_SHAPE(N), dtype), true)};
    tt_optimizer *o = tt_lamb(TT_NAMED_TENSORS(1, names, x), 0, 0);
    assert_int_equal(tt_optimizer_add_param_group(o, TT_NAMED_TENSORS(1, names, x + 1)), TT_OK);
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(c, "options"), name, value) {
        double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        assert_int_equal(tt_optimizer_set_option(o, TT_ALL_GROUPS, name, number), TT_OK);
    }
    for (int s = 1; s <= STEPS; s++) {
        TT_AUTO_SCOPE;
        for (int k = 0; k < 2; k++) {
            tt_zero_grad(x[k]);
            assert_int_equal(tt_backward(tt_sum(tt_mul(x[k], gradcheck_row(N, s + 50 * k, dtype)))), TT_OK);
        }
        assert_int_equal(tt_optimizer_step(o), TT_OK);
        char step[16];
        snprintf(step, sizeof step, "%d", s);
        const json_t *want = json_object_get(json_object_get(c, "params"), step);
        for (size_t k = 0; want && k < 2; k++)
            assert_near(x[k], json_array_get(want, k));
    }
    tt_optimizer_free(o);
}

static void lamb_is_the_papers(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-optim.json");
    assert_non_null(vectors);
    const json_t *cases = json_object_get(vectors, "lamb");
    assert_int_equal(json_array_size(cases), 6);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_lamb(json_array_get(cases, i), TT_F32);
        check_lamb(json_array_get(cases, i), TT_F64);
    }
    json_decref(vectors);
}

#if defined(__x86_64__)
/* Both passes of a level over the same memory: the parameter, both moments and both sums. */
static void lamb_at(const tt__rule_kernels *measure, const tt__rule_kernels *rule, const double *option, float *memory,
                    double *sums) {
    for (int k = 0; k < 4; k++)
        memcpy(memory + k * N, tt_tensor_data(gradcheck_row(N, k, TT_F32)), N * sizeof *memory);
    for (int i = 0; i < N; i++)
        memory[3 * N + i] = fabsf(memory[3 * N + i]); /* second moments are not negative */
    void *state[] = {memory + (ptrdiff_t)2 * N, memory + (ptrdiff_t)3 * N};
    sums[0] = sums[1] = 0;
    tt__update u = {.n = N, .p = memory, .g = memory + N, .state = state, .option = option, .step = 3};
    u.grad_norm = 7;
    u.sums = sums;
    measure->f32(&u);
    u.ratio = 0.03;
    rule->f32(&u);
}

static void all_levels_give_the_same_bits(void **state) {
    (void)state;
    const tt__rule_kernels *measure[] = {&tt__lamb_measure_kernels_base, &tt__lamb_measure_kernels_avx2,
                                         &tt__lamb_measure_kernels_avx512};
    const tt__rule_kernels *rule[] = {&tt__lamb_kernels_base, &tt__lamb_kernels_avx2, &tt__lamb_kernels_avx512};
    for (int variant = 0; variant < 4; variant++)
        for (int level = 1; level <= (int)tt__cpu_level_get(); level++) {
            TT_AUTO_SCOPE;
            const double option[] = {0.1, 0.9, 0.99, 1e-6, 0.03, 1, variant & 1, 1, variant & 2, 0, variant & 1};
            float base[4 * N], other[4 * N];
            double of_base[2], of_other[2];
            lamb_at(measure[0], rule[0], option, base, of_base);
            lamb_at(measure[level], rule[level], option, other, of_other);
            assert_memory_equal(base, other, sizeof base);
            assert_memory_equal(of_base, of_other, sizeof of_base);
        }
}
#endif

static void wrong_options_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(0);
    const tt_named_tensors *p = TT_NAMED_TENSORS(1, names, &x);
    assert_null(tt_lamb(p, 0.1, -1));
    expect_error(TT_ERR_INVALID, "tt_lamb: expected a finite weight_decay of at least 0, got -1");
    assert_null(tt_lamb(p, 0.1, 0, .beta2 = 1));
    expect_error(TT_ERR_INVALID, "tt_lamb: expected beta2 below 1, got 1");
    assert_null(tt_lamb(p, 0.1, 0, .max_grad_norm = -1));
    expect_error(TT_ERR_INVALID, "tt_lamb: expected a finite max_grad_norm of at least 0, got -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(one_pass_is_a_pass_for_each),
        cmocka_unit_test(lamb_is_the_papers),
#if defined(__x86_64__)
        cmocka_unit_test(all_levels_give_the_same_bits),
#endif
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
