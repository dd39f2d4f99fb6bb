/* Reductions on the CUDA device, beside the cpu's: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "unit/expect.h"

typedef tt_tensor *(*reduction)(tt_tensor *x, tt_dims dims);

static tt_tensor *do_var(tt_tensor *x, tt_dims d) { return tt_var(x, 1, .dim = d); }
static tt_tensor *do_var_of_all(tt_tensor *x, tt_dims d) { return tt_var(x, 0, .dim = d, .keepdim = true); }
static tt_tensor *do_norm_0(tt_tensor *x, tt_dims d) { return tt_norm(x, 0, .dim = d); }
static tt_tensor *do_norm_1(tt_tensor *x, tt_dims d) { return tt_norm(x, 1, .dim = d); }
static tt_tensor *do_norm_2(tt_tensor *x, tt_dims d) { return tt_norm(x, 2, .dim = d, .keepdim = true); }
static tt_tensor *do_norm_3(tt_tensor *x, tt_dims d) { return tt_norm(x, 3, .dim = d); }
static tt_tensor *do_norm_inf(tt_tensor *x, tt_dims d) { return tt_norm(x, INFINITY, .dim = d); }
static tt_tensor *do_amax(tt_tensor *x, tt_dims d) { return tt_amax(x, .dim = d); }
static tt_tensor *do_amin(tt_tensor *x, tt_dims d) { return tt_amin(x, .dim = d, .keepdim = true); }
static tt_tensor *do_max(tt_tensor *x, tt_dims d) {
    return d.ndim < 2 ? tt_max(x, .dim = d, .keepdim = true) : tt_amax(x, .dim = d);
}
static tt_tensor *do_min(tt_tensor *x, tt_dims d) { return d.ndim < 2 ? tt_min(x, .dim = d) : tt_amin(x, .dim = d); }

static const struct {
    const char *name;
    reduction run;
} reductions[] = {
    {"var", do_var},
    {"var of all", do_var_of_all},
    {"norm, 0", do_norm_0},
    {"norm, 1", do_norm_1},
    {"norm, 2", do_norm_2},
    {"norm, 3", do_norm_3},
    {"norm, infinite", do_norm_inf},
    {"amax", do_amax},
    {"amin", do_amin},
    {"max", do_max},
    {"min", do_min},
};

/* x and dx on the cpu, there, and there again: the same bits. */
static void expect_reduction(const char *name, reduction run, tt_tensor *x, tt_dims dims) {
    const tt_dtype dtype = tt_tensor_dtype(x);
    tt_tensor *leaf[3], *y[3];
    for (int k = 0; k < 3; k++) {
        leaf[k] = tt_requires_grad_(tt_detach(k ? there(x) : x), true);
        y[k] = run(leaf[k], dims);
        if (!y[k] || tt_backward(tt_sum(tt_scale(tt_mul(y[k], y[k]), 0.25))))
            fail_msg("%s: %s", name, tt_last_error());
    }
    expect_close(name, dtype, y[1], y[0]);
    expect_close(name, dtype, tt_grad(leaf[1]), tt_grad(leaf[0]));
    assert_true(difference(y[1], y[2]) == 0);
    assert_true(difference(tt_grad(leaf[1]), tt_grad(leaf[2])) == 0);
}

static const tt_dims choices[] = {{.ndim = 0}, {1, {0}}, {1, {1}}, {1, {2}}, {2, {0, 2}}, {2, {1, 2}}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* Numbers with equals among them, of either sign, and 0. */
static tt_tensor *uneven(int64_t a, int64_t b, int64_t c, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(S(a, b, c), TT_F64);
    assert_non_null(x);
    for (int64_t i = 0; i < a * b * c; i++)
        ((double *)tt_tensor_data(x))[i] = (double)(i * 37 % 23 - 11) / 8;
    return tt_to(x, dtype);
}

static void reductions_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        for (int f = 0; f < FLOATS; f++)
            for (int c = 0; c < CHOICES; c++) {
                TT_AUTO_SCOPE;
                tt_tensor *x = uneven(3, 40, 2, floats[f]);
                expect_reduction(reductions[i].name, reductions[i].run, x, choices[c]);
                expect_reduction(reductions[i].name, reductions[i].run, tt_transpose(x, 0, 1), choices[c]);
                expect_reduction(reductions[i].name, reductions[i].run, tt_narrow(x, 1, 3, 5), choices[c]);
            }
}

/* Terms that blocks share, and rows of few terms that threads take. */
static void long_reductions_are_the_cpus(void **state) {
    (void)state;
    static const int64_t shape[][3] = {{1, 70000, 1}, {2, 1, 40000}, {1, 5000, 3}};
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
            for (int c = 0; c < 4; c++) {
                TT_AUTO_SCOPE;
                tt_tensor *x = uneven(shape[k][0], shape[k][1], shape[k][2], TT_F32);
                expect_reduction(reductions[i].name, reductions[i].run, x, choices[c]);
            }
}

static void nan_and_infinities_are_the_cpus(void **state) {
    (void)state;
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        for (int k = 0; k < 3; k++)
            for (int c = 0; c < CHOICES; c++) {
                TT_AUTO_SCOPE;
                tt_tensor *x = uneven(3, 40, 2, TT_F32);
                tt_tensor_f32(x)[77] = tt_tensor_f32(x)[101] = (float)odd[k];
                expect_reduction(reductions[i].name, reductions[i].run, x, choices[c]);
            }
}

/* ---- of any type ---- */

static void largest_are_the_cpus_of_any_type(void **state) {
    (void)state;
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        for (int c = 1; c < 4; c++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = tt_to(tt_scale(uneven(3, 40, 2, TT_F64), 8), (tt_dtype)dtype), *far = there(x);
            tt_tensor *near_index, *far_index;
            assert_true(tt_equal(here(tt_max(far, .dim = choices[c], .indices = &far_index)),
                                 tt_max(x, .dim = choices[c], .indices = &near_index)));
            assert_true(tt_equal(here(far_index), near_index));
            assert_true(tt_equal(here(tt_min(far, .dim = choices[c], .indices = &far_index)),
                                 tt_min(x, .dim = choices[c], .indices = &near_index)));
            assert_true(tt_equal(here(far_index), near_index));
            assert_true(tt_equal(here(tt_any(far, .dim = choices[c])), tt_any(x, .dim = choices[c])));
            assert_true(tt_equal(here(tt_all(far, .dim = choices[c])), tt_all(x, .dim = choices[c])));
            assert_true(tt_equal(here(tt_all(tt_narrow(far, 1, 3, 2))), tt_all(tt_narrow(x, 1, 3, 2))));
        }
}

/* One element that is 0, or is not, among many. */
static void one_element_decides(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(50000), TT_U8), *y = tt_ones(S(50000), TT_F32);
    assert_true(tt_equal(here(tt_any(there(x))), tt_any(x)));
    assert_true(tt_equal(here(tt_all(there(y))), tt_all(y)));
    ((uint8_t *)tt_tensor_data(x))[49999] = 1;
    tt_tensor_f32(y)[31234] = 0;
    assert_true(tt_equal(here(tt_any(there(x))), tt_any(x)));
    assert_true(tt_equal(here(tt_all(there(y))), tt_all(y)));
    tt_tensor_f32(y)[31234] = NAN;
    assert_true(tt_equal(here(tt_all(there(y))), tt_all(y)));
}

static void nothing_is_reduced(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(0, 3, 2), TT_F32), *far = there(x);
    expect_close("var of nothing", TT_F32, tt_var(far, 1), tt_var(x, 1));
    expect_close("norm of nothing", TT_F32, tt_norm(far, 2, .dim = TT_DIMS(0)), tt_norm(x, 2, .dim = TT_DIMS(0)));
    expect_close("amax of nothing", TT_F32, tt_amax(far, .dim = TT_DIMS(1)), tt_amax(x, .dim = TT_DIMS(1)));
    expect_close("max of nothing", TT_F32, tt_max(far, .dim = TT_DIMS(1)), tt_max(x, .dim = TT_DIMS(1)));
    assert_null(tt_amax(far));
    expect_error(TT_ERR_SHAPE, "tt_amax: expected elements to choose from, got f32 (0, 3, 2)");
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_the_cpus),
        cmocka_unit_test(long_reductions_are_the_cpus),
        cmocka_unit_test(nan_and_infinities_are_the_cpus),
        cmocka_unit_test(largest_are_the_cpus_of_any_type),
        cmocka_unit_test(one_element_decides),
        cmocka_unit_test(nothing_is_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
