/* Convolutions and pooling: gradients against finite differences, element types and devices against each other,
 * PyTorch's numbers, memory formats, wrong inputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "op_cases_conv.h"
#include "op_checks.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

/* PyTorch's loops add up the products of a window in another order than oneDNN's. */
static const op_family family = {
    .cases = conv_cases, .count = OP_COUNT(conv_cases), .vectors = "torch-conv.json", .more = {.torch = 1e-6}};

/* oneDNN refuses these sizes: there is room for more windows than x has elements. */
static void output_padding_beyond_the_stride(void **state) {
    (void)state;
    static const gradcheck_case beyond = {
        "conv_transpose2d_beyond", f_transposed_beyond, 3, {{4, {2, 4, 3, 3}}, {4, {4, 3, 2, 2}}, {1, {3}}}};
    const op_family alone = {.cases = &beyond, .count = 1};
    op_check(&alone);
    op_check_small_types(&alone);
}

/* Leave NaN in the memory that the next calls are given. */
static void soil_memory(void) {
    TT_AUTO_SCOPE;
    for (int64_t bytes = 64; bytes <= 1 << 20; bytes *= 2)
        for (int i = 0; i < 4; i++)
            assert_non_null(tt_full(S(bytes / 4), TT_F32, NAN));
}

/* Rows 0 and 3 and column 0 of the weight: oneDNN's gradients of them are, in bf16, what stood in memory. */
static void weights_that_meet_only_padding(void **state) {
    (void)state;
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to_memory_format(tt_ones(S(2, 4, 2, 1), types[i]), TT_CHANNELS_LAST);
        tt_tensor *w = tt_requires_grad_(tt_ones(S(1, 4, 4, 2), types[i]), true);
        tt_tensor *y = tt_conv2d(x, w, .stride = 2, .padding = 1);
        soil_memory();
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        tt_tensor *dw = tt_to(tt_grad(w), TT_F32);
        for (int64_t e = 0; e < tt_tensor_numel(dw); e++) {
            int64_t row = e / 2 % 4, column = e % 2;
            assert_true(tt_tensor_f32(dw)[e] == ((row == 1 || row == 2) && column == 1 ? 2 : 0));
        }
    }
}

static void results_lie_as_images_or_weights_do(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3, 5, 5), TT_F32), *w = tt_zeros(S(4, 3, 3, 3), TT_F32);
    tt_tensor *x_last = tt_to_memory_format(x, TT_CHANNELS_LAST), *w_last = tt_to_memory_format(w, TT_CHANNELS_LAST);
    assert_true(tt_is_contiguous(tt_conv2d(x, w)));
    assert_int_equal(tt_tensor_stride(tt_conv2d(x_last, w), 1), 1);
    assert_int_equal(tt_tensor_stride(tt_conv2d(x, w_last), 1), 1);
    /* one channel lies the same in either format: its strides say which one is meant */
    tt_tensor *grey = tt_zeros(S(2, 1, 5, 5), TT_F32), *w1 = tt_zeros(S(4, 1, 3, 3), TT_F32);
    assert_true(tt_is_contiguous(tt_conv2d(grey, w1)));
    assert_int_equal(tt_tensor_stride(tt_conv2d(tt_to_memory_format(grey, TT_CHANNELS_LAST), w1), 1), 1);
}

static void batches_of_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_zeros(S(0, 3, 5, 5), TT_F32), true);
    tt_tensor *w = tt_requires_grad_(tt_ones(S(4, 3, 3, 3), TT_F32), true);
    tt_tensor *b = tt_requires_grad_(tt_ones(S(4), TT_F32), true), *y = tt_conv2d(x, w, .bias = b);
    assert_int_equal(tt_tensor_size(y, 0), 0);
    assert_int_equal(tt_tensor_size(y, 3), 3);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(tt_equal(tt_grad(w), tt_zeros(S(4, 3, 3, 3), TT_F32)) && tt_equal(tt_grad(b), tt_zeros(S(4), TT_F32)));
}

/* Weights that want no gradient are not differentiated, and neither are images. */
static void only_what_is_wanted_is_made(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_rand(S(2, 3, 5, 5), NULL), *w = tt_rand(S(4, 3, 3, 3), NULL);
    tt_tensor *b = tt_requires_grad_(tt_zeros(S(4), TT_F32), true);
    assert_int_equal(tt_backward(tt_sum(tt_conv2d(x, w, .bias = b))), TT_OK);
    assert_null(tt_grad(x));
    assert_null(tt_grad(w));
    assert_true(tt_equal(tt_grad(b), tt_full(S(4), TT_F32, 18)));
}

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 4, 5, 5), TT_F32), *w = tt_zeros(S(6, 4, 3, 3), TT_F32);
    op_expect(tt_conv2d(tt_zeros(S(4, 5), TT_F32), w), TT_ERR_SHAPE, "tt_conv2d", "expected x (N, 4, H, W)");
    op_expect(tt_conv2d(x, tt_zeros(S(6, 3, 3, 3), TT_F32)), TT_ERR_SHAPE, "tt_conv2d", "got x f32 (2, 4, 5, 5)");
    op_expect(tt_conv2d(x, tt_zeros(S(6, 4), TT_F32)), TT_ERR_SHAPE, "tt_conv2d", "got weight f32 (6, 4)");
    op_expect(tt_conv2d(x, tt_zeros(S(6, 4, 0, 3), TT_F32)), TT_ERR_SHAPE, "tt_conv2d", "none empty");
    op_expect(tt_conv2d(x, w, .bias = tt_zeros(S(5), TT_F32)), TT_ERR_SHAPE, "tt_conv2d", "expected bias (6)");
    op_expect(tt_conv2d(x, tt_zeros(S(5, 2, 3, 3), TT_F32), .groups = 2), TT_ERR_SHAPE, "tt_conv2d", "multiple of");
    op_expect(tt_conv2d(x, w, .dilation = 3), TT_ERR_SHAPE, "tt_conv2d", "is larger than x");
    op_expect(tt_conv2d(x, w, .groups = -1), TT_ERR_INVALID, "tt_conv2d", "groups");
    op_expect(tt_conv2d(x, w, .stride = -1), TT_ERR_INVALID, "tt_conv2d", "expected stride from 1");
    op_expect(tt_conv2d(x, w, .padding = -1), TT_ERR_INVALID, "tt_conv2d", "expected padding from 0");
    op_expect(tt_conv2d(x, w, .stride = 1, .stride_hw = {1, 1}), TT_ERR_INVALID, "tt_conv2d", "got both");
    op_expect(tt_conv2d(x, tt_zeros(S(6, 4, 3, 3), TT_F64)), TT_ERR_DTYPE, "tt_conv2d", "weight f64");
    op_expect(tt_conv2d(tt_zeros(S(2, 4, 5, 5), TT_I64), w), TT_ERR_DTYPE, "tt_conv2d", "x i64");
    op_expect(tt_conv2d(x, tt_to_device(w, tt_device_get("reference"))), TT_ERR_INVALID, "tt_conv2d", "reference");
    op_expect(tt_conv1d(x, w), TT_ERR_SHAPE, "tt_conv1d", "expected x (N, C, L)");
    tt_tensor *t = tt_zeros(S(4, 6, 3, 3), TT_F32);
    op_expect(tt_conv_transpose2d(x, w), TT_ERR_SHAPE, "tt_conv_transpose2d", "expected x (N, 6, H, W)");
    op_expect(tt_conv_transpose2d(x, t, .output_padding = 1), TT_ERR_INVALID, "tt_conv_transpose2d", "got 1");
    op_expect(tt_conv_transpose2d(x, t, .padding = 9), TT_ERR_SHAPE, "tt_conv_transpose2d", "a result of (-11, -11)");
    op_expect(tt_conv_transpose2d(x, t, .bias = tt_zeros(S(4), TT_F32)), TT_ERR_SHAPE, "tt_conv_transpose2d",
              "expected bias (6)");
    op_expect(tt_conv_transpose2d(x, t, .groups = 3), TT_ERR_SHAPE, "tt_conv_transpose2d", "groups = 3");
    assert_null(tt_conv1d(NULL, w));
    assert_null(tt_conv_transpose2d(x, NULL));
    assert_null(tt_conv2d(NULL, w));
    assert_null(tt_conv2d(x, NULL));
    assert_null(tt_conv2d_with(NULL, 0));
    assert_int_equal(tt_last_status(), TT_OK);
}

/* As in PyTorch: a window with NaN gives NaN; of equal elements the first one gets the gradient. */
static void maxima_of_nan_and_of_equal_ones(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int last = 0; last < 2; last++) {
        const float values[] = {NAN, 5, 1, 1, -INFINITY, -INFINITY, 7, NAN, 1, 1, -INFINITY, -INFINITY};
        tt_tensor *x = tt_from_data(values, S(1, 1, 2, 6), TT_F32);
        x = tt_requires_grad_(last ? tt_to_memory_format(x, TT_CHANNELS_LAST) : x, true);
        tt_tensor *y = tt_max_pool2d(x, 2);
        assert_true(isnan(tt_tensor_f32(y)[0]) && tt_tensor_f32(y)[1] == 1 && tt_tensor_f32(y)[2] == -INFINITY);
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        const float want[] = {0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0};
        assert_memory_equal(tt_tensor_f32(tt_grad(x)), want, sizeof want);
    }
}

static void wrong_windows(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3, 4, 4), TT_F32), *flat = tt_zeros(S(2, 3), TT_F32);
    op_expect(tt_max_pool2d(flat, 2), TT_ERR_SHAPE, "tt_max_pool2d", "got x f32 (2, 3)");
    op_expect(tt_avg_pool2d(tt_zeros(S(2, 0, 4, 4), TT_F32), 2), TT_ERR_SHAPE, "tt_avg_pool2d", "at least 1");
    op_expect(tt_max_pool2d(x, 0), TT_ERR_INVALID, "tt_max_pool2d", "expected kernel_size from 1");
    op_expect(tt_max_pool2d(x, 2, .kernel_size_hw = {2, 2}), TT_ERR_INVALID, "tt_max_pool2d", "got both");
    op_expect(tt_max_pool2d(x, 5), TT_ERR_SHAPE, "tt_max_pool2d", "a window of 5 does not fit");
    op_expect(tt_max_pool2d(x, 2, .padding = 2), TT_ERR_INVALID, "tt_max_pool2d", "at most half of the kernel's 2");
    op_expect(tt_max_pool2d(tt_zeros(S(1, 1, 2, 2), TT_F32), 2, .padding = 1, .dilation = 3), TT_ERR_SHAPE,
              "tt_max_pool2d", "does not fit");
    op_expect(tt_max_pool2d(x, 2, .stride = -1), TT_ERR_INVALID, "tt_max_pool2d", "stride");
    op_expect(tt_avg_pool2d(tt_zeros(S(1, 1, 2, 2), TT_I64), 2), TT_ERR_DTYPE, "tt_avg_pool2d", "x i64");
    op_expect(tt_adaptive_avg_pool2d(x, 0, 1), TT_ERR_INVALID, "tt_adaptive_avg_pool2d", "got (0, 1)");
    op_expect(tt_adaptive_avg_pool2d(x, 2, INT64_MAX), TT_ERR_SHAPE, "tt_adaptive_avg_pool2d", "9223372036854775807");
    op_expect(tt_adaptive_avg_pool2d(flat, 1, 1), TT_ERR_SHAPE, "tt_adaptive_avg_pool2d", "x f32 (2, 3)");
    assert_null(tt_max_pool2d(NULL, 2));
    assert_null(tt_avg_pool2d(NULL, 2));
    assert_null(tt_adaptive_avg_pool2d(NULL, 1, 1));
    assert_int_equal(tt_last_status(), TT_OK);
}

/* ---- layers ---- */

/* Bit for bit. */
static void layers_start_as_pytorchs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-conv.json");
    const json_t *modules = json_object_get(vectors, "modules");
    tt_manual_seed(0);
    tt_module *m = tt_nn_conv2d(4, 6, 0, .kernel_size_hw = {3, 2}, .groups = 2);
    TT_AUTO_SCOPE;
    op_check_state(tt_module_state_dict(m), json_object_get(op_find(modules, "Conv2d"), "state"), 0);
    tt_module_free(m);
    tt_manual_seed(0);
    m = tt_nn_conv_transpose2d(4, 6, 3, .groups = 2);
    op_check_state(tt_module_state_dict(m), json_object_get(op_find(modules, "ConvTranspose2d"), "state"), 0);
    tt_tensor *x = tt_ones(S(1, 4, 2, 2), TT_F32), *w = tt_named_tensors_find(tt_module_parameters(m), "weight");
    tt_tensor *b = tt_named_tensors_find(tt_module_parameters(m), "bias");
    assert_true(tt_equal(tt_module_forward(m, x), tt_conv_transpose2d(x, w, .bias = b, .groups = 2)));
    tt_module_free(m);
    json_decref(vectors);
}

static void layers_run_their_operator(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_conv2d(3, 4, 3, .stride = 2, .padding_hw = {1, 0}, .no_bias = true);
    tt_tensor *x = tt_rand(S(2, 3, 6, 7), NULL), *w = tt_named_tensors_find(tt_module_parameters(m), "weight");
    assert_int_equal(tt_module_parameters(m)->count, 1);
    assert_true(tt_equal(tt_module_forward(m, x), tt_conv2d(x, w, .stride = 2, .padding_hw = {1, 0})));
    tt_module_free(m);
    tt_module *pools = tt_nn_sequential(tt_nn_max_pool2d(3, .stride = 2, .padding_hw = {1, 0}), tt_nn_avg_pool2d(2),
                                        tt_nn_adaptive_avg_pool2d(2, 3));
    tt_tensor *y = tt_max_pool2d(x, 3, .stride = 2, .padding_hw = {1, 0});
    assert_true(tt_equal(tt_module_forward(pools, x), tt_adaptive_avg_pool2d(tt_avg_pool2d(y, 2), 2, 3)));
    tt_module_free(pools);
}

static void wrong_layers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    op_expect(tt_nn_conv2d(0, 4, 3), TT_ERR_INVALID, "tt_nn_conv2d", "in_channels 0");
    op_expect(tt_nn_conv2d(3, 4, 0), TT_ERR_INVALID, "tt_nn_conv2d", "kernel (0, 0)");
    op_expect(tt_nn_conv2d(3, 4, 3, .kernel_size_hw = {3, 3}), TT_ERR_INVALID, "tt_nn_conv2d", "kernel_size 0 beside");
    op_expect(tt_nn_conv2d(3, 4, 3, .groups = 2), TT_ERR_INVALID, "tt_nn_conv2d", "groups to divide");
    op_expect(tt_nn_conv2d(3, 4, 3, .dtype = TT_F16), TT_ERR_DTYPE, "tt_nn_conv2d", "got f16");
    op_expect(tt_nn_conv2d(3, 4, INT64_MAX / 2), TT_ERR_SHAPE, "tt_nn_conv2d", "f32");
    op_expect(tt_nn_conv_transpose2d(0, 4, 3), TT_ERR_INVALID, "tt_nn_conv_transpose2d", "in_channels 0");
    op_expect(tt_nn_conv_transpose2d(3, 4, 3, .groups = 2), TT_ERR_INVALID, "tt_nn_conv_transpose2d", "to divide");
    op_expect(tt_nn_max_pool2d(0), TT_ERR_INVALID, "tt_nn_max_pool2d", "got 0 and (0, 0)");
    op_expect(tt_nn_avg_pool2d(2, .kernel_size_hw = {2, 2}), TT_ERR_INVALID, "tt_nn_avg_pool2d", "got 2 and (2, 2)");
    op_expect(tt_nn_adaptive_avg_pool2d(1, 0), TT_ERR_INVALID, "tt_nn_adaptive_avg_pool2d", "got (1, 0)");
    op_expect(tt_nn_conv2d_with(NULL, 0), TT_ERR_INVALID, "tt_nn_conv2d", "sizes of at least 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&family),
        cmocka_unit_test(output_padding_beyond_the_stride),
        cmocka_unit_test(weights_that_meet_only_padding),
        cmocka_unit_test(results_lie_as_images_or_weights_do),
        cmocka_unit_test(batches_of_nothing),
        cmocka_unit_test(only_what_is_wanted_is_made),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(maxima_of_nan_and_of_equal_ones),
        cmocka_unit_test(wrong_windows),
        cmocka_unit_test(layers_start_as_pytorchs),
        cmocka_unit_test(layers_run_their_operator),
        cmocka_unit_test(wrong_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
