/* Normalisation: gradients against finite differences, element types and devices against each other, PyTorch's numbers,
 * running statistics, wrong inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "op_cases_norm.h"
#include "op_checks.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static const op_family family = {.cases = norm_cases, .count = OP_COUNT(norm_cases), .vectors = "torch-norm.json"};

static void results_lie_as_their_inputs(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_memory_format(tt_rand(S(2, 4, 5, 5), NULL), TT_CHANNELS_LAST);
    assert_true(gradcheck_same_order(tt_batch_norm(x, .training = true), x));
    assert_true(gradcheck_same_order(tt_group_norm(x, 2), x));
    assert_true(gradcheck_same_order(tt_layer_norm(x, S(5)), x));
}

static void batches_of_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_zeros(S(0, 4), TT_F32), true);
    tt_tensor *w = tt_requires_grad_(tt_ones(S(4), TT_F32), true), *one = tt_ones(S(4), TT_F32);
    tt_tensor *y = tt_add(tt_layer_norm(x, S(4), .weight = w), tt_group_norm(x, 2, .weight = w));
    y = tt_add(y, tt_batch_norm(x, .running_mean = one, .running_var = one, .weight = w));
    assert_int_equal(tt_tensor_numel(y), 0);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(tt_equal(tt_grad(w), tt_zeros(S(4), TT_F32)));
    tt_tensor *mean = tt_full(S(4), TT_F32, 3), *var = tt_full(S(4), TT_F32, 5), *z = tt_zeros(S(2, 4, 0), TT_F32);
    y = tt_batch_norm(x, .running_mean = mean, .running_var = var, .weight = w, .bias = w, .training = true);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(tt_tensor_numel(tt_grad(x)) == 0 && tt_equal(tt_grad(w), tt_zeros(S(4), TT_F32)));
    assert_int_equal(tt_tensor_numel(tt_batch_norm(z, .running_mean = mean, .running_var = var, .training = true)), 0);
    assert_true(tt_equal(mean, tt_full(S(4), TT_F32, 3)) && tt_equal(var, tt_full(S(4), TT_F32, 5)));
    op_expect(tt_group_norm(z, 2), TT_ERR_SHAPE, "tt_group_norm", "the others at least 1");
}

/* rms_norm's eps is f32's in 16 bits, too: small numbers become 1. */
static void eps_is_that_of_the_computation(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_dtype types[] = {TT_F32, TT_BF16, TT_F16};
    for (int i = 0; i < 3; i++) {
        tt_tensor *y = tt_to(tt_rms_norm(tt_full(S(4), types[i], 0.01), S(4)), TT_F32);
        assert_true(fabsf(tt_tensor_f32(y)[0] - 0.9994f) < 2e-3f);
    }
}

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 4, 5, 5), TT_F32), *w = tt_zeros(S(3), TT_F32), *flat = tt_zeros(S(4), TT_F32);
    op_expect(tt_batch_norm(flat, .training = true), TT_ERR_SHAPE, "tt_batch_norm", "got x f32 (4)");
    op_expect(tt_batch_norm(x), TT_ERR_INVALID, "tt_batch_norm", "expected .running_mean and .running_var");
    op_expect(tt_batch_norm(x, .running_mean = flat, .training = true), TT_ERR_INVALID, "tt_batch_norm",
              "without both");
    op_expect(tt_batch_norm(x, .weight = w, .training = true), TT_ERR_SHAPE, "tt_batch_norm", "expected weight (4)");
    op_expect(tt_batch_norm(tt_zeros(S(1, 4), TT_F32), .training = true), TT_ERR_INVALID, "tt_batch_norm",
              "more than one element a channel");
    op_expect(tt_batch_norm(x, .training = true, .eps = -1), TT_ERR_INVALID, "tt_batch_norm", "got -1");
    op_expect(tt_layer_norm(x, S(4)), TT_ERR_SHAPE, "tt_layer_norm", "got (4) and x f32 (2, 4, 5, 5)");
    op_expect(tt_layer_norm(flat, S(2, 4)), TT_ERR_SHAPE, "tt_layer_norm", "got (2, 4)");
    op_expect(tt_layer_norm(x, S(5), .weight = w), TT_ERR_SHAPE, "tt_layer_norm", "expected weight (5)");
    op_expect(tt_layer_norm(x, S(5), .bias = w), TT_ERR_SHAPE, "tt_layer_norm", "expected bias (5)");
    op_expect(tt_layer_norm(x, S(5), .eps = -1), TT_ERR_INVALID, "tt_layer_norm", "got -1");
    op_expect(tt_rms_norm(x, S(4)), TT_ERR_SHAPE, "tt_rms_norm", "got (4)");
    op_expect(tt_group_norm(x, 3), TT_ERR_INVALID, "tt_group_norm", "got 3");
    op_expect(tt_group_norm(flat, 1), TT_ERR_SHAPE, "tt_group_norm", "got x f32 (4)");
    op_expect(tt_group_norm(tt_zeros(S(2, 4), TT_I64), 2), TT_ERR_DTYPE, "tt_group_norm", "x i64");
    assert_null(tt_batch_norm(NULL));
    assert_null(tt_layer_norm(NULL, S(1)));
    assert_null(tt_group_norm(NULL, 1));
    assert_null(tt_rms_norm(NULL, S(1)));
    assert_int_equal(tt_last_status(), TT_OK);
}

/* ---- layers ---- */

/* Two steps of training, then evaluation; the batches are PyTorch's, drawn from the same seed. */
static void running_statistics_are_pytorchs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-norm.json");
    const json_t *want = json_object_get(vectors, "running");
    for (int format = TT_CONTIGUOUS; format <= TT_CHANNELS_LAST; format++) {
        TT_AUTO_SCOPE;
        tt_module *m = tt_nn_batch_norm2d(3, .momentum = 0.3);
        tt_manual_seed(0);
        for (int step = 0; step < 2; step++)
            assert_non_null(
                tt_module_forward(m, tt_to_memory_format(tt_rand(S(2, 3, 4, 5), NULL), (tt_memory_format)format)));
        tt_module_eval(m);
        op_numbers("BatchNorm2d", tt_module_forward(m, tt_rand(S(2, 3, 4, 5), NULL)), json_object_get(want, "result"),
                   op_usual.torch);
        op_check_state(tt_module_state_dict(m), json_object_get(want, "state"), 1e-6);
        tt_module_free(m);
    }
    json_decref(vectors);
}

static void layers_run_their_operators(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_rand(S(4, 6, 5), NULL);
    tt_module *batch = tt_nn_batch_norm1d(6, .no_affine = true, .no_running_stats = true, .eps = 1e-3);
    tt_module *rows = tt_nn_sequential(tt_nn_layer_norm(S(5)), tt_nn_rms_norm(S(6, 5)), tt_nn_group_norm(3, 6));
    tt_module_eval(batch);
    assert_int_equal(tt_module_state_dict(batch)->count, 0);
    assert_true(tt_equal(tt_module_forward(batch, x), tt_batch_norm(x, .training = true, .eps = 1e-3)));
    assert_int_equal(tt_module_state_dict(rows)->count, 5);
    tt_tensor *y = tt_group_norm(tt_rms_norm(tt_layer_norm(x, S(5)), S(6, 5)), 3);
    assert_true(gradcheck_difference(tt_module_forward(rows, x), y) < 1e-6);
    tt_module_free(rows);
    tt_module_free(batch);
}

static void wrong_layers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    op_expect(tt_nn_batch_norm2d(0), TT_ERR_INVALID, "tt_nn_batch_norm2d", "got 0");
    op_expect(tt_nn_batch_norm1d(3, .momentum = -1), TT_ERR_INVALID, "tt_nn_batch_norm1d", "-1");
    op_expect(tt_nn_batch_norm1d(3, .dtype = TT_I64), TT_ERR_DTYPE, "tt_nn_batch_norm1d", "got i64");
    op_expect(tt_nn_layer_norm(S(0)), TT_ERR_INVALID, "tt_nn_layer_norm", "got (0)");
    op_expect(tt_nn_layer_norm(TT_SCALAR), TT_ERR_INVALID, "tt_nn_layer_norm", "got ()");
    op_expect(tt_nn_rms_norm(S(3), .eps = -1), TT_ERR_INVALID, "tt_nn_rms_norm", "-1");
    op_expect(tt_nn_group_norm(4, 6), TT_ERR_INVALID, "tt_nn_group_norm", "to divide 6 channels, got 4");
    tt_module *m = tt_nn_batch_norm2d(3);
    op_expect(tt_module_forward(m, tt_zeros(S(2, 3), TT_F32)), TT_ERR_SHAPE, "tt_nn_batch_norm2d", "expected x of 4");
    tt_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&family),
        cmocka_unit_test(results_lie_as_their_inputs),
        cmocka_unit_test(batches_of_nothing),
        cmocka_unit_test(eps_is_that_of_the_computation),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(running_statistics_are_pytorchs),
        cmocka_unit_test(layers_run_their_operators),
        cmocka_unit_test(wrong_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
