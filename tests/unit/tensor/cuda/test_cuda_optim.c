/* Optimizers of parameters on the CUDA device, beside the cpu's: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "unit/expect.h"

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

static tt_optimizer *lamb(const tt_named_tensors *p) { return tt_lamb(p, 0.05, 0.1); }
static tt_optimizer *lamb_plain(const tt_named_tensors *p) { return tt_lamb(p, 0.05, 0, .max_grad_norm = 1e9); }
static tt_optimizer *lamb_other(const tt_named_tensors *p) {
    return tt_lamb(p, 0.05, 0.03, .no_bias_correction = true, .no_grad_averaging = true, .no_adam_w_mode = true,
                   .use_nvlamb = true, .maximize = true);
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
    {"lamb", lamb},
    {"lamb, without decay", lamb_plain},
    {"lamb, otherwise", lamb_other},
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

/* ---- sparse gradients ---- */

static tt_optimizer *sparse_sgd(const tt_named_tensors *p) { return tt_sgd(p, 0.5); }
static tt_optimizer *sparse_adagrad(const tt_named_tensors *p) {
    return tt_adagrad(p, 0.1, .initial_accumulator_value = 0.5);
}
static tt_optimizer *sparse_adam(const tt_named_tensors *p) { return tt_sparse_adam(p, 0.1); }

static const struct {
    const char *name;
    optimizer_maker make;
} sparse_optimizers[] = {{"sgd", sparse_sgd}, {"adagrad", sparse_adagrad}, {"sparse adam", sparse_adam}};

enum { WORDS = 40, WIDTH = 37, TOKENS = 60 };

/* The table after some steps; in each, other words come, twice in one pass, and one of them is padding. */
static tt_tensor *train_sparse(optimizer_maker make, const tt_device *device, tt_dtype dtype) {
    tt_tensor *table = tt_requires_grad_(tt_detach(tt_to_device(numbers(WORDS, WIDTH, dtype), device)), true);
    tt_optimizer *o = make(TT_NAMED_TENSORS(1, names, &table));
    assert_non_null(o);
    for (int step = 0; step < 4; step++) {
        TT_AUTO_SCOPE;
        int64_t words[TOKENS];
        for (int64_t i = 0; i < TOKENS; i++)
            words[i] = (i * i + step * 3) % (WORDS - 5);
        tt_tensor *index = tt_to_device(tt_from_data(words, S(TOKENS), TT_I64), device), *l = NULL;
        tt_optimizer_zero_grad(o);
        for (int pass = 0; pass < 2; pass++) {
            tt_tensor *y = tt_embedding(table, pass ? tt_narrow(index, 0, 0, 7) : index, .sparse = true,
                                        .padding_idx = &(int64_t){3});
            l = tt_sum(tt_mul(y, y));
            if (tt_backward(l))
                fail_msg("step %d: %s", step, tt_last_error());
        }
        if (!tt_sparse_grad_values(table) || tt_optimizer_step(o))
            fail_msg("step %d: %s", step, tt_last_error());
    }
    tt_optimizer_free(o);
    return tt_detach(table);
}

static void rows_are_stepped_as_the_cpus(void **state) {
    (void)state;
    static const tt_dtype types[] = {TT_F32, TT_F64};
    for (size_t i = 0; i < sizeof sparse_optimizers / sizeof *sparse_optimizers; i++)
        for (int t = 0; t < 2; t++) {
            TT_AUTO_SCOPE;
            tt_tensor *near = train_sparse(sparse_optimizers[i].make, TT_CPU, types[t]);
            tt_tensor *far = train_sparse(sparse_optimizers[i].make, TT_CUDA(0), types[t]);
            expect_close(sparse_optimizers[i].name, types[t], far, near);
            assert_true(difference(near, numbers(WORDS, WIDTH, types[t])) > 0.01);
            assert_true(tt_equal(here(tt_narrow(far, 0, 3, 1)), tt_narrow(numbers(WORDS, WIDTH, types[t]), 0, 3, 1)));
        }
}

/* ---- averages ---- */

static tt_tensor *averaged(const tt_device *device, bool turned) {
    tt_tensor *x = tt_to_device(numbers(5, 9, TT_F32), device);
    x = turned ? tt_transpose(x, 0, 1) : x;
    tt_ema *ema = tt_ema_new(TT_NAMED_TENSORS(1, names, &x), 0.9);
    if (!ema)
        fail_msg("%s", tt_last_error());
    for (int step = 0; step < 3; step++)
        if (tt_ema_update(ema) || tt_copy(x, tt_add_scalar(tt_scale(x, 1.3), 0.7)))
            fail_msg("%s", tt_last_error());
    assert_false(tt_ema_store(ema) || tt_ema_copy_to(ema));
    tt_tensor *average = tt_clone(x);
    assert_false(tt_ema_restore(ema));
    assert_true(difference(average, x) > 0.1);
    tt_ema_free(ema);
    return average;
}

static void averages_are_the_cpus(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int turned = 0; turned < 2; turned++)
        expect_close("an average", TT_F32, averaged(TT_CUDA(0), turned), averaged(TT_CPU, turned));
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_are_the_cpus),
        cmocka_unit_test(rows_are_stepped_as_the_cpus),
        cmocka_unit_test(averages_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
