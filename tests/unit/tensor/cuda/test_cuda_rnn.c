/* Recurrent layers on the CUDA device, beside the cpu: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda_compare.h"

static tt_module *rnn_tanh(void) { return tt_nn_rnn(4, 7); }
static tt_module *rnn_relu(void) { return tt_nn_rnn(4, 7, .relu = true, .no_bias = true); }
static tt_module *lstm(void) { return tt_nn_lstm(4, 17, .num_layers = 2, .batch_first = true); }
static tt_module *lstm_both_ways(void) { return tt_nn_lstm(4, 3, .bidirectional = true, .no_bias = true); }
static tt_module *gru(void) { return tt_nn_gru(4, 17); }
static tt_module *gru_both_ways(void) { return tt_nn_gru(4, 3, .num_layers = 2, .bidirectional = true); }
static tt_module *lstm_cell(void) { return tt_nn_lstm_cell(4, 5); }
static tt_module *gru_cell(void) { return tt_nn_gru_cell(4, 5); }

static const struct {
    const char *name;
    tt_module *(*make)(void);
    bool one_step;
} layers[] = {
    {"rnn, tanh", rnn_tanh, false},
    {"rnn, relu", rnn_relu, false},
    {"lstm", lstm, false},
    {"lstm, both ways", lstm_both_ways, false},
    {"gru", gru, false},
    {"gru, both ways", gru_both_ways, false},
    {"lstm cell", lstm_cell, true},
    {"gru cell", gru_cell, true},
};

enum { MOST = 24 };

/* y, the gradient of x, then those of the parameters. */
static int run_layer(size_t i, const tt_device *device, tt_dtype dtype, tt_tensor **out) {
    tt_manual_seed(3);
    tt_module *layer = layers[i].make();
    if (tt_module_to(layer, dtype) || tt_module_to_device(layer, device))
        fail_msg("%s: %s", layers[i].name, tt_last_error());
    tt_tensor *x = tt_scale(numbers(5 * 6, 4, dtype), 0.25), *flat = layers[i].one_step ? x : tt_view(x, S(5, 6, 4));
    x = tt_requires_grad_(tt_detach(tt_to_device(flat, device)), true);
    tt_tensor *y = tt_module_forward(layer, x);
    if (!y || tt_backward(tt_sum(tt_mul(y, y))))
        fail_msg("%s on %s: %s", layers[i].name, tt_device_name(device), tt_last_error());
    const tt_named_tensors *params = tt_module_parameters(layer);
    int n = 0;
    out[n++] = tt_clone(tt_detach(y));
    out[n++] = tt_clone(tt_grad(x));
    for (int64_t k = 0; k < params->count; k++)
        out[n++] = tt_clone(tt_grad(params->tensors[k]));
    assert_true(n <= MOST);
    tt_module_free(layer);
    return n;
}

/* Gradients of 16 bits are added up over steps, rounded at each. */
static void expect_near(const char *name, tt_dtype dtype, tt_tensor *got, tt_tensor *expected) {
    const double most = dtype == TT_F64 ? 1e-12 : dtype == TT_F32 ? 2e-5 : dtype == TT_F16 ? 1e-2 : 8e-2;
    double d = difference(got, expected);
    if (!(d <= most))
        fail_msg("%s of %s is %g away from the cpu's", name, tt_dtype_name(dtype), d);
}

static void recurrent_layers_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *near[MOST], *far[MOST], *again[MOST];
            int n = run_layer(i, TT_CPU, floats[f], near);
            assert_int_equal(run_layer(i, TT_CUDA(0), floats[f], far), n);
            assert_int_equal(run_layer(i, other_device(), floats[f], again), n);
            for (int k = 0; k < n; k++) {
                expect_near(layers[i].name, floats[f], far[k], near[k]);
                assert_true(tt_equal(here(far[k]), here(again[k])));
            }
        }
}

/* ---- training ---- */

enum { STEPS = 12, BATCH = 8, TIME = 9 };

/* Tell from a row of numbers whether its sum is above 0. */
static void train(const tt_device *device, double loss[STEPS]) {
    tt_manual_seed(1);
    tt_module *cells = tt_nn_gru(1, 12, .batch_first = true), *head = tt_nn_linear(12, 2);
    assert_false(tt_module_to_device(cells, device) || tt_module_to_device(head, device));
    tt_optimizer *of_cells = tt_adam(tt_module_parameters(cells), 0.02);
    tt_optimizer *of_head = tt_adam(tt_module_parameters(head), 0.02);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_randn(S(BATCH, TIME, 1), NULL);
        tt_tensor *y = tt_view(tt_to(tt_ge_scalar(tt_sum(x, .dim = TT_DIMS(1)), 0), TT_I64), S(BATCH));
        tt_tensor *states = tt_module_forward(cells, tt_to_device(x, device));
        tt_tensor *last = tt_view(tt_contiguous(tt_narrow(states, 1, TIME - 1, 1)), S(BATCH, 12));
        tt_tensor *l = tt_cross_entropy(tt_module_forward(head, last), tt_to_device(y, device));
        tt_optimizer_zero_grad(of_cells);
        tt_optimizer_zero_grad(of_head);
        if (tt_backward(l) || tt_item(l, &loss[step]) || tt_optimizer_step(of_cells) || tt_optimizer_step(of_head))
            fail_msg("step %d: %s", step, tt_last_error());
    }
    tt_optimizer_free(of_cells);
    tt_optimizer_free(of_head);
    tt_module_free(cells);
    tt_module_free(head);
}

static void a_gru_trains_to_the_cpus_losses(void **state) {
    (void)state;
    double near[STEPS], far[STEPS], again[STEPS];
    train(TT_CPU, near);
    train(TT_CUDA(0), far);
    train(other_device(), again);
    expect_losses(STEPS, near, far, again);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrent_layers_are_the_cpus),
        cmocka_unit_test(a_gru_trains_to_the_cpus_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
