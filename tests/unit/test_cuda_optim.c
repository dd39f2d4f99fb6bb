/* Optimizers of parameters on the CUDA device, beside the cpu's: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "expect.h"

typedef tt_optimizer *(*optimizer_maker)(const tt_named_tensors *params);

static tt_optimizer *sgd(const tt_named_tensors *p) { return tt_sgd(p, 0.1, .weight_decay = 0.03); }
static tt_optimizer *sgd_damped(const tt_named_tensors *p) {
    return tt_sgd(p, 0.1, .momentum = 0.9, .dampening = 0.5, .maximize = true);
}
static tt_optimizer *sgd_nesterov(const tt_named_tensors *p) {
    return tt_sgd(p, 0.1, .momentum = 0.9, .weight_decay = 0.03, .nesterov = true);
}
static tt_optimizer *adam(const tt_named_tensors *p) { return tt_adam(p, 0.01); }
static tt_optimizer *adam_decayed(const tt_named_tensors *p) {
    return tt_adam(p, 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.03, .maximize = true);
}
static tt_optimizer *adam_amsgrad(const tt_named_tensors *p) { return tt_adam(p, 0.01, .amsgrad = true); }
static tt_optimizer *adamw(const tt_named_tensors *p) { return tt_adamw(p, 0.01, 0.1); }
static tt_optimizer *adamw_amsgrad(const tt_named_tensors *p) {
    return tt_adamw(p, 0.01, 0.1, .eps = 1e-4, .amsgrad = true);
}
static tt_optimizer *rmsprop(const tt_named_tensors *p) { return tt_rmsprop(p, 0.01); }
static tt_optimizer *rmsprop_momentum(const tt_named_tensors *p) {
    return tt_rmsprop(p, 0.01, .momentum = 0.9, .weight_decay = 0.03);
}
static tt_optimizer *rmsprop_centered(const tt_named_tensors *p) {
    return tt_rmsprop(p, 0.01, .eps = 1e-2, .centered = true);
}
static tt_optimizer *adagrad(const tt_named_tensors *p) { return tt_adagrad(p, 0.05, .lr_decay = 0.1); }
static tt_optimizer *adagrad_begun(const tt_named_tensors *p) {
    return tt_adagrad(p, 0.05, .weight_decay = 0.03, .initial_accumulator_value = 0.5);
}
static tt_optimizer *adadelta(const tt_named_tensors *p) { return tt_adadelta(p, 1); }
static tt_optimizer *adadelta_decayed(const tt_named_tensors *p) {
    return tt_adadelta(p, 0.5, .rho = 0.8, .weight_decay = 0.03, .maximize = true);
}

static const struct {
    const char *name;
    optimizer_maker make;
} optimizers[] = {
    {"sgd", sgd},
    {"sgd, damped", sgd_damped},
    {"sgd, nesterov", sgd_nesterov},
    {"adam", adam},
    {"adam, decayed", adam_decayed},
    {"adam, amsgrad", adam_amsgrad},
    {"adamw", adamw},
    {"adamw, amsgrad", adamw_amsgrad},
    {"rmsprop", rmsprop},
    {"rmsprop, momentum", rmsprop_momentum},
    {"rmsprop, centered", rmsprop_centered},
    {"adagrad", adagrad},
    {"adagrad, begun", adagrad_begun},
    {"adadelta", adadelta},
    {"adadelta, decayed", adadelta_decayed},
};

/* Parameters of some sizes, one of them a transposed one. */
enum { PARAMETERS = 5, STEPS = 20 };
static const char *const names[] = {"a", "b", "c", "d", "e"};

static void make_parameters(const tt_device *device, tt_dtype dtype, tt_tensor **x) {
    static const int64_t sizes[PARAMETERS][2] = {{13, 17}, {1, 1}, {0, 3}, {1, 300}, {7, 5}};
    for (int k = 0; k < PARAMETERS; k++) {
        x[k] = tt_to_device(numbers(sizes[k][0], sizes[k][1], dtype), device);
        x[k] = tt_requires_grad_(tt_detach(k == 4 ? tt_transpose(x[k], 0, 1) : x[k]), true);
    }
}

/* Steps whose gradients change; x[1] has none in the first one, and the sums of squares change their signs' order. */
static void take_steps(tt_optimizer *o, tt_tensor *const *x) {
    for (int step = 1; step <= STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(o);
        for (int k = 0; k < PARAMETERS; k++) {
            const double slope = (step % 3 - 0.7) * (k + 1);
            if (k == 1 && step == 1)
                continue;
            if (tt_backward(tt_sum(tt_scale(tt_add(tt_mul(x[k], x[k]), x[k]), slope))))
                fail_msg("step %d: %s", step, tt_last_error());
        }
        if (tt_optimizer_step(o))
            fail_msg("step %d: %s", step, tt_last_error());
    }
}

/* The parameters after all steps; then the optimizer's state. */
static int train(optimizer_maker make, const tt_device *device, tt_dtype dtype, tt_tensor **results) {
    tt_tensor *x[PARAMETERS];
    int n = 0;
    make_parameters(device, dtype, x);
    tt_optimizer *o = make(TT_NAMED_TENSORS(PARAMETERS, names, x));
    assert_non_null(o);
    take_steps(o, x);
    for (; n < PARAMETERS; n++)
        results[n] = tt_detach(x[n]);
    const tt_named_tensors *state = tt_optimizer_state_dict(o);
    assert_non_null(state);
    for (int64_t i = 0; i < state->count; i++)
        results[n++] = here(state->tensors[i]);
    assert_true(n <= 64);
    for (int i = PARAMETERS; i < n; i++)
        results[i] = tt_clone(results[i]);
    tt_optimizer_free(o);
    return n;
}

static void optimizers_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *near[64], *far[64];
            int n = train(optimizers[i].make, TT_CPU, floats[f], near);
            assert_int_equal(train(optimizers[i].make, TT_CUDA(0), floats[f], far), n);
            for (int k = 0; k < n; k++)
                expect_close(optimizers[i].name, floats[f], far[k], near[k]);
            assert_true(difference(near[0], numbers(13, 17, floats[f])) > 0.01);
        }
}

static void what_has_no_rule_is_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[PARAMETERS];
    make_parameters(TT_CUDA(0), TT_F32, x);
    tt_optimizer *lamb = tt_lamb(TT_NAMED_TENSORS(PARAMETERS, names, x), 0.01, 0.1);
    assert_non_null(lamb);
    assert_int_equal(tt_backward(tt_sum(x[0])), TT_OK);
    assert_int_equal(tt_optimizer_step(lamb), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "tt_optimizer_step: tt_lamb has no rule for the device \"cuda:0\"");
    tt_optimizer_free(lamb);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_are_the_cpus),
        cmocka_unit_test(what_has_no_rule_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
