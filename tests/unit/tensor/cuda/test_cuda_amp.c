/* Clipping and mixed precision on the CUDA device, beside the cpu: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "unit/expect.h"

/* ---- clipping ---- */

enum { GRADS = 4 };
static const char *const names[] = {"a", "b", "c", "d"};

/* Parameters with gradients, one of them turned, one empty, one larger than several blocks take at a time. */
static void make_grads(const tt_device *device, tt_dtype last, tt_tensor **x) {
    static const int64_t sizes[GRADS][2] = {{13, 17}, {0, 3}, {300, 70}, {7, 5}};
    for (int k = 0; k < GRADS; k++) {
        tt_tensor *v = tt_to_device(numbers(sizes[k][0], sizes[k][1], k == 3 ? last : TT_F32), device);
        v = tt_scale(v, k == 2 ? 1e-3 : 1);
        x[k] = tt_requires_grad_(tt_detach(k == 3 ? tt_transpose(v, 0, 1) : v), true);
        assert_false(tt_backward(tt_sum(tt_mul(x[k], x[k]))));
    }
}

static void norms_are_the_cpus(void **state) {
    (void)state;
    static const double types[] = {2, 1, 3.5, INFINITY};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            TT_AUTO_SCOPE;
            tt_tensor *near[GRADS], *far[GRADS];
            double norm = 0, far_norm = 0;
            make_grads(TT_CPU, f64 ? TT_F64 : TT_F32, near);
            make_grads(TT_CUDA(0), f64 ? TT_F64 : TT_F32, far);
            assert_false(tt_clip_grad_norm_(TT_NAMED_TENSORS(GRADS, names, near), 0.5, .norm_type = types[i],
                                            .total_norm = &norm));
            const unsigned long waits = cuda_is_real ? 0 : fake_count("fake_cuda_waits");
            if (tt_clip_grad_norm_(TT_NAMED_TENSORS(GRADS, names, far), 0.5, .norm_type = types[i],
                                   .total_norm = &far_norm))
                fail_msg("clipping: %s", tt_last_error());
            assert_true(cuda_is_real || fake_count("fake_cuda_waits") == waits + 1);
            if (!(fabs(norm - far_norm) <= 1e-6 * norm) || norm < 1)
                fail_msg("a norm of kind %g is %.9g on the cpu, %.9g on the device", types[i], norm, far_norm);
            for (int k = 0; k < GRADS; k++)
                expect_close("a clipped gradient", TT_F32, tt_grad(far[k]), tt_grad(near[k]));
        }
}

static void norms_that_are_not_finite_are_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const double types[] = {2, INFINITY};
    for (int i = 0; i < 2; i++) {
        tt_tensor *x[GRADS];
        make_grads(TT_CUDA(0), TT_F32, x);
        assert_false(tt_backward(tt_sum(tt_scale(tt_narrow(x[0], 0, 3, 1), NAN))));
        assert_true(tt_clip_grad_norm_(TT_NAMED_TENSORS(GRADS, names, x), 0.5, .norm_type = types[i],
                                       .error_if_nonfinite = true));
        expect_error(TT_ERR_INVALID, "tt_clip_grad_norm_: the norm of the gradients is ");
    }
}

static void values_are_clipped_as_the_cpus(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *near[GRADS], *far[GRADS];
    make_grads(TT_CPU, TT_F64, near);
    make_grads(TT_CUDA(0), TT_F64, far);
    assert_false(tt_clip_grad_value_(TT_NAMED_TENSORS(GRADS, names, near), 0.75));
    assert_false(tt_clip_grad_value_(TT_NAMED_TENSORS(GRADS, names, far), 0.75));
    for (int k = 0; k < GRADS; k++)
        assert_true(tt_equal(here(tt_grad(far[k])), tt_grad(near[k])));
}

/* ---- the scaler ---- */

static void infinite_gradients_are_found(void **state) {
    (void)state;
    static const double factors[] = {1, INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x[GRADS], *near[GRADS];
        make_grads(TT_CUDA(0), TT_F32, x);
        make_grads(TT_CPU, TT_F32, near);
        assert_false(tt_backward(tt_sum(tt_scale(tt_narrow(x[2], 0, 299, 1), factors[i]))));
        assert_false(tt_backward(tt_sum(tt_scale(tt_narrow(near[2], 0, 299, 1), factors[i]))));
        tt_optimizer *sgd = tt_sgd(TT_NAMED_TENSORS(GRADS, names, x), 0.1);
        tt_optimizer *near_sgd = tt_sgd(TT_NAMED_TENSORS(GRADS, names, near), 0.1);
        tt_grad_scaler *scaler = tt_grad_scaler_new(8), *near_scaler = tt_grad_scaler_new(8);
        if (tt_grad_scaler_unscale_(scaler, sgd) || tt_grad_scaler_unscale_(near_scaler, near_sgd))
            fail_msg("unscale: %s", tt_last_error());
        assert_int_equal(tt_grad_scaler_found_inf(scaler, sgd), i > 0);
        for (int k = 0; k < GRADS; k++)
            assert_true(difference(tt_grad(x[k]), tt_grad(near[k])) == 0);
        assert_false(tt_grad_scaler_step(scaler, sgd) || tt_grad_scaler_update(scaler));
        assert_true(tt_grad_scaler_get_scale(scaler) == (i ? 4 : 8));
        tt_grad_scaler_free(scaler);
        tt_grad_scaler_free(near_scaler);
        tt_optimizer_free(sgd);
        tt_optimizer_free(near_sgd);
    }
}

/* ---- training ---- */

enum { STEPS = 20, BATCH = 16 };

static tt_module *mlp(void) {
    return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 32), tt_nn_relu(), tt_nn_linear(32, 10));
}

static tt_module *conv_net(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 5, .stride = 2), tt_nn_batch_norm2d(4), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_flatten(), tt_nn_linear(144, 10));
}

/* A sanitizer, to which they take a minute, sees nothing new in later ones. */
static int steps(void) { return getenv("TT_SANITIZED") ? 3 : STEPS; }

typedef struct precision {
    const char *name;
    tt_opt_level level;
    tt_dtype dtype;
    double near; /* how near losses are to the cpu's: products are added up in another order, and rounded to 16 bits */
} precision;

static const precision precisions[] = {{"bf16, autocast", TT_O1, TT_BF16, 0.05},
                                       {"f16, autocast and a scaler", TT_O1, TT_F16, 0.01},
                                       {"bf16 with masters", TT_O2, TT_BF16, 0.05},
                                       {"f16 with masters", TT_O2, TT_F16, 0.01}};

static void train_mixed(tt_module *model, const precision *p, const tt_device *device, double *loss) {
    assert_false(tt_module_to_device(model, device));
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 0.005);
    tt_grad_scaler *scaler = NULL;
    if (tt_amp_initialize(model, adam, .opt_level = p->level, .dtype = p->dtype, .scaler = &scaler))
        fail_msg("%s: %s", p->name, tt_last_error());
    tt_dataset *digits = tt_digits((int64_t)steps() * BATCH, 3);
    assert_false(tt_dataset_normalize(digits, 0.1307, 0.3081));
    tt_loader *loader = tt_loader_new(digits, BATCH, tt_in_order());
    tt_batch b;
    for (int step = 0; tt_loader_next(loader, &b) > 0; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *y = tt_module_forward(model, tt_to_device(b.x, device));
        tt_tensor *l = tt_cross_entropy(y, tt_to_device(b.y, device));
        tt_optimizer_zero_grad(adam);
        if (tt_backward(tt_grad_scaler_scale(scaler, l)) || tt_grad_scaler_unscale_(scaler, adam) ||
            tt_clip_grad_norm_(tt_optimizer_master_params(adam), 1.0) || tt_grad_scaler_step(scaler, adam) ||
            tt_grad_scaler_update(scaler) || tt_item(l, &loss[step]))
            fail_msg("%s, step %d on %s: %s", p->name, step, tt_device_name(device), tt_last_error());
    }
    tt_loader_free(loader);
    tt_dataset_free(digits);
    tt_grad_scaler_free(scaler);
    tt_optimizer_free(adam);
    tt_module_free(model);
}

static void expect_mixed_like_the_cpus(tt_module *(*make)(void)) {
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        double loss[3][STEPS];
        const tt_device *const devices[] = {TT_CPU, TT_CUDA(0), other_device()};
        for (int d = 0; d < 3; d++) {
            tt_manual_seed(1);
            train_mixed(make(), &precisions[i], devices[d], loss[d]);
        }
        for (int step = 0; step < steps(); step++)
            if (!(fabs(loss[0][step] - loss[1][step]) <= precisions[i].near) || loss[1][step] != loss[2][step])
                fail_msg("%s, step %d: loss %.9g on the cpu, %.9g and %.9g on two devices", precisions[i].name, step,
                         loss[0][step], loss[1][step], loss[2][step]);
        assert_true(steps() < STEPS || loss[1][STEPS - 1] < 0.8 * loss[1][0]);
    }
}

static void an_mlp_trains_in_mixed_precision(void **state) {
    (void)state;
    expect_mixed_like_the_cpus(mlp);
}

static void a_conv_net_trains_in_mixed_precision(void **state) {
    (void)state;
    expect_mixed_like_the_cpus(conv_net);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_the_cpus),
        cmocka_unit_test(norms_that_are_not_finite_are_told),
        cmocka_unit_test(values_are_clipped_as_the_cpus),
        cmocka_unit_test(infinite_gradients_are_found),
        cmocka_unit_test(an_mlp_trains_in_mixed_precision),
        cmocka_unit_test(a_conv_net_trains_in_mixed_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
