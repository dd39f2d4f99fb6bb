/* Losses on the CUDA device, beside the cpu's: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "unit/expect.h"

/* A loss and the gradient that comes of it, of x and what stands beside it. */
typedef tt_tensor *(*loss)(tt_tensor *x, tt_tensor *other, tt_tensor *weight);

static tt_tensor *nll(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    (void)w;
    return tt_nll_loss(x, t);
}
static tt_tensor *nll_strided(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    const int64_t R = tt_tensor_shape(x).dim[0], V = tt_tensor_shape(x).dim[1];
    (void)w;
    return tt_nll_loss(tt_transpose(tt_reshape(tt_transpose(x, 0, 1), S(V, R)), 0, 1), t);
}
static tt_tensor *nll_sum(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    (void)w;
    return tt_nll_loss(x, t, .reduction = TT_REDUCTION_SUM);
}
static tt_tensor *nll_weighted(tt_tensor *x, tt_tensor *t, tt_tensor *w) { return tt_nll_loss(x, t, .weight = w); }
static tt_tensor *nll_ignoring(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    return tt_nll_loss(x, t, .weight = w, .ignore_index = TT_INDEX(2), .reduction = TT_REDUCTION_NONE);
}
static tt_tensor *smooth_cross_entropy(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    return tt_cross_entropy(x, t, .weight = w, .ignore_index = TT_INDEX(2), .label_smoothing = 0.1);
}
static tt_tensor *smoothed_only(tt_tensor *x, tt_tensor *t, tt_tensor *w) {
    (void)w;
    return tt_cross_entropy(x, t, .label_smoothing = 1);
}

static const struct {
    const char *name;
    loss run;
} losses[] = {
    {"nll", nll},
    {"nll of transposed ones", nll_strided},
    {"nll, sum", nll_sum},
    {"nll, weighted", nll_weighted},
    {"nll, ignoring", nll_ignoring},
    {"cross entropy, smooth", smooth_cross_entropy},
    {"cross entropy, of the smoothing", smoothed_only},
};

static void expect_loss(const char *name, loss run, tt_tensor *x, tt_tensor *other, tt_tensor *weight) {
    tt_tensor *far = tt_detach(there(x)), *there_other = there(other), *there_weight = there(weight);
    tt_requires_grad_(x, true);
    tt_requires_grad_(far, true);
    tt_tensor *y = run(x, other, weight), *far_y = run(far, there_other, there_weight);
    expect_close(name, tt_tensor_dtype(x), far_y, y);
    if (tt_backward(tt_sum(tt_mul(y, y))) || tt_backward(tt_sum(tt_mul(far_y, far_y))))
        fail_msg("%s: %s", name, tt_last_error());
    expect_close(name, tt_tensor_dtype(x), tt_grad(far), tt_grad(x));
}

static tt_tensor *targets(int64_t rows, int64_t classes) {
    tt_tensor *t = tt_zeros(S(rows), TT_I64);
    assert_non_null(t);
    for (int64_t r = 0; r < rows; r++)
        ((int64_t *)tt_tensor_data(t))[r] = r * 7 % classes;
    return t;
}

static void losses_of_classes_are_the_cpus(void **state) {
    (void)state;
    static const int64_t shape[][2] = {{5, 7}, {7, 5}, {9, 300}, {300, 9}, {1, 5}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
            for (int f = 0; f < FLOATS; f++) {
                TT_AUTO_SCOPE;
                const int64_t R = shape[k][0], V = shape[k][1];
                tt_tensor *x = tt_scale(numbers(R, V, floats[f]), 4.0 / (double)(R * V));
                tt_tensor *w = tt_view(tt_abs(numbers(1, V, floats[f])), S(V));
                expect_loss(losses[i].name, losses[i].run, tt_detach(x), targets(R, V), w);
            }
}

/* A row of NaN that is ignored, and a loss of nothing. */
static void what_is_ignored_costs_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = numbers(6, 4, TT_F32), *t = targets(6, 4), *w = tt_ones(S(4), TT_F32);
    for (int64_t v = 0; v < 4; v++)
        tt_tensor_f32(x)[2 * 4 + v] = NAN; /* t[2] is 2 */
    assert_int_equal(((int64_t *)tt_tensor_data(t))[2], 2);
    expect_loss("nll of NaN, ignored", nll_ignoring, tt_detach(x), t, w);
    expect_loss("nll of NaN", nll, x, t, w);
    tt_tensor *none = tt_zeros(S(0, 4), TT_F32), *no_targets = tt_zeros(S(0), TT_I64);
    expect_close("nll of no rows", TT_F32, tt_nll_loss(there(none), there(no_targets)), tt_nll_loss(none, no_targets));
}

static tt_tensor *mse(tt_tensor *a, tt_tensor *b, tt_tensor *w) {
    (void)w;
    return tt_mse_loss(a, b);
}
static tt_tensor *mse_turned(tt_tensor *a, tt_tensor *b, tt_tensor *w) {
    (void)w;
    return tt_mse_loss(tt_transpose(b, 0, 1), tt_transpose(a, 0, 1));
}

static void squared_errors_are_the_cpus(void **state) {
    (void)state;
    static const int64_t shape[][2] = {{5, 7}, {1, 1}, {3, 40000}, {64, 33}, {0, 3}};
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            const double n = (double)(shape[k][0] * shape[k][1]);
            tt_tensor *a = tt_scale(numbers(shape[k][0], shape[k][1], floats[f]), n > 100 ? 40 / n : 1);
            tt_tensor *b = tt_detach(tt_scale(a, -0.5)), *w = tt_ones(S(1), floats[f]);
            expect_loss("mse", mse, tt_detach(a), b, w);
            expect_loss("mse of transposed ones", mse_turned, tt_detach(a), b, w);
            assert_true(tt_equal(here(tt_mse_loss(there(a), there(b))), here(tt_mse_loss(there(a), there(b)))) ||
                        n == 0);
        }
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_classes_are_the_cpus),
        cmocka_unit_test(what_is_ignored_costs_nothing),
        cmocka_unit_test(squared_errors_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
