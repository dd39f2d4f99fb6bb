/* Operators that go element by element: gradients, devices, element types, layouts, PyTorch's numbers, special values,
 * wrong arguments. */
#include "op_checks.h"

#include "op_cases_pointwise.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static const op_family family = {.cases = pointwise_cases,
                                 .count = OP_COUNT(pointwise_cases),
                                 .vectors = "torch-pointwise.json",
                                 .more = {.f16 = 1e-2, .bf16 = 8e-2, .torch = 6e-7}};

/* ---- values that PyTorch gives, too */

static tt_tensor *f32(tt_shape shape, const float *v) { return tt_from_data(v, shape, TT_F32); }

static void each_is(tt_tensor *x, int n, const float *want) {
    assert_int_equal(tt_tensor_numel(x), n);
    for (int i = 0; i < n; i++) {
        float got = tt_tensor_f32(x)[i];
        if (isnan(want[i]) ? !isnan(got) : got != want[i])
            fail_msg("element %d: expected %g, got %g", i, (double)want[i], (double)got);
    }
}
#define EACH_IS(x, ...) each_is(x, (int)(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), (float[]){__VA_ARGS__})

static void special_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(5), (float[]){NAN, -INFINITY, INFINITY, 0, -1});
    EACH_IS(tt_log(x), NAN, NAN, INFINITY, -INFINITY, NAN);
    EACH_IS(tt_sqrt(x), NAN, NAN, INFINITY, 0, NAN);
    EACH_IS(tt_reciprocal(x), NAN, 0, 0, INFINITY, -1);
    EACH_IS(tt_leaky_relu(x, 0.5), NAN, -INFINITY, INFINITY, 0, -0.5f);
    EACH_IS(tt_clamp(x, -0.5, INFINITY), NAN, -0.5f, INFINITY, 0, -0.5f);
    EACH_IS(tt_clamp(x, 3, 2), NAN, 2, 2, 2, 2);
    EACH_IS(tt_pow(x, 0), 1, 1, 1, 1, 1);
    EACH_IS(tt_pow_tensor(x, tt_zeros(S(1), TT_F32)), 1, 1, 1, 1, 1);
    EACH_IS(tt_pow_tensor(x, tt_full(S(1), TT_F32, 0.5)), NAN, INFINITY, INFINITY, 0, NAN);
    EACH_IS(tt_maximum(x, tt_zeros(S(1), TT_F32)), NAN, 0, INFINITY, 0, 0);
    EACH_IS(tt_minimum(tt_zeros(S(1), TT_F32), x), NAN, -INFINITY, 0, 0, -1);
    EACH_IS(tt_div(x, tt_zeros(S(1), TT_F32)), NAN, -INFINITY, INFINITY, NAN, -INFINITY);
    tt_tensor *e = f32(S(5), (float[]){NAN, -INFINITY, INFINITY, 89, -104});
    EACH_IS(tt_exp(e), NAN, 0, INFINITY, INFINITY, 0);
    EACH_IS(tt_tanh(e), NAN, -1, 1, 1, -1);
    EACH_IS(tt_sigmoid(e), NAN, 0, 1, 1, 0);
    EACH_IS(tt_gelu(tt_clamp(e, -1e4, INFINITY)), NAN, 0, INFINITY, 89, 0);
}

/* What is equal shares the gradient; the slope of |x| at 0 is 0. */
static void gradients_at_kinks(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_requires_grad_(tt_ones(S(2), TT_F32), true), *b = tt_requires_grad_(tt_ones(S(2), TT_F32), true);
    assert_int_equal(tt_backward(tt_sum(tt_maximum(a, b))), TT_OK);
    EACH_IS(tt_grad(a), 0.5f, 0.5f);
    EACH_IS(tt_grad(b), 0.5f, 0.5f);
    tt_tensor *x = tt_requires_grad_(tt_zeros(S(2), TT_F32), true);
    assert_int_equal(tt_backward(tt_sum(tt_abs(x))), TT_OK);
    EACH_IS(tt_grad(x), 0, 0);
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_clamp(x, 0, 1))),
                     TT_OK); /* as in current PyTorch, a bound counts as outside */
    EACH_IS(tt_grad(x), 0, 0);
    tt_tensor *none = tt_requires_grad_(tt_zeros(S(2), TT_F32), true); /* 0 ^ 0 */
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_pow_tensor(x, none))), TT_OK);
    EACH_IS(tt_grad(x), 0, 0);
    EACH_IS(tt_grad(none), 0, 0);
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_pow(x, 1))), TT_OK);
    EACH_IS(tt_grad(x), 1, 1);
}

static void empty_and_repeated_inputs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_int_equal(tt_tensor_numel(tt_gelu(tt_zeros(S(0, 3), TT_F32))), 0);
    assert_int_equal(tt_tensor_numel(tt_div(tt_zeros(S(0, 3), TT_F32), tt_ones(S(3), TT_F32))), 0);
    /* the gradient of a sum is one number, repeated */
    tt_tensor *x = tt_requires_grad_(tt_full(S(300, 70), TT_F32, 2), true);
    assert_int_equal(tt_backward(tt_sum(tt_log(x))), TT_OK);
    assert_true(tt_equal(tt_grad(x), tt_full(S(300, 70), TT_F32, 0.5)));
}

static void comparisons_of_every_type(void **state) {
    (void)state;
    for (int dtype = TT_F32; dtype <= TT_I16; dtype++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to(tt_arange(4), (tt_dtype)dtype), *two = tt_full(S(3, 1), (tt_dtype)dtype, 2);
        const bool want[6][4] = {{0, 0, 1, 0}, {1, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 1, 0}, {0, 0, 0, 1}, {0, 0, 1, 1}};
        tt_tensor *(*const two_tensors[])(tt_tensor *, tt_tensor *) = {tt_eq, tt_ne, tt_lt, tt_le, tt_gt, tt_ge};
        tt_tensor *(*const with_number[])(tt_tensor *, double) = {tt_eq_scalar, tt_ne_scalar, tt_lt_scalar,
                                                                  tt_le_scalar, tt_gt_scalar, tt_ge_scalar};
        for (int k = 0; k < 6; k++) {
            tt_tensor *y = tt_from_data(want[k], S(4), TT_BOOL), *rows = two_tensors[k](x, two);
            assert_true(tt_equal(with_number[k](x, 2), y) && tt_tensor_size(rows, 0) == 3);
            assert_true(tt_equal(tt_view(tt_narrow(rows, 0, 2, 1), S(4)), y));
        }
        tt_tensor *filled = tt_masked_fill(x, tt_lt_scalar(x, 2), 7), *sevens = tt_full(S(1), (tt_dtype)dtype, 7);
        assert_true(tt_equal(filled, tt_where(tt_ge_scalar(x, 2), x, sevens)));
        assert_true(tt_equal(tt_eq_scalar(filled, 7), tt_lt_scalar(x, 2)));
    }
    TT_AUTO_SCOPE;
    tt_tensor *nan = tt_full(S(1), TT_F32, NAN);
    assert_true(!*(bool *)tt_tensor_data(tt_eq(nan, nan)) && *(bool *)tt_tensor_data(tt_ne(nan, nan)) &&
                !*(bool *)tt_tensor_data(tt_ge(nan, nan)));
}

/* ---- errors */

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 3), TT_F32), *i = tt_zeros(S(2, 3), TT_I64), *d = tt_zeros(S(2, 3), TT_F64);
    op_expect(tt_exp(i), TT_ERR_DTYPE, "tt_exp", "expected floats, got x i64 (2, 3)");
    op_expect(tt_gelu(i), TT_ERR_DTYPE, "tt_gelu", "x i64");
    op_expect(tt_pow(i, 2), TT_ERR_DTYPE, "tt_pow", "x i64");
    op_expect(tt_clamp(a, NAN, 1), TT_ERR_INVALID, "tt_clamp", "expected numbers as bounds, got nan and 1");
    op_expect(tt_div(a, d), TT_ERR_DTYPE, "tt_div", "a f32 (2, 3), b f64 (2, 3)");
    op_expect(tt_div(a, tt_zeros(S(2), TT_F32)), TT_ERR_SHAPE, "tt_div", "a f32 (2, 3), b f32 (2)");
    op_expect(tt_maximum(a, tt_to_device(a, tt_device_get("reference"))), TT_ERR_INVALID, "tt_maximum", "reference");
    op_expect(tt_eq(a, d), TT_ERR_DTYPE, "tt_eq", "expected one dtype, got a f32 (2, 3), b f64 (2, 3)");
    op_expect(tt_lt(a, tt_zeros(S(2), TT_F32)), TT_ERR_SHAPE, "tt_lt", "b f32 (2)");
    op_expect(tt_gt_scalar(i, 2.5), TT_ERR_INVALID, "tt_gt_scalar", "2.5 does not fit i64 (2, 3)");
    op_expect(tt_where(i, a, a), TT_ERR_DTYPE, "tt_where", "expected condition bool, got condition i64");
    op_expect(tt_where(tt_eq(a, a), a, d), TT_ERR_DTYPE, "tt_where", "b f64");
    op_expect(tt_where(tt_zeros(S(5), TT_BOOL), a, a), TT_ERR_SHAPE, "tt_where", "bool (5)");
    op_expect(tt_masked_fill(a, a, 0), TT_ERR_DTYPE, "tt_masked_fill", "expected mask bool, got mask f32");
    op_expect(tt_masked_fill(i, tt_eq(a, a), INFINITY), TT_ERR_INVALID, "tt_masked_fill", "inf does not fit i64");
    assert_true(!tt_eq(NULL, a) && !tt_ge_scalar(NULL, 1) && !tt_where(NULL, a, a) && !tt_masked_fill(a, NULL, 0));
    tt_tensor *const none[] = {tt_exp(NULL),     tt_gelu(NULL),       tt_clamp(NULL, 0, 1),  tt_pow(NULL, 2),
                               tt_div(NULL, a),  tt_div(a, NULL),     tt_maximum(NULL, a),   tt_leaky_relu(NULL, 0),
                               tt_sigmoid(NULL), tt_minimum(a, NULL), tt_add_scalar(NULL, 1)};
    for (size_t k = 0; k < OP_COUNT(none); k++)
        assert_null(none[k]);
    assert_int_equal(tt_last_status(), TT_OK);
}

static void overwritten_results_are_seen(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_ones(S(2), TT_F32), true), *y = tt_exp(x);
    tt_tensor *loss = tt_sum(y);
    assert_int_equal(tt_copy(y, tt_zeros(S(2), TT_F32)), TT_OK);
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "tt_exp"));
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&family),
        cmocka_unit_test(special_values),
        cmocka_unit_test(gradients_at_kinks),
        cmocka_unit_test(empty_and_repeated_inputs),
        cmocka_unit_test(comparisons_of_every_type),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(overwritten_results_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
