/* Gradient clipping beside PyTorch's, in any layout, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "base/text/parse.h"
#include "unit/autograd/gradcheck.h"
#include "unit/expect.h"
#include "unit/vectors.h"

enum { N = 19 };
static const char *const names[] = {"a", "b", "c", "d"};

/* A leaf whose gradient is g. */
static tt_tensor *with_grad(tt_tensor *g) {
    tt_tensor *x = tt_requires_grad_(tt_mul(g, g), true);
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, g))), TT_OK);
    return x;
}

static double element(const tt_tensor *x, size_t i) {
    const void *data = tt_tensor_data(x);
    return tt_tensor_dtype(x) == TT_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

/* Norms are added up in another order than PyTorch's. */
static void assert_near(double got, double want, tt_dtype dtype) {
    if (fabs(got - want) > (dtype == TT_F32 ? 4e-7 : 1e-14) * (1 + fabs(want)))
        fail_msg("expected %.17g, got %.17g", want, got);
}

static void check_case(const json_t *c) {
    TT_AUTO_SCOPE;
    const tt_dtype dtype = strcmp(json_string_value(json_object_get(c, "dtype")), "f32") ? TT_F64 : TT_F32;
    double norm_type;
    assert_true(tt__read_f64(json_string_value(json_object_get(c, "norm_type")), &norm_type));
    tt_tensor *x[4], *y[3];
    for (int k = 0; k < 3; k++) {
        x[k] = with_grad(gradcheck_row(N, k + 1, dtype));
        y[k] = with_grad(gradcheck_row(N, k + 1, dtype));
    }
    x[3] = tt_ones(TT_SHAPE(2), TT_F32); /* without gradient */
    double norm = -1;
    assert_int_equal(tt_clip_grad_norm_(TT_NAMED_TENSORS(4, names, x), vectors_member(c, "max_norm"),
                                        .norm_type = norm_type, .total_norm = &norm),
                     TT_OK);
    assert_near(norm, vectors_member(c, "norm"), dtype);
    assert_int_equal(tt_clip_grad_value_(TT_NAMED_TENSORS(3, names, y), 0.4), TT_OK);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < N; i++) {
            assert_near(element(tt_grad(x[k]), i), vectors_number(json_array_get(json_object_get(c, "grads"), k), i),
                        dtype);
            assert_near(element(tt_grad(y[k]), i), vectors_number(json_array_get(json_object_get(c, "by_value"), k), i),
                        dtype);
        }
}

static void clipping_is_pytorchs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-optim.json");
    assert_non_null(vectors);
    const json_t *cases = json_object_get(vectors, "clips");
    assert_int_equal(json_array_size(cases), 10);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(vectors);
}

/* Larger than a round of blocks; the norm of n ones is sqrt(n), with any number of threads. */
static void large_gradients_are_measured_in_blocks(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const int64_t n = (int64_t)3 << 20;
    tt_tensor *x = with_grad(tt_ones(TT_SHAPE(n + 5), TT_F32));
    double norm = 0;
    assert_int_equal(tt_clip_grad_norm_(TT_NAMED_TENSORS(1, names, &x), 1, .total_norm = &norm), TT_OK);
    assert_true(norm == (double)(float)sqrt((double)(n + 5)));
    const float want = 1 / ((float)norm + 1e-6F), *g = tt_tensor_f32(tt_grad(x));
    assert_true(g[0] == want && g[n + 4] == want);
    assert_int_equal(tt_clip_grad_norm_(TT_NAMED_TENSORS(1, names, &x), 1, .norm_type = INFINITY, .total_norm = &norm),
                     TT_OK);
    assert_true(norm == (double)want);
}

static void strided_gradients_are_clipped(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *base = tt_requires_grad_(tt_ones(TT_SHAPE(2, 3), TT_F32), true), *x = tt_transpose(base, 0, 1);
    tt_tensor *g = tt_from_data(((float[]){1, 2, 3, -4, -5, 6}), TT_SHAPE(3, 2), TT_F32);
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, g))), TT_OK);
    assert_int_equal(tt_clip_grad_value_(TT_NAMED_TENSORS(1, names, &base), 3.5), TT_OK);
    assert_true(
        tt_equal(tt_grad(base), tt_from_data(((float[]){1, 3, -3.5F, 2, -3.5F, 3.5F}), TT_SHAPE(2, 3), TT_F32)));
}

static void nothing_finite_is_left_to_the_caller(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const float numbers[] = {1, NAN, -9};
    tt_tensor *x = with_grad(tt_from_data(numbers, TT_SHAPE(3), TT_F32));
    const tt_named_tensors *list = TT_NAMED_TENSORS(1, names, &x);
    double norm = 0;
    assert_int_equal(tt_clip_grad_norm_(list, 1, .error_if_nonfinite = true, .total_norm = &norm), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_clip_grad_norm_: the norm of the gradients is nan, so they can't be clipped");
    assert_true(isnan(norm) && tt_tensor_f32(tt_grad(x))[0] == 1); /* nothing was changed */
    assert_int_equal(tt_clip_grad_norm_(list, 1, .norm_type = INFINITY, .total_norm = &norm), TT_OK);
    assert_true(isnan(norm));
    x = with_grad(tt_from_data(numbers, TT_SHAPE(3), TT_F32));
    assert_int_equal(tt_clip_grad_value_(TT_NAMED_TENSORS(1, names, &x), 2), TT_OK);
    const float *g = tt_tensor_f32(tt_grad(x));
    assert_true(g[0] == 1 && isnan(g[1]) && g[2] == -2);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = with_grad(tt_ones(TT_SHAPE(3), TT_F32));
    const tt_named_tensors *list = TT_NAMED_TENSORS(1, names, &x);
    assert_int_equal(tt_clip_grad_norm_(list, -1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a max_norm of at least 0, got -1");
    assert_int_equal(tt_clip_grad_norm_(list, 1, .norm_type = -2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a norm_type above 0, or INFINITY, got -2");
    assert_int_equal(tt_clip_grad_value_(list, NAN), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a clip_value of at least 0, got nan");
    assert_int_equal(tt_clip_grad_norm_(NULL, 1), TT_ERR_INVALID);
    assert_int_equal(tt_clip_grad_value_(NULL, 1), TT_ERR_INVALID);
    assert_int_equal(tt_clip_grad_norm_with(NULL, 0), TT_ERR_INVALID);
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipping_is_pytorchs),          cmocka_unit_test(large_gradients_are_measured_in_blocks),
        cmocka_unit_test(strided_gradients_are_clipped), cmocka_unit_test(nothing_finite_is_left_to_the_caller),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
