/* Every operator: gradients against finite differences, element types and devices against each other, in all layouts;
 * values that are known, wrong inputs. */
#include "op_checks.h"

#include "op_cases.h"
#include "tensor/core/tensor.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

/* ---- gradients ---- */

/* All cases in all modes; images in the layouts that images have. */
static void each_case(void (*check)(const gradcheck_case *c, gradcheck_mode mode)) {
    for (int i = 0; i < OP_CASES; i++)
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            check(&op_cases[i], (gradcheck_mode)mode);
    for (int i = 0; i < IMAGE_CASES; i++) {
        check(&image_cases[i], GRADCHECK_LEAF);
        check(&image_cases[i], GRADCHECK_CHANNELS_LAST);
    }
}

static void check_case(const gradcheck_case *c, gradcheck_mode mode) { op_check_case(c, mode, &op_usual); }

static void all_gradients(void **state) {
    (void)state;
    each_case(check_case);
}

static void check_small_case(const gradcheck_case *c, gradcheck_mode mode) { op_check_small_case(c, mode, &op_usual); }

static void all_small_types(void **state) {
    (void)state;
    each_case(check_small_case);
}

/* 256 is the last whole number of bf16 that 1 can be added to: products are added up in f32. */
static void gradients_of_repeated_matrices_are_summed_in_f32(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "reference"};
    for (int i = 0; i < 2; i++) {
        TT_AUTO_SCOPE;
        const tt_device *device = tt_device_get(devices[i]);
        tt_tensor *a = tt_to_device(tt_ones(TT_SHAPE(2, 3), TT_BF16), device);
        tt_tensor *b = tt_to_device(tt_ones(TT_SHAPE(1000, 3, 1), TT_BF16), device);
        a = tt_requires_grad_(a, true);
        assert_int_equal(tt_backward(tt_sum(tt_matmul(a, b))), TT_OK);
        assert_true(tt_equal(tt_to_device(tt_grad(a), tt_device_get("cpu")), tt_full(TT_SHAPE(2, 3), TT_BF16, 1000)));
    }
}

/* A result lies in memory as the image it was made from. */
static void results_keep_the_order_of_memory(void **state) {
    (void)state;
    for (int i = 0; i < IMAGE_CASES_LIKE_INPUT; i++) {
        TT_AUTO_SCOPE;
        const gradcheck_case *c = &image_cases[i];
        tt_tensor *in[GRADCHECK_INPUTS] = {NULL}, *image = NULL;
        for (int k = 0; k < c->n; k++) {
            in[k] = gradcheck_leaf(c, k, TT_F32, GRADCHECK_CHANNELS_LAST);
            image = tt_tensor_numel(in[k]) == 2 * 3 * 4 * 5 ? in[k] : image;
        }
        tt_tensor *y = c->f(in);
        if (!y || tt_is_contiguous(y) || !gradcheck_same_order(y, image))
            fail_msg("%s: the result lies otherwise than its input (%s)", c->name, tt_last_error());
    }
}

/* Whatever layout gradients come in. */
static void gradients_lie_as_their_leaves(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_to_memory_format(tt_rand(S(2, 3, 4, 5), NULL), TT_CHANNELS_LAST), true);
    tt_tensor *w = tt_requires_grad_(tt_rand(S(2, 3, 4, 5), NULL), true), *g = tt_rand(S(2, 3, 4, 5), NULL);
    for (int pass = 0; pass < 2; pass++) { /* the second adds */
        assert_int_equal(tt_backward(tt_add(tt_contiguous(x), w), .gradient = g), TT_OK);
        assert_int_equal(tt_backward(tt_add(x, w), .gradient = tt_to_memory_format(g, TT_CHANNELS_LAST)), TT_OK);
        assert_true(gradcheck_same_order(tt_grad(x), x) && gradcheck_same_order(tt_grad(w), w));
        assert_true(tt_equal(tt_grad(x), tt_grad(w)));
    }
    tt_zero_grad(x);
    assert_int_equal(tt_backward(x, .gradient = g), TT_OK); /* a leaf itself */
    assert_true(gradcheck_same_order(tt_grad(x), x) && tt_equal(tt_grad(x), g));
}

/* ---- PyTorch ---- */

static void all_match_pytorch(void **state) {
    (void)state;
    op_check_torch(&(op_family){.cases = op_cases, .count = OP_CASES, .vectors = "torch-ops.json"});
}

/* A gradient checker that can't fail would check nothing. */
static tt_tensor *f_wrong(tt_tensor *const *in) { return tt_mul(in[0], tt_detach(in[0])); }

static void the_checker_finds_a_wrong_gradient(void **state) {
    (void)state;
    const gradcheck_case wrong = {"x * detach(x)", f_wrong, 1, {{1, {4}}}};
    assert_true(gradcheck_worst(&wrong, GRADCHECK_LEAF) > 0.1);
}

/* ---- values ---- */

static tt_tensor *f32(tt_shape shape, const float *v) { return tt_from_data(v, shape, TT_F32); }

static void special_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(4), (float[]){NAN, -0.0f, -INFINITY, INFINITY});
    float *y = tt_tensor_f32(tt_relu(x));
    assert_true(isnan(y[0]) && y[1] == 0 && y[2] == 0 && y[3] == INFINITY);
    /* Large logits do not overflow; a class of probability 0 costs infinity; NaN shows. */
    float *p = tt_tensor_f32(tt_log_softmax(f32(S(3, 2), (float[]){1000, 0, -INFINITY, 0, NAN, 0}), 1));
    assert_true(p[0] == 0 && p[1] == -1000);
    assert_true(p[2] == -INFINITY && p[3] == 0);
    assert_true(isnan(p[4]) && isnan(p[5]));
    double v = 0;
    assert_int_equal(tt_item(tt_mean(tt_zeros(S(0), TT_F32)), &v), TT_OK);
    assert_true(isnan(v));
}

/* A constant added to all logits changes nothing but how much of them f32 can hold: not the digits of their
 * differences. */
static void large_logits_lose_nothing(void **state) {
    (void)state;
    const double log2 = 0.69314718055994531;
    for (int dtype = TT_F32; dtype <= TT_F64; dtype++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_requires_grad_(tt_full(S(1, 2), (tt_dtype)dtype, 1e6), true);
        tt_tensor *loss = tt_cross_entropy(x, tt_zeros(S(1), TT_I64));
        tt_tensor *p = tt_to(tt_log_softmax(x, 1), TT_F64);
        double v = 0;
        assert_int_equal(tt_item(loss, &v), TT_OK);
        assert_true(fabs(v - log2) < 1e-7 && fabs(((double *)tt_tensor_data(p))[1] + log2) < 1e-7);
        assert_int_equal(tt_backward(loss), TT_OK);
        const double *g = tt_tensor_data(tt_to(tt_grad(x), TT_F64));
        assert_true(fabs(g[0] + 0.5) < 1e-7 && fabs(g[1] - 0.5) < 1e-7);
    }
}

/* The gradient of what was repeated over many rows is rounded once. */
static void repeated_inputs_add_up_exactly(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    enum { ROWS = 200000 };
    tt_tensor *b = tt_requires_grad_(tt_ones(S(3), TT_F32), true), *rows = tt_full(S(ROWS, 3), TT_F32, 0.1);
    for (int pass = 1; pass <= 2; pass++) {
        assert_int_equal(tt_backward(tt_sum(tt_mul(rows, b))), TT_OK);
        for (int i = 0; i < 3; i++)
            assert_true(tt_tensor_f32(tt_grad(b))[i] == (float)(pass * (ROWS * (double)0.1f)));
    }
}

static void products_of_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_matmul(tt_zeros(S(2, 0), TT_F32), tt_zeros(S(0, 3), TT_F32));
    assert_true(tt_equal(y, tt_zeros(S(2, 3), TT_F32)));
    tt_tensor *b = f32(S(2), (float[]){1, 2});
    assert_true(tt_equal(tt_linear(tt_zeros(S(1, 0), TT_F32), tt_zeros(S(2, 0), TT_F32), b), tt_view(b, S(1, 2))));
    assert_int_equal(tt_tensor_numel(tt_linear(tt_zeros(S(0, 3), TT_F32), tt_zeros(S(2, 3), TT_F32), b)), 0);
    assert_int_equal(tt_tensor_numel(tt_log_softmax(tt_zeros(S(3, 0), TT_F32), 1)), 0);
}

static void argmax_is_the_first_of_the_largest(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(3, 3), (float[]){1, 5, 5, 7, NAN, 9, -1, -2, -1});
    assert_true(tt_equal(tt_argmax(x, 1), tt_from_data(((int64_t[]){1, 1, 0}), S(3), TT_I64)));
    assert_true(tt_equal(tt_argmax(x, 0), tt_from_data(((int64_t[]){1, 1, 1}), S(3), TT_I64)));
    assert_true(tt_equal(tt_argmax(tt_transpose(x, 0, 1), -1), tt_argmax(x, 0)));
    for (int dtype = TT_F32; dtype <= TT_U8; dtype++)
        assert_true(tt_equal(tt_argmax(tt_to(tt_arange(4), (tt_dtype)dtype), 0), tt_full(TT_SCALAR, TT_I64, 3)));
}

/* ---- errors: name of the operator, and what came ---- */

static void wrong_shapes(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 3), TT_F32), *b = tt_zeros(S(4, 5), TT_F32), *v = tt_zeros(S(3), TT_F32);
    tt_tensor *t = tt_zeros(S(2), TT_I64), *t3 = tt_zeros(S(3), TT_I64), *scalar = tt_zeros(TT_SCALAR, TT_F32);
    op_expect(tt_add(a, b), TT_ERR_SHAPE, "tt_add", "a f32 (2, 3), b f32 (4, 5)");
    op_expect(tt_sub(a, b), TT_ERR_SHAPE, "tt_sub", "a f32 (2, 3), b f32 (4, 5)");
    op_expect(tt_mul(a, b), TT_ERR_SHAPE, "tt_mul", "a f32 (2, 3), b f32 (4, 5)");
    op_expect(tt_matmul(a, b), TT_ERR_SHAPE, "tt_matmul", "a f32 (2, 3), b f32 (4, 5)");
    op_expect(tt_matmul(b, v), TT_ERR_SHAPE, "tt_matmul", "b f32 (3)");
    op_expect(tt_linear(a, b, NULL), TT_ERR_SHAPE, "tt_linear",
              "expected x (..., 5) to match weight f32 (4, 5), got x f32 (2, 3)");
    op_expect(tt_linear(scalar, b, NULL), TT_ERR_SHAPE, "tt_linear", "x f32 ()");
    op_expect(tt_linear(v, v, NULL), TT_ERR_SHAPE, "tt_linear", "expected weight (K, C), got weight f32 (3)");
    op_expect(tt_linear(a, tt_zeros(S(4, 3), TT_F32), v), TT_ERR_SHAPE, "tt_linear", "expected bias (4)");
    op_expect(tt_log_softmax(a, 2), TT_ERR_SHAPE, "tt_log_softmax", "no dimension 2 in f32 (2, 3)");
    op_expect(tt_log_softmax(scalar, 0), TT_ERR_SHAPE, "tt_log_softmax", "f32 ()");
    op_expect(tt_nll_loss(v, t), TT_ERR_SHAPE, "tt_nll_loss", "log_prob f32 (3)");
    op_expect(tt_nll_loss(a, t3), TT_ERR_SHAPE, "tt_nll_loss", "target i64 (3)");
    op_expect(tt_cross_entropy(v, t), TT_ERR_SHAPE, "tt_cross_entropy", "logits f32 (3)");
    op_expect(tt_cross_entropy(a, t3), TT_ERR_SHAPE, "tt_cross_entropy",
              "expected target (2) to match logits f32 (2, 3), got target i64 (3)");
    op_expect(tt_mse_loss(a, b), TT_ERR_SHAPE, "tt_mse_loss", "input f32 (2, 3), target f32 (4, 5)");
    op_expect(tt_argmax(a, -3), TT_ERR_SHAPE, "tt_argmax", "no dimension -3");
    op_expect(tt_argmax(tt_zeros(S(2, 0), TT_F32), 1), TT_ERR_SHAPE, "tt_argmax", "f32 (2, 0)");
    op_expect(tt_view(a, S(4)), TT_ERR_SHAPE, "tt_view", "got (4)");
    op_expect(tt_view(a, S(-1, -1)), TT_ERR_SHAPE, "tt_view", "got (-1, -1)");
    op_expect(tt_view(tt_transpose(a, 0, 1), S(6)), TT_ERR_SHAPE, "tt_view", "use tt_reshape()");
    op_expect(tt_reshape(a, S(4, -1)), TT_ERR_SHAPE, "tt_reshape", "got (4, -1)");
    op_expect(tt_flatten(a, 2), TT_ERR_SHAPE, "tt_flatten", "no dimension 2");
    op_expect(tt_transpose(a, 0, 2), TT_ERR_SHAPE, "tt_transpose", "no dimensions 0 and 2");
    op_expect(tt_narrow(a, 1, 2, 2), TT_ERR_SHAPE, "tt_narrow", "2 entries from 2");
    op_expect(tt_narrow(a, 2, 0, 1), TT_ERR_SHAPE, "tt_narrow", "no dimension 2");
    op_expect(tt_empty(S(-1), TT_F32), TT_ERR_SHAPE, "tt_empty", "f32 (-1)");
    op_expect(tt_zeros(S(INT64_MAX, INT64_MAX), TT_U8), TT_ERR_SHAPE, "tt_zeros", "u8");
    op_expect(tt_empty((tt_shape){.ndim = 9}, TT_F32), TT_ERR_SHAPE, "tt_empty", "got 9");
}

static void wrong_dtypes(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 2), TT_F32), *d = tt_zeros(S(2, 2), TT_F64), *i = tt_zeros(S(2, 2), TT_I64);
    tt_tensor *t = tt_zeros(S(2), TT_I64);
    op_expect(tt_add(a, d), TT_ERR_DTYPE, "tt_add", "a f32 (2, 2), b f64 (2, 2)");
    op_expect(tt_sub(i, i), TT_ERR_DTYPE, "tt_sub", "a i64 (2, 2), b i64 (2, 2)");
    op_expect(tt_mul(d, a), TT_ERR_DTYPE, "tt_mul", "a f64 (2, 2), b f32 (2, 2)");
    op_expect(tt_matmul(a, d), TT_ERR_DTYPE, "tt_matmul", "b f64");
    op_expect(tt_linear(a, a, d), TT_ERR_DTYPE, "tt_linear", "x f32 (2, 2), weight f32 (2, 2), bias f64 (2, 2)");
    op_expect(tt_relu(i), TT_ERR_DTYPE, "tt_relu", "x i64");
    op_expect(tt_scale(i, 2), TT_ERR_DTYPE, "tt_scale", "x i64");
    op_expect(tt_mean(i), TT_ERR_DTYPE, "tt_mean", "x i64");
    op_expect(tt_sum(i), TT_ERR_DTYPE, "tt_sum", "x i64");
    op_expect(tt_log_softmax(i, 1), TT_ERR_DTYPE, "tt_log_softmax", "x i64");
    op_expect(tt_nll_loss(a, a), TT_ERR_DTYPE, "tt_nll_loss", "expected target i64 (2)");
    op_expect(tt_nll_loss(i, t), TT_ERR_DTYPE, "tt_nll_loss", "log_prob i64");
    op_expect(tt_cross_entropy(a, tt_zeros(S(2), TT_I32)), TT_ERR_DTYPE, "tt_cross_entropy", "target i32 (2)");
    op_expect(tt_cross_entropy(i, t), TT_ERR_DTYPE, "tt_cross_entropy", "logits i64");
    op_expect(tt_mse_loss(a, d), TT_ERR_DTYPE, "tt_mse_loss", "target f64");
    op_expect(tt_requires_grad_(i, true), TT_ERR_DTYPE, "tt_requires_grad_", "i64 (2, 2)");
    op_expect(tt_empty(S(1), (tt_dtype)77), TT_ERR_DTYPE, "tt_empty", "77");
    op_expect(tt_full(S(1), TT_U8, 300), TT_ERR_INVALID, "tt_full", "300 does not fit u8");
    op_expect(tt_from_data(NULL, S(1), TT_U8), TT_ERR_INVALID, "tt_from_data", "NULL");
    op_expect(tt_from_blob(NULL, S(1), TT_U8), TT_ERR_INVALID, "tt_from_blob", "NULL");
}

static void targets_out_of_range(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32);
    op_expect(tt_cross_entropy(x, tt_from_data(((int64_t[]){2, 3}), S(2), TT_I64)), TT_ERR_INVALID, "tt_cross_entropy",
              "expected targets in 0..2, got target[1] = 3");
    op_expect(tt_nll_loss(x, tt_from_data(((int64_t[]){-1, 0}), S(2), TT_I64)), TT_ERR_INVALID, "tt_nll_loss",
              "target[0] = -1");
}

static void null_gives_null_and_no_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 2), TT_F32), *t = tt_zeros(S(2), TT_I64);
    const tt_tensor *got[] = {
        tt_add(NULL, x),
        tt_add(x, NULL),
        tt_sub(NULL, x),
        tt_mul(x, NULL),
        tt_scale(NULL, 1),
        tt_mean(NULL),
        tt_sum(NULL),
        tt_matmul(NULL, x),
        tt_matmul(x, NULL),
        tt_linear(NULL, x, x),
        tt_linear(x, NULL, x),
        tt_relu(NULL),
        tt_log_softmax(NULL, 0),
        tt_nll_loss(NULL, t),
        tt_nll_loss(x, NULL),
        tt_cross_entropy(NULL, t),
        tt_mse_loss(NULL, x),
        tt_mse_loss(x, NULL),
        tt_cross_entropy(x, NULL),
        tt_view(NULL, S(1)),
        tt_reshape(NULL, S(1)),
        tt_flatten(NULL, 0),
        tt_transpose(NULL, 0, 0),
        tt_narrow(NULL, 0, 0, 0),
        tt_contiguous(NULL),
        tt_clone(NULL),
        tt_to(NULL, TT_F32),
        tt_argmax(NULL, 0),
        tt_detach(NULL),
        tt_requires_grad_(NULL, true),
        tt_keep(NULL),
    };
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        assert_null(got[i]);
    assert_int_equal(tt_last_status(), TT_OK);
    double v;
    assert_int_equal(tt_item(NULL, &v), TT_ERR_INVALID);
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gradients),
        cmocka_unit_test(all_small_types),
        cmocka_unit_test(gradients_of_repeated_matrices_are_summed_in_f32),
        cmocka_unit_test(results_keep_the_order_of_memory),
        cmocka_unit_test(gradients_lie_as_their_leaves),
        cmocka_unit_test(all_match_pytorch),
        cmocka_unit_test(the_checker_finds_a_wrong_gradient),
        cmocka_unit_test(special_values),
        cmocka_unit_test(large_logits_lose_nothing),
        cmocka_unit_test(repeated_inputs_add_up_exactly),
        cmocka_unit_test(products_of_nothing),
        cmocka_unit_test(argmax_is_the_first_of_the_largest),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(wrong_dtypes),
        cmocka_unit_test(targets_out_of_range),
        cmocka_unit_test(null_gives_null_and_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
