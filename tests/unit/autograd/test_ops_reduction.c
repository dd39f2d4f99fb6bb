/* Reductions and softmax: gradients, devices, element types, layouts, PyTorch's numbers, special values, wrong
 * arguments. */
#include "op_checks.h"

#include "op_cases_reduction.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static const op_family family = {.cases = reduction_cases,
                                 .count = OP_COUNT(reduction_cases),
                                 .vectors = "torch-reduction.json",
                                 .more = {.f16 = 3e-3, .bf16 = 3e-2, .torch = 6e-7}};

/* ---- values */

static tt_tensor *f32(tt_shape shape, const float *v) { return tt_from_data(v, shape, TT_F32); }

static double item(tt_tensor *x) {
    double v = 0;
    assert_int_equal(tt_item(x, &v), TT_OK);
    return v;
}

static void shapes_of_results(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(S(2, 3, 4), TT_F32);
    assert_true(tt_equal(tt_sum(x, .dim = TT_DIMS(1)), tt_full(S(2, 4), TT_F32, 3)));
    assert_true(tt_equal(tt_sum(x, .dim = TT_DIMS(2, 0)), tt_full(S(3), TT_F32, 8)));
    assert_true(tt_equal(tt_mean(x, .dim = TT_DIMS(-1), .keepdim = true), tt_ones(S(2, 3, 1), TT_F32)));
    assert_true(tt_equal(tt_sum(x, .keepdim = true), tt_full(S(1, 1, 1), TT_F32, 24)));
    assert_true(tt_equal(tt_sum(tt_ones(TT_SCALAR, TT_F32)), tt_ones(TT_SCALAR, TT_F32)));
    assert_true(tt_equal(tt_max(tt_arange(5)), tt_full(TT_SCALAR, TT_I64, 4)));
}

/* Each of a large tensor's rows and columns, on several threads. */
static void large_sums(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_full(S(3000, 700), TT_F32, 0.5);
    assert_true(tt_equal(tt_sum(x, .dim = TT_DIMS(1)), tt_full(S(3000), TT_F32, 350)));
    assert_true(tt_equal(tt_sum(x, .dim = TT_DIMS(0)), tt_full(S(700), TT_F32, 1500)));
    assert_true(tt_equal(tt_mean(tt_transpose(x, 0, 1), .dim = TT_DIMS(1)), tt_full(S(700), TT_F32, 0.5)));
}

static void empty_inputs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_zeros(S(2, 0), TT_F32), true);
    assert_true(tt_equal(tt_detach(tt_sum(x, .dim = TT_DIMS(1))), tt_zeros(S(2), TT_F32)));
    assert_int_equal(tt_tensor_numel(tt_sum(x, .dim = TT_DIMS(0))), 0);
    assert_true(isnan(item(tt_mean(x))) && isnan(item(tt_var(x, 1))) && item(tt_norm(x, 2)) == 0);
    assert_int_equal(tt_backward(tt_add(tt_add(tt_mean(x), tt_var(x, 1)), tt_norm(x, 2))), TT_OK);
    assert_int_equal(tt_tensor_numel(tt_grad(x)), 0);
    assert_int_equal(tt_tensor_numel(tt_softmax(tt_zeros(S(3, 0), TT_F32), 1)), 0);
    assert_int_equal(tt_tensor_numel(tt_max(tt_zeros(S(0, 3), TT_F32), .dim = TT_DIMS(1))), 0);
    assert_true(item(tt_any(x)) == 0 && item(tt_all(x)) == 1);
    assert_true(isnan(item(tt_var(tt_ones(S(1), TT_F32), 1))));
}

static void largest_and_their_indices(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(2, 3), (float[]){1, 5, 5, NAN, 2, NAN}), *i = NULL;
    tt_tensor *y = tt_max(x, .dim = TT_DIMS(1), .indices = &i);
    assert_true(tt_tensor_f32(y)[0] == 5 && isnan(tt_tensor_f32(y)[1]));
    assert_true(tt_equal(i, tt_from_data(((int64_t[]){1, 0}), S(2), TT_I64)));
    y = tt_min(x, .dim = TT_DIMS(0), .keepdim = true, .indices = &i);
    assert_true(isnan(tt_tensor_f32(y)[0]) && tt_tensor_f32(y)[1] == 2);
    assert_true(tt_equal(i, tt_from_data(((int64_t[]){1, 1, 1}), S(1, 3), TT_I64)));
    for (int dtype = TT_F32; dtype <= TT_I16; dtype++)
        assert_true(item(tt_min(tt_to(tt_arange(4), (tt_dtype)dtype))) == 0 &&
                    item(tt_max(tt_to(tt_arange(4), (tt_dtype)dtype))) == 3);
}

/* Elements that equal the largest share its gradient, or the first has it all; at 0 a norm has none. */
static void gradients_of_equals(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(f32(S(4), (float[]){2, 1, 2, 0}), true);
    assert_int_equal(tt_backward(tt_max(x)), TT_OK);
    assert_true(tt_equal(tt_grad(x), f32(S(4), (float[]){0.5f, 0, 0.5f, 0})));
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_max(x, .dim = TT_DIMS(0))), TT_OK);
    assert_true(tt_equal(tt_grad(x), f32(S(4), (float[]){1, 0, 0, 0})));
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_amax(x, .dim = TT_DIMS(0))), TT_OK);
    assert_true(tt_equal(tt_grad(x), f32(S(4), (float[]){0.5f, 0, 0.5f, 0})));
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_norm(x, INFINITY)), TT_OK);
    assert_true(tt_equal(tt_grad(x), f32(S(4), (float[]){0.5f, 0, 0.5f, 0})));
    tt_tensor *zero = tt_requires_grad_(tt_zeros(S(3), TT_F32), true);
    assert_int_equal(tt_backward(tt_norm(zero, 2)), TT_OK);
    assert_true(tt_equal(tt_grad(zero), tt_zeros(S(3), TT_F32)));
}

/* Along several dimensions, of any dtype; NaN comes first. */
static void extreme_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *i = tt_view(tt_arange(12), S(2, 3, 2));
    const int64_t most[] = {7, 9, 11}, least[] = {0, 2, 4};
    assert_true(tt_equal(tt_amax(i, .dim = TT_DIMS(0, 2)), tt_from_data(most, S(3), TT_I64)));
    assert_true(tt_equal(tt_amin(i, .dim = TT_DIMS(2, 0)), tt_from_data(least, S(3), TT_I64)));
    assert_true(tt_equal(tt_amin(i, .dim = TT_DIMS(2, 0), .keepdim = true), tt_from_data(least, S(1, 3, 1), TT_I64)));
    assert_true(item(tt_amin(i)) == 0 && item(tt_amax(i)) == 11);
    tt_tensor *x = f32(S(2, 3), (float[]){1, NAN, 3, 4, 5, -1});
    assert_true(isnan(item(tt_amax(x))) && isnan(item(tt_amin(x))));
    assert_true(item(tt_select(tt_amax(x, .dim = TT_DIMS(1)), 0, 1)) == 5);
    assert_int_equal(tt_tensor_numel(tt_amax(tt_zeros(S(0, 3), TT_F32), .dim = TT_DIMS(1))), 0);
}

static void any_and_all(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(3, 2), (float[]){0, 0, 0, NAN, 1, -1});
    for (int k = 0; k < 2; k++, x = tt_to(f32(S(3, 2), (float[]){0, 0, 0, 1, 1, 1}), TT_BOOL)) {
        assert_true(tt_equal(tt_any(x, .dim = TT_DIMS(1)), tt_from_data(((bool[]){0, 1, 1}), S(3), TT_BOOL)));
        assert_true(tt_equal(tt_all(x, .dim = TT_DIMS(-1)), tt_from_data(((bool[]){0, 0, 1}), S(3), TT_BOOL)));
        assert_true(item(tt_any(x)) == 1 && item(tt_all(x)) == 0);
    }
    assert_true(tt_tensor_dim(tt_any(x, .dim = TT_DIMS(0), .keepdim = true)) == 2);
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++)
        assert_true(item(tt_all(tt_ones(S(2, 3), (tt_dtype)dtype))) == 1 &&
                    item(tt_any(tt_zeros(S(2, 3), (tt_dtype)dtype))) == 0);
}

static void softmax_of_large_numbers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(3, 2), (float[]){1000, 1000, -INFINITY, 0, NAN, 0});
    const float *y = tt_tensor_f32(tt_softmax(x, 1));
    assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0 && y[3] == 1 && isnan(y[4]) && isnan(y[5]));
}

/* ---- errors */

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32), *i = tt_zeros(S(2, 3), TT_I64), *at = x;
    op_expect(tt_sum(x, .dim = TT_DIMS(2)), TT_ERR_SHAPE, "tt_sum", "no dimension 2 in f32 (2, 3)");
    op_expect(tt_mean(x, .dim = TT_DIMS(1, -1)), TT_ERR_SHAPE, "tt_mean", "dimension -1 of f32 (2, 3) comes twice");
    op_expect(tt_mean(x, .dim = {.ndim = 9}), TT_ERR_INVALID, "tt_mean", "expected at most 8 dimensions, got 9");
    op_expect(tt_sum(i), TT_ERR_DTYPE, "tt_sum", "x i64");
    op_expect(tt_var(i, 1), TT_ERR_DTYPE, "tt_var", "x i64");
    op_expect(tt_var(x, 1, .dim = TT_DIMS(-3)), TT_ERR_SHAPE, "tt_var", "no dimension -3");
    op_expect(tt_norm(x, -1), TT_ERR_INVALID, "tt_norm", "got -1");
    op_expect(tt_norm(x, NAN), TT_ERR_INVALID, "tt_norm", "got nan");
    op_expect(tt_max(x, .dim = TT_DIMS(0, 1)), TT_ERR_INVALID, "tt_max", "expected one dimension, or none");
    op_expect(tt_min(x, .indices = &at), TT_ERR_INVALID, "tt_min", "as there are indices, got 0");
    assert_null(at);
    op_expect(tt_max(tt_zeros(S(2, 0), TT_F32), .dim = TT_DIMS(1)), TT_ERR_SHAPE, "tt_max", "f32 (2, 0)");
    op_expect(tt_min(tt_zeros(S(0), TT_F32)), TT_ERR_SHAPE, "tt_min", "f32 (0)");
    op_expect(tt_max(x, .dim = TT_DIMS(0, 1)), TT_ERR_INVALID, "tt_max", "tt_amax() takes several");
    op_expect(tt_amin(tt_zeros(S(2, 0), TT_F32), .dim = TT_DIMS(1)), TT_ERR_SHAPE, "tt_amin", "f32 (2, 0)");
    op_expect(tt_amax(x, .dim = TT_DIMS(2)), TT_ERR_SHAPE, "tt_amax", "no dimension 2");
    op_expect(tt_any(x, .dim = TT_DIMS(5)), TT_ERR_SHAPE, "tt_any", "no dimension 5");
    op_expect(tt_softmax(x, 2), TT_ERR_SHAPE, "tt_softmax", "no dimension 2");
    op_expect(tt_softmax(i, 1), TT_ERR_DTYPE, "tt_softmax", "x i64");
    tt_tensor *const none[] = {tt_sum(NULL), tt_mean(NULL), tt_var(NULL, 1),    tt_norm(NULL, 2),
                               tt_max(NULL), tt_min(NULL),  tt_amax(NULL),      tt_amin(NULL),
                               tt_any(NULL), tt_all(NULL),  tt_softmax(NULL, 0)};
    for (size_t k = 0; k < OP_COUNT(none); k++)
        assert_null(none[k]);
    assert_int_equal(tt_last_status(), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&family),
        cmocka_unit_test(shapes_of_results),
        cmocka_unit_test(large_sums),
        cmocka_unit_test(empty_inputs),
        cmocka_unit_test(largest_and_their_indices),
        cmocka_unit_test(gradients_of_equals),
        cmocka_unit_test(extreme_values),
        cmocka_unit_test(any_and_all),
        cmocka_unit_test(softmax_of_large_numbers),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
