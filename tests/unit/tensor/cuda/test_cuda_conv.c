/* Convolutions, pooling and other sizes of images on the CUDA device, beside the cpu: as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "cuda_conv_cases.h"
#include "unit/expect.h"

/* ---- convolutions ---- */

static void convolutions_are_the_cpus(void **state) {
    (void)state;
    for (int i = 0; i < CONV_CASES; i++)
        for (int f = 0; f < FLOATS; f++)
            for (int lies = 0; lies < 3; lies++)
                compare_conv(&conv_cases[i], floats[f], lies != 1, lies == 1, lies == 2);
}

/* Many pixels: several blocks share the sum of a weight's gradient. The same bits each time. */
static void long_sums_of_weights_are_the_cpus(void **state) {
    (void)state;
    static const conv_case c = {"many pixels", 3, 2, 40, 41, 3, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}};
    TT_AUTO_SCOPE;
    for (int f = 0; f < FLOATS; f++) {
        tt_tensor *x = mixed(S(c.N, c.C, c.H, c.W), 7, floats[f]), *w = mixed(S(c.K, c.C, c.R, c.S), 10, floats[f]);
        tt_tensor *b = mixed(S(c.K), 4, floats[f]);
        conv_results far = run_conv(&c, far_leaf(x), far_leaf(w), far_leaf(b));
        conv_results again = run_conv(&c, far_leaf(x), far_leaf(w), far_leaf(b)), near = run_conv(&c, x, w, b);
        expect_close("dw", floats[f], far.dw, near.dw);
        expect_close("db", floats[f], far.db, near.db);
        expect_close("dx", floats[f], far.dx, near.dx);
        assert_true(tt_equal(far.dw, again.dw) && tt_equal(far.db, again.db) && tt_equal(far.dx, again.dx));
    }
}

static void empty_batches_are_convolved(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = far_leaf(tt_zeros(S(0, 2, 5, 5), TT_F32)), *w = far_leaf(mixed(S(3, 2, 3, 3), 10, TT_F32));
    conv_results r = run_conv(&conv_cases[0], x, w, NULL);
    assert_int_equal(tt_tensor_numel(r.y), 0);
    assert_true(tt_equal(here(r.dw), tt_zeros(S(3, 2, 3, 3), TT_F32)));
}

static void nan_goes_where_windows_see_it(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(1, 2, 6, 6), 7, TT_F32), *w = mixed(S(3, 2, 3, 3), 10, TT_F32);
    tt_tensor_f32(x)[8] = NAN;
    tt_tensor_f32(x)[70] = INFINITY;
    expect_close("conv2d", TT_F32, tt_conv2d(there(x), there(w)), tt_conv2d(x, w));
}

static void kinds_of_convolutions_are_the_cpus(void **state) {
    (void)state;
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *line = mixed(S(2, 3, 11), 7, floats[f]), *taps = mixed(S(4, 3, 3), 10, floats[f]);
        expect_close("conv1d", floats[f], tt_conv1d(there(line), there(taps), .stride = 2, .padding = 1),
                     tt_conv1d(line, taps, .stride = 2, .padding = 1));
        tt_tensor *x = mixed(S(2, 3, 4, 5), 7, floats[f]), *w = mixed(S(3, 2, 3, 3), 10, floats[f]);
        expect_close("conv_transpose2d", floats[f], tt_conv_transpose2d(there(x), there(w), .stride = 2, .padding = 1),
                     tt_conv_transpose2d(x, w, .stride = 2, .padding = 1));
    }
}

/* ---- pooling ---- */

typedef struct image_op {
    const char *name;
    tt_tensor *(*run)(tt_tensor *x);
} image_op;

static tt_tensor *max_2(tt_tensor *x) { return tt_max_pool2d(x, 2); }
static tt_tensor *max_overlapping(tt_tensor *x) { return tt_max_pool2d(x, 3, .stride = 2, .padding = 1); }
static tt_tensor *max_dilated(tt_tensor *x) {
    return tt_max_pool2d(x, 0, .kernel_size_hw = {2, 3}, .stride = 1, .padding_hw = {1, 0}, .dilation_hw = {3, 2});
}
static tt_tensor *max_ceil(tt_tensor *x) { return tt_max_pool2d(x, 3, .stride = 2, .ceil_mode = true); }
static tt_tensor *avg_2(tt_tensor *x) { return tt_avg_pool2d(x, 2); }
static tt_tensor *avg_padded(tt_tensor *x) { return tt_avg_pool2d(x, 3, .stride = 2, .padding = 1); }
static tt_tensor *avg_inside(tt_tensor *x) {
    return tt_avg_pool2d(x, 3, .stride = 2, .padding = 1, .exclude_padding = true);
}
static tt_tensor *avg_ceil(tt_tensor *x) {
    return tt_avg_pool2d(x, 3, .stride_hw = {2, 3}, .padding = 1, .ceil_mode = true);
}
static tt_tensor *avg_divisor(tt_tensor *x) { return tt_avg_pool2d(x, 2, .stride = 1, .divisor_override = 7); }
static tt_tensor *adaptive_one(tt_tensor *x) { return tt_adaptive_avg_pool2d(x, 1, 1); }
static tt_tensor *adaptive_odd(tt_tensor *x) { return tt_adaptive_avg_pool2d(x, 3, 4); }
static tt_tensor *adaptive_larger(tt_tensor *x) { return tt_adaptive_avg_pool2d(x, 11, 13); }

static const image_op poolings[] = {
    {"max of 2", max_2},
    {"overlapping max", max_overlapping},
    {"dilated max", max_dilated},
    {"max, ceil", max_ceil},
    {"avg of 2", avg_2},
    {"padded avg", avg_padded},
    {"avg inside", avg_inside},
    {"avg, ceil", avg_ceil},
    {"avg, divisor", avg_divisor},
    {"adaptive one", adaptive_one},
    {"adaptive odd", adaptive_odd},
    {"adaptive larger", adaptive_larger},
};

static void run_image_op(tt_tensor *(*run)(tt_tensor *x), tt_tensor *x, tt_tensor **y, tt_tensor **dx) {
    tt_requires_grad_(x, true);
    *y = run(x);
    tt_tensor *g = *y ? tt_to_device(slopes(*y), tt_tensor_device(*y)) : NULL;
    *dx = *y && !tt_backward(tt_sum(tt_mul(*y, g))) ? tt_grad(x) : NULL;
}

static void compare_image_op(const image_op *op) {
    for (int f = 0; f < FLOATS; f++)
        for (int lies = 0; lies < 3; lies++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = mixed(S(2, 3, 8, 7), 7, floats[f]), *far = far_leaf(x), *y, *dx, *far_y, *far_dx;
            if (lies)
                far = lies == 1 ? tt_detach(tt_to_memory_format(far, TT_CHANNELS_LAST)) : out_of_order(far);
            run_image_op(op->run, x, &y, &dx);
            run_image_op(op->run, far, &far_y, &far_dx);
            expect_close(op->name, floats[f], far_y, y);
            expect_close(op->name, floats[f], far_dx, dx);
        }
}

static void poolings_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof poolings / sizeof *poolings; i++)
        compare_image_op(&poolings[i]);
}

/* Equal ones: the first gets the gradient. NaN is the largest. */
static void ties_and_nan_are_the_cpus(void **state) {
    (void)state;
    for (int lies = 0; lies < 2; lies++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_zeros(S(1, 2, 6, 6), TT_F32), *y, *dx, *far_y, *far_dx;
        tt_tensor_f32(x)[9] = NAN;
        tt_tensor_f32(x)[15] = NAN;
        tt_tensor_f32(x)[20] = -INFINITY;
        tt_tensor_f32(x)[50] = INFINITY;
        tt_tensor *far = far_leaf(x);
        far = lies ? tt_detach(tt_to_memory_format(far, TT_CHANNELS_LAST)) : far;
        run_image_op(max_overlapping, x, &y, &dx);
        run_image_op(max_overlapping, far, &far_y, &far_dx);
        expect_close("max_pool2d", TT_F32, far_y, y);
        expect_close("max_pool2d", TT_F32, far_dx, dx);
        expect_close("avg_pool2d", TT_F32, avg_padded(far), avg_padded(x));
        expect_close("adaptive_avg_pool2d", TT_F32, adaptive_odd(far), adaptive_odd(x));
    }
}

/* ---- other sizes ---- */

static tt_tensor *nearest_larger(tt_tensor *x) { return tt_interpolate(x, S(17, 9)); }
static tt_tensor *nearest_smaller(tt_tensor *x) { return tt_interpolate(x, S(3, 5)); }
static tt_tensor *bilinear_larger(tt_tensor *x) { return tt_interpolate(x, S(19, 16), .mode = TT_BILINEAR); }
static tt_tensor *bilinear_smaller(tt_tensor *x) { return tt_interpolate(x, S(3, 2), .mode = TT_BILINEAR); }
static tt_tensor *bilinear_one_axis(tt_tensor *x) { return tt_interpolate(x, S(8, 12), .mode = TT_BILINEAR); }
static tt_tensor *bilinear_corners(tt_tensor *x) {
    return tt_interpolate(x, S(15, 4), .mode = TT_BILINEAR, .align_corners = true);
}
static tt_tensor *bilinear_one(tt_tensor *x) {
    return tt_interpolate(x, S(1, 1), .mode = TT_BILINEAR, .align_corners = true);
}

static const image_op sizes[] = {
    {"nearest, larger", nearest_larger},       {"nearest, smaller", nearest_smaller},
    {"bilinear, larger", bilinear_larger},     {"bilinear, smaller", bilinear_smaller},
    {"bilinear, one axis", bilinear_one_axis}, {"bilinear, corners", bilinear_corners},
    {"bilinear, one", bilinear_one},
};

static void other_sizes_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        compare_image_op(&sizes[i]);
}

/* ---- a network ---- */

enum { STEPS = 12, BATCH = 16 };

/* The layers of tt_model_mnist_convnet(), with fewer channels and without dropout. */
static tt_module *new_convnet(const tt_device *device) {
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential(tt_nn_conv2d(1, 4, 3), tt_nn_relu(), tt_nn_conv2d(4, 6, 3), tt_nn_relu(),
                                        tt_nn_max_pool2d(2), tt_nn_flatten(), tt_nn_linear(6 * 12 * 12, 10));
    assert_int_equal(tt_module_to_device(model, device), TT_OK);
    return model;
}

static void train_convnet(const tt_device *device, double loss[STEPS]) {
    tt_module *model = new_convnet(device);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.05, .momentum = 0.9);
    train_digits(model, sgd, STEPS, BATCH, loss);
}

static void a_convnet_trains_to_the_cpus_losses(void **state) {
    (void)state;
    double near[STEPS], far[STEPS], again[STEPS];
    train_convnet(TT_CPU, near);
    train_convnet(TT_CUDA(0), far);
    train_convnet(other_device(), again);
    expect_losses(STEPS, near, far, again);
    assert_true(far[STEPS - 1] < far[0]);
}

/* All comparisons of convolutions again in a child, by our own kernels. */
static bool our_own_convolve(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_the_cpus), cmocka_unit_test(long_sums_of_weights_are_the_cpus),
        cmocka_unit_test(empty_batches_are_convolved), cmocka_unit_test(nan_goes_where_windows_see_it),
        cmocka_unit_test(kinds_of_convolutions_are_the_cpus)};
    return cmocka_run_group_tests_name("own kernels", tests, NULL, NULL) == 0;
}

static void our_own_kernels_do_the_same(void **state) {
    (void)state;
    expect_child_with("TT_CUDA_DNN", "own", our_own_convolve);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_kernels_do_the_same), /* before this process has used CUDA */
        cmocka_unit_test(convolutions_are_the_cpus),           cmocka_unit_test(long_sums_of_weights_are_the_cpus),
        cmocka_unit_test(empty_batches_are_convolved),         cmocka_unit_test(nan_goes_where_windows_see_it),
        cmocka_unit_test(kinds_of_convolutions_are_the_cpus),  cmocka_unit_test(poolings_are_the_cpus),
        cmocka_unit_test(ties_and_nan_are_the_cpus),           cmocka_unit_test(other_sizes_are_the_cpus),
        cmocka_unit_test(a_convnet_trains_to_the_cpus_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
