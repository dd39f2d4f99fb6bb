/* Losses: gradients, devices, element types, layouts, PyTorch's numbers, special values, wrong arguments. */
#include "op_checks.h"

#include "op_cases_loss.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static const op_family family = {.cases = loss_cases,
                                 .count = OP_COUNT(loss_cases),
                                 .vectors = "torch-loss.json",
                                 .more = {.f16 = 2e-2, .bf16 = 2e-1, .torch = 6e-7}};

static void gradients_of_weights(void **state) {
    (void)state;
    op_check(&(op_family){.cases = weight_cases, .count = OP_COUNT(weight_cases)});
}

static double item(tt_tensor *x) {
    double v = 0;
    assert_int_equal(tt_item(x, &v), TT_OK);
    return v;
}

static tt_tensor *f32(tt_shape shape, const float *v) { return tt_from_data(v, shape, TT_F32); }
static tt_tensor *i64(tt_shape shape, const int64_t *v) { return tt_from_data(v, shape, TT_I64); }

/* Options that change nothing leave the loss as it is without them. */
static void options_that_change_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_rand(S(6, 5), NULL), *t = class_targets(x, -1), *one = tt_ones(S(5), TT_F32);
    double plain = item(tt_cross_entropy(x, t));
    assert_true(fabs(item(tt_cross_entropy(x, t, .weight = one)) - plain) < 1e-6);
    assert_true(fabs(item(tt_cross_entropy(x, t, .ignore_index = TT_INDEX(-7))) - plain) < 1e-6);
    assert_true(fabs(item(tt_mean(tt_cross_entropy(x, t, .reduction = TT_REDUCTION_NONE))) - plain) < 1e-6);
}

/* The mean of no rows is 0/0, as in PyTorch; their sum is 0, and so is the gradient. */
static void all_rows_ignored(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_rand(S(2, 3), NULL), true), *t = i64(S(2), (int64_t[]){-100, -100});
    assert_true(isnan(item(tt_cross_entropy(x, t))));
    tt_tensor *sum = tt_cross_entropy(x, t, .reduction = TT_REDUCTION_SUM);
    assert_true(item(sum) == 0);
    assert_int_equal(tt_backward(sum), TT_OK);
    assert_true(item(tt_any(tt_grad(x))) == 0);
}

static void special_values(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(3), (float[]){200, -200, 0}), *z = f32(S(3), (float[]){1, 0, 0});
    tt_tensor *y = tt_binary_cross_entropy_with_logits(x, z, .reduction = TT_REDUCTION_NONE);
    assert_true(tt_tensor_f32(y)[0] == 0 && tt_tensor_f32(y)[1] == 0 &&
                fabsf(tt_tensor_f32(y)[2] - 0.6931472f) < 1e-7f);
    assert_true(item(tt_kl_div(f32(S(1), (float[]){-3}), tt_zeros(S(1), TT_F32))) == 0);
    assert_true(item(tt_smooth_l1_loss(x, z, 0, .reduction = TT_REDUCTION_SUM)) == 399);
    assert_true(item(tt_l1_loss(x, z, .reduction = TT_REDUCTION_SUM)) == 399);
    assert_true(isnan(item(tt_l1_loss(tt_zeros(S(0), TT_F32), tt_zeros(S(0), TT_F32)))));
}

/* The loss of an empty batch is NaN as a mean, 0 as a sum, and empty otherwise; so are its gradients. */
static void expect_loss_of_nothing(tt_tensor *loss, tt_tensor *x, tt_reduction reduction) {
    assert_non_null(loss);
    if (reduction == TT_REDUCTION_NONE)
        assert_int_equal(tt_tensor_numel(loss), 0);
    else if (reduction == TT_REDUCTION_SUM)
        assert_true(item(loss) == 0);
    else
        assert_true(isnan(item(loss)));
    assert_int_equal(tt_backward(reduction == TT_REDUCTION_NONE ? tt_sum(loss) : loss), TT_OK);
    assert_true(tt_grad(x) && tt_tensor_numel(tt_grad(x)) == 0);
    tt_zero_grad(x);
}

static void empty_batches_have_losses(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_BF16, TT_F16};
    for (int i = 0; i < 16; i++) {
        tt_reduction r = (tt_reduction)(i % 3);
        tt_dtype dtype = types[i / 4];
        tt_tensor *x = tt_requires_grad_(tt_zeros(S(0, 3), dtype), true), *t = tt_zeros(S(0), TT_I64);
        tt_tensor *w = tt_ones(S(3), dtype), *none = tt_requires_grad_(tt_zeros(S(0, 0), dtype), true);
        tt_tensor *images = tt_requires_grad_(tt_zeros(S(2, 3, 0, 4), dtype), true);
        tt_tensor *places = tt_zeros(S(2, 0, 4), TT_I64);
        expect_loss_of_nothing(tt_cross_entropy(x, t, .reduction = r), x, r);
        expect_loss_of_nothing(tt_cross_entropy(x, t, .weight = w, .label_smoothing = 0.1, .reduction = r), x, r);
        expect_loss_of_nothing(tt_cross_entropy(none, t, .reduction = r), none, r);
        expect_loss_of_nothing(tt_cross_entropy(images, places, .reduction = r), images, r);
        expect_loss_of_nothing(tt_nll_loss(x, t, .reduction = r), x, r);
        expect_loss_of_nothing(tt_nll_loss(x, t, .weight = w, .reduction = r), x, r);
        expect_loss_of_nothing(tt_nll_loss(images, places, .reduction = r), images, r);
        expect_loss_of_nothing(tt_mse_loss(x, tt_zeros(S(0, 3), dtype), .reduction = r), x, r);
        expect_loss_of_nothing(tt_smooth_l1_loss(x, tt_zeros(S(0, 3), dtype), 1, .reduction = r), x, r);
        expect_loss_of_nothing(tt_kl_div(x, tt_zeros(S(0, 3), dtype), .reduction = r), x, r);
        expect_loss_of_nothing(tt_binary_cross_entropy_with_logits(x, tt_zeros(S(0, 3), dtype), .reduction = r), x, r);
    }
    op_expect(tt_cross_entropy(tt_zeros(S(2, 0), TT_F32), tt_zeros(S(2), TT_I64)), TT_ERR_SHAPE, "tt_cross_entropy",
              "V at least 1, got logits f32 (2, 0)");
}

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 3), TT_F32), *b = tt_zeros(S(3), TT_F32), *t = tt_zeros(S(2), TT_I64);
    tt_tensor *d = tt_zeros(S(2, 3), TT_F64);
    op_expect(tt_l1_loss(a, b), TT_ERR_SHAPE, "tt_l1_loss", "input f32 (2, 3), target f32 (3)");
    op_expect(tt_l1_loss(a, d), TT_ERR_DTYPE, "tt_l1_loss", "target f64");
    op_expect(tt_mse_loss(a, b, .reduction = TT_REDUCTION_SUM), TT_ERR_SHAPE, "tt_mse_loss", "target f32 (3)");
    op_expect(tt_mse_loss(a, a, .reduction = (tt_reduction)9), TT_ERR_INVALID, "tt_mse_loss", "got 9");
    op_expect(tt_l1_loss(a, a, .reduction = TT_REDUCTION_BATCHMEAN), TT_ERR_INVALID, "tt_l1_loss", "got 3");
    op_expect(tt_smooth_l1_loss(a, a, -1), TT_ERR_INVALID, "tt_smooth_l1_loss", "beta of at least 0, got -1");
    op_expect(tt_kl_div(a, d), TT_ERR_DTYPE, "tt_kl_div", "target f64");
    op_expect(tt_binary_cross_entropy_with_logits(a, a, .pos_weight = tt_zeros(S(2), TT_F32)), TT_ERR_SHAPE,
              "tt_binary_cross_entropy_with_logits", "pos_weight f32 (2)");
    op_expect(tt_cross_entropy(a, t, .label_smoothing = 1.5), TT_ERR_INVALID, "tt_cross_entropy", "0..1, got 1.5");
    op_expect(tt_cross_entropy(a, t, .weight = tt_zeros(S(2), TT_F32)), TT_ERR_SHAPE, "tt_cross_entropy",
              "expected weight (3), one for each class, got weight f32 (2)");
    op_expect(tt_nll_loss(a, t, .weight = tt_zeros(S(3), TT_F64)), TT_ERR_DTYPE, "tt_nll_loss", "weight f64 (3)");
    op_expect(tt_nll_loss(a, i64(S(2), (int64_t[]){-100, 3})), TT_ERR_INVALID, "tt_nll_loss", "target[1] = 3");
    op_expect(tt_nll_loss(a, i64(S(2), (int64_t[]){-100, 0}), .ignore_index = TT_INDEX(1)), TT_ERR_INVALID,
              "tt_nll_loss", "target[0] = -100");
    op_expect(tt_cross_entropy(tt_zeros(S(2, 3, 4), TT_F32), t), TT_ERR_SHAPE, "tt_cross_entropy",
              "expected logits (B, V, d...) and target (B, d...), got f32 (2, 3, 4) and i64 (2)");
    op_expect(tt_nll_loss(tt_zeros(S(2, 3, 4), TT_F32), tt_zeros(S(2, 5), TT_I64)), TT_ERR_SHAPE, "tt_nll_loss",
              "i64 (2, 5)");
    tt_tensor *const none[] = {tt_l1_loss(NULL, a), tt_smooth_l1_loss(a, NULL, 1), tt_kl_div(NULL, a),
                               tt_binary_cross_entropy_with_logits(a, NULL), tt_cross_entropy(NULL, t)};
    for (size_t k = 0; k < OP_COUNT(none); k++)
        assert_null(none[k]);
    assert_int_equal(tt_last_status(), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&family),
        cmocka_unit_test(gradients_of_weights),
        cmocka_unit_test(options_that_change_nothing),
        cmocka_unit_test(all_rows_ignored),
        cmocka_unit_test(special_values),
        cmocka_unit_test(empty_batches_have_losses),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
