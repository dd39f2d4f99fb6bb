/* Normalisation on a CUDA device, or on its fake, beside the cpu: see test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_compare.h"

/* An operator on x, with weight and bias (or NULL) on the device of x. */
typedef tt_tensor *(*normalise)(tt_tensor *x, tt_tensor *weight, tt_tensor *bias);

static tt_tensor *layer_norm(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return tt_layer_norm(x, S(tt_tensor_size(x, -1)), .weight = weight, .bias = bias);
}
static tt_tensor *rms_norm(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    (void)bias;
    return tt_rms_norm(x, S(tt_tensor_size(x, -1)), .weight = weight, .eps = 1e-3);
}
static tt_tensor *group_norm(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return tt_group_norm(x, 2, .weight = weight, .bias = bias);
}
static tt_tensor *batch_norm(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return tt_batch_norm(x, .training = true, .weight = weight, .bias = bias);
}
/* Running statistics of the channels: means and variances around 1. */
static tt_tensor *running(tt_tensor *x, double first) {
    int64_t channels = tt_tensor_size(x, 1);
    tt_tensor *near = tt_add_scalar(tt_scale(tt_to(tt_arange(channels), TT_F64), 0.25), first);
    return tt_to_device(tt_to(near, tt_tensor_dtype(x)), tt_tensor_device(x));
}
static tt_tensor *batch_norm_fixed(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return tt_batch_norm(x, .running_mean = running(x, -1), .running_var = running(x, 0.5), .weight = weight,
                         .bias = bias);
}
static tt_tensor *layer_norm_without_weights(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    (void)weight, (void)bias;
    return layer_norm(x, NULL, NULL);
}
static tt_tensor *batch_norm_without_weights(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    (void)weight, (void)bias;
    return batch_norm(x, NULL, NULL);
}
static tt_tensor *batch_norm_of_last(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return batch_norm(tt_to_memory_format(x, TT_CHANNELS_LAST), weight, bias);
}
static tt_tensor *layer_norm_of_turned(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    return layer_norm(tt_transpose(tt_contiguous(tt_transpose(x, 0, -1)), 0, -1), weight, bias);
}

static const struct {
    const char *name;
    normalise run;
    int64_t shape[4]; /* up to a 0 */
    int64_t weights;
} cases[] = {
    {"layer_norm", layer_norm, {5, 7}, 7},
    {"layer_norm of long rows", layer_norm, {2, 300}, 300},
    {"layer_norm of many rows", layer_norm, {700, 5}, 5},
    {"layer_norm of one", layer_norm, {1, 1}, 1},
    {"layer_norm, turned", layer_norm_of_turned, {3, 4, 9}, 9},
    {"layer_norm without weights", layer_norm_without_weights, {3, 10}, 10},
    {"rms_norm", rms_norm, {4, 50}, 50},
    {"group_norm", group_norm, {3, 6, 5}, 6},
    {"group_norm of images", group_norm, {2, 4, 9, 8}, 4},
    {"batch_norm of rows", batch_norm, {50, 3}, 3},
    {"batch_norm of many rows", batch_norm, {600, 2}, 2},
    {"batch_norm", batch_norm, {4, 3, 5}, 3},
    {"batch_norm of images", batch_norm, {3, 2, 8, 7}, 2},
    {"batch_norm of large images", batch_norm, {2, 1, 130, 130}, 1},
    {"batch_norm, channels last", batch_norm_of_last, {3, 5, 4, 3}, 5},
    {"batch_norm without weights", batch_norm_without_weights, {9, 4}, 4},
    {"batch_norm, fixed", batch_norm_fixed, {4, 3, 5}, 3},
};

/* Numbers without order: steps of 1/16 around `middle`, in any shape; another order for another `mix`. */
static tt_tensor *values_of(const int64_t *shape, int mix, double middle, tt_dtype dtype) {
    tt_shape s = {.ndim = 0};
    int64_t n = 1;
    for (int d = 0; d < 4 && shape[d]; d++) {
        s.dim[s.ndim++] = shape[d];
        n *= shape[d];
    }
    double *v = malloc((size_t)n * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = middle + (double)(i * mix % 61 - 30) / 16;
    tt_tensor *x = tt_to(tt_from_data(v, s, TT_F64), dtype);
    free(v);
    return x;
}

enum { RESULTS = 4 };

/* y and the gradients of x, weight and bias (NULL: the operator has none). */
static void run_norm(size_t i, tt_dtype dtype, const tt_device *device, tt_tensor *out[RESULTS]) {
    const int64_t weights[4] = {cases[i].weights};
    tt_tensor *x = tt_detach(tt_to_device(values_of(cases[i].shape, 37, 0.5, dtype), device));
    tt_tensor *weight = tt_detach(tt_to_device(values_of(weights, 37, 1, dtype), device));
    tt_tensor *bias = tt_detach(tt_to_device(values_of(weights, 37, 0, dtype), device));
    tt_tensor *g = tt_to_device(values_of(cases[i].shape, 23, 0.25, dtype), device);
    tt_requires_grad_(x, true);
    tt_requires_grad_(weight, true);
    tt_requires_grad_(bias, true);
    out[0] = cases[i].run(x, weight, bias);
    if (!out[0] || tt_backward(tt_sum(tt_mul(out[0], g))))
        fail_msg("%s of %s on %s: %s", cases[i].name, tt_dtype_name(dtype), tt_device_name(device), tt_last_error());
    out[1] = tt_grad(x);
    out[2] = tt_grad(weight);
    out[3] = tt_grad(bias);
}

/* Gradients are sums of numbers that nearly cancel: they are compared relative to the largest of them. */
static void expect_near(size_t i, int which, tt_dtype dtype, tt_tensor *got, tt_tensor *expected) {
    static const char *const names[RESULTS] = {"y", "dx", "dweight", "dbias"};
    double most;
    if (!got != !expected)
        fail_msg("%s of %s: %s is missing on one side", cases[i].name, tt_dtype_name(dtype), names[which]);
    if (!expected || tt_item(tt_amax(tt_to(tt_abs(expected), TT_F64)), &most))
        return;
    double d = difference(got, expected) * fmax(1, 1 / fmax(most, 1e-3));
    if (!(d <= 4 * tolerance(dtype)))
        fail_msg("%s of %s: %s is %g away from the cpu's", cases[i].name, tt_dtype_name(dtype), names[which], d);
}

static void norms_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *near[RESULTS], *far[RESULTS], *again[RESULTS];
            run_norm(i, floats[f], TT_CPU, near);
            run_norm(i, floats[f], TT_CUDA(0), far);
            run_norm(i, floats[f], TT_CUDA(0), again);
            for (int k = 0; k < RESULTS; k++) {
                expect_near(i, k, floats[f], far[k], near[k]);
                assert_true(!far[k] || tt_equal(far[k], again[k])); /* the same bits each time */
            }
        }
}

/* Running statistics move as the cpu's do. */
static void running_statistics_move(void **state) {
    (void)state;
    for (int f = 0; f < FLOATS; f++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = values_of((const int64_t[4]){6, 3, 5}, 37, 2, floats[f]), *far = there(x);
        tt_tensor *mean = running(x, 0), *var = running(x, 1), *far_mean = there(mean), *far_var = there(var);
        assert_non_null(tt_batch_norm(x, .running_mean = mean, .running_var = var, .training = true, .momentum = 0.3));
        assert_non_null(
            tt_batch_norm(far, .running_mean = far_mean, .running_var = far_var, .training = true, .momentum = 0.3));
        expect_close("running mean", floats[f], far_mean, mean);
        expect_close("running variance", floats[f], far_var, var);
    }
}

/* Rows, or channels, with a NaN or an infinity are NaN as on the cpu, and others are not touched. */
static void not_numbers_stay_in_their_rows(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = values_of((const int64_t[4]){4, 4}, 37, 0, TT_F32);
    tt_tensor_f32(x)[5] = NAN;
    tt_tensor_f32(x)[10] = INFINITY;
    expect_close("layer_norm with NaN", TT_F32, layer_norm(there(x), NULL, NULL), layer_norm(x, NULL, NULL));
    expect_close("batch_norm with NaN", TT_F32, batch_norm(there(x), NULL, NULL), batch_norm(x, NULL, NULL));
    tt_tensor *far = tt_detach(there(x)); /* fixed statistics: an infinite x has no part in dx */
    tt_requires_grad_(x, true);
    tt_requires_grad_(far, true);
    assert_int_equal(tt_backward(tt_sum(batch_norm_fixed(x, NULL, NULL))), TT_OK);
    assert_int_equal(tt_backward(tt_sum(batch_norm_fixed(far, NULL, NULL))), TT_OK);
    expect_close("dx with fixed statistics", TT_F32, tt_grad(far), tt_grad(x));
}

static void an_empty_batch_is_empty(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = there(tt_zeros(S(0, 3), TT_F32)), *weight = tt_detach(there(tt_ones(S(3), TT_F32)));
    tt_requires_grad_(weight, true);
    tt_tensor *y = tt_layer_norm(x, S(3), .weight = weight);
    assert_int_equal(tt_tensor_numel(y), 0);
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(tt_equal(tt_grad(weight), tt_zeros(S(3), TT_F32)));
    assert_int_equal(tt_tensor_numel(tt_batch_norm(x, .training = true)), 0);
}

enum { STEPS = 20 };

/* A network with batch norm and layer norm, in training and then by its running statistics. */
static void train_normed(const tt_device *device, double loss[STEPS + 1]) {
    TT_AUTO_SCOPE;
    tt_manual_seed(4);
    tt_module *model = tt_nn_sequential(tt_nn_linear(6, 16), tt_nn_batch_norm1d(16), tt_nn_relu(), tt_nn_linear(16, 8),
                                        tt_nn_layer_norm(S(8)), tt_nn_linear(8, 3));
    tt_tensor *x = tt_randn(S(40, 6), NULL), *y = tt_argmax(tt_narrow(x, 1, 0, 3), 1);
    assert_int_equal(tt_module_to_device(model, device), TT_OK);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
    x = tt_to_device(x, device);
    y = tt_to_device(y, device);
    for (int step = 0; step <= STEPS; step++) {
        TT_AUTO_SCOPE;
        if (step == STEPS)
            tt_module_eval(model);
        tt_tensor *l = tt_cross_entropy(tt_module_forward(model, x), y);
        tt_optimizer_zero_grad(sgd);
        if (tt_backward(l) || tt_item(l, &loss[step]) || tt_optimizer_step(sgd))
            fail_msg("step %d on %s: %s", step, tt_device_name(device), tt_last_error());
    }
    tt_optimizer_free(sgd);
    tt_module_free(model);
}

static void a_network_with_norms_trains(void **state) {
    (void)state;
    double near[STEPS + 1], far[STEPS + 1];
    train_normed(TT_CPU, near);
    train_normed(TT_CUDA(0), far);
    for (int step = 0; step <= STEPS; step++)
        if (!(fabs(near[step] - far[step]) <= 1e-4))
            fail_msg("step %d: loss %.9g on the cpu, %.9g on the device", step, near[step], far[step]);
    assert_true(far[STEPS - 1] < 0.5 * far[0]);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_the_cpus),
        cmocka_unit_test(running_statistics_move),
        cmocka_unit_test(not_numbers_stay_in_their_rows),
        cmocka_unit_test(an_empty_batch_is_empty),
        cmocka_unit_test(a_network_with_norms_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
