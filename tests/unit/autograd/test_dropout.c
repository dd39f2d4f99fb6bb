/* Dropout: how many elements it drops and which, the same for a seed whatever the threads, layouts and devices; its
 * gradient; the generator against its published numbers; the module. And the modules of activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "base/philox.h"

#include <tutti/nn.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

static double item(tt_tensor *x) {
    double v = NAN;
    assert_int_equal(tt_item(x, &v), TT_OK);
    return v;
}

/* Key and counter 0: the test vector of the authors' library. */
static void philox_is_the_published_one(void **state) {
    (void)state;
    uint32_t words[4];
    tt__philox(0, 0, words);
    assert_true(words[0] == 0x6627e8d5 && words[1] == 0xe169c58d && words[2] == 0xbc57ac4c && words[3] == 0x9b00dbd8);
}

/* Ones after dropout. */
static tt_tensor *dropped_ones(tt_shape shape, double p, uint64_t seed) {
    tt_manual_seed(seed);
    return tt_dropout(tt_ones(shape, TT_F32), p, true);
}

/* The share of zeros is p within five standard deviations, in all and in each row; neighbours don't depend on each
 * other; what stays is 1 / (1 - p). */
static void the_share_of_zeros(void **state) {
    (void)state;
    const double probabilities[] = {0.01, 0.1, 0.5, 0.9};
    enum { ROWS = 64, COLS = 4001 };
    for (int k = 0; k < 4; k++) {
        TT_AUTO_SCOPE;
        double p = probabilities[k], n = (double)ROWS * COLS;
        tt_tensor *y = dropped_ones(S(ROWS, COLS), p, 1234 + (uint64_t)k);
        tt_tensor *zero = tt_to(tt_eq_scalar(y, 0), TT_F32);
        assert_true(fabs(item(tt_sum(zero)) - n * p) < 5 * sqrt(n * p * (1 - p)));
        tt_tensor *rows = tt_sum(zero, .dim = TT_DIMS(1)), *columns = tt_sum(zero, .dim = TT_DIMS(0));
        for (int r = 0; r < ROWS; r++)
            assert_true(fabs((double)tt_tensor_f32(rows)[r] - COLS * p) < 5 * sqrt(COLS * p * (1 - p)));
        for (int c = 0; c < COLS; c++)
            assert_true(fabs((double)tt_tensor_f32(columns)[c] - ROWS * p) < 6 * sqrt(ROWS * p * (1 - p)) + 1);
        double both = item(tt_sum(tt_mul(tt_narrow(zero, 1, 0, COLS - 1), tt_narrow(zero, 1, 1, COLS - 1))));
        assert_true(fabs(both - n * p * p) < 6 * sqrt(n) * p);
        assert_true(fabs(item(tt_max(y)) - 1 / (1 - p)) < 1e-5);
    }
}

static void the_same_for_a_seed(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *y = dropped_ones(S(50, 1003), 0.3, 7);
    assert_true(tt_equal(y, dropped_ones(S(50, 1003), 0.3, 7)));
    assert_false(tt_equal(y, dropped_ones(S(50, 1003), 0.3, 8)));
    tt_tensor *next = tt_dropout(tt_ones(S(50, 1003), TT_F32), 0.3, true);
    assert_false(tt_equal(next, y));
    int threads = tt_get_num_threads();
    assert_int_equal(tt_set_num_threads(threads == 1 ? 2 : 1), TT_OK);
    assert_true(tt_equal(y, dropped_ones(S(50, 1003), 0.3, 7)));
    assert_int_equal(tt_set_num_threads(0), TT_OK);
    tt_generator *g = tt_generator_new(7);
    assert_true(tt_equal(y, tt_dropout(tt_ones(S(50, 1003), TT_F32), 0.3, true, .generator = g)));
    tt_generator_seed(g, 7);
    tt_tensor *plain = tt_to_device(tt_ones(S(50, 1003), TT_F32), tt_device_get("reference"));
    assert_true(tt_equal(y, tt_to_device(tt_dropout(plain, 0.3, true, .generator = g), tt_device_get("cpu"))));
    tt_generator_free(g);
}

/* Of each element type and layout: what was dropped has no gradient, the rest that of the scale. */
static void gradients(void **state) {
    (void)state;
    const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
    for (int k = 0; k < 16; k++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_requires_grad_(tt_ones(S(4, 3, 5, 7), types[k / 4]), true), *in = x;
        in = k % 4 == 1 ? tt_transpose(x, 0, 2) : k % 4 == 2 ? tt_to_memory_format(x, TT_CHANNELS_LAST) : in;
        in = k % 4 == 3 ? tt_narrow(x, 3, 1, 5) : in;
        tt_tensor *y = tt_dropout(in, 0.5, true);
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        tt_tensor *g = tt_grad(x);
        g = k % 4 == 1 ? tt_transpose(g, 0, 2) : k % 4 == 3 ? tt_narrow(g, 3, 1, 5) : g;
        assert_true(tt_equal(tt_detach(y), g));
        assert_true(item(tt_sum(y)) > 0 && item(tt_min(tt_to(tt_detach(y), TT_F32))) == 0);
    }
}

static void nothing_and_everything(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_rand(S(100), NULL);
    assert_true(tt_dropout(x, 0, true) == x && tt_dropout(x, 0.5, false) == x);
    assert_true(tt_equal(tt_dropout(x, 1, true), tt_zeros(S(100), TT_F32)));
    assert_int_equal(tt_tensor_numel(tt_dropout(tt_zeros(S(0), TT_F32), 0.5, true)), 0);
    assert_null(tt_dropout(NULL, 0.5, true));
    assert_int_equal(tt_last_status(), TT_OK);
    assert_null(tt_dropout(x, 1.5, true));
    assert_string_equal(tt_last_error(), "tt_dropout: expected a probability p in 0..1, got 1.5");
    assert_null(tt_dropout(tt_zeros(S(2), TT_I64), 0.5, true));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    assert_null(tt_nn_dropout(NAN));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    tt_clear_error();
}

/* ---- modules */

static void dropout_follows_the_mode(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_sequential(tt_nn_dropout(0.5), tt_nn_relu());
    tt_tensor *x = tt_ones(S(1000), TT_F32);
    assert_true(item(tt_min(tt_module_forward(m, x))) == 0);
    tt_module_eval(m);
    assert_true(tt_equal(tt_module_forward(m, x), x));
    tt_module_train(m);
    assert_true(item(tt_max(tt_module_forward(m, x))) == 2);
    tt_module_free(m);
}

static void activations_are_their_operators(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(S(3, 5), NULL);
    tt_module *modules[] = {tt_nn_sigmoid(),   tt_nn_tanh(),           tt_nn_silu(),     tt_nn_gelu(),
                            tt_nn_gelu_tanh(), tt_nn_leaky_relu(0.25), tt_nn_softmax(0), tt_nn_log_softmax(-1)};
    tt_tensor *const want[] = {
        tt_sigmoid(x),          tt_tanh(x),       tt_silu(x),           tt_gelu(x), tt_gelu(x, .tanh = true),
        tt_leaky_relu(x, 0.25), tt_softmax(x, 0), tt_log_softmax(x, -1)};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        assert_true(tt_equal(tt_module_forward(modules[i], x), want[i]));
        tt_module_free(modules[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_is_the_published_one),
        cmocka_unit_test(the_share_of_zeros),
        cmocka_unit_test(the_same_for_a_seed),
        cmocka_unit_test(gradients),
        cmocka_unit_test(nothing_and_everything),
        cmocka_unit_test(dropout_follows_the_mode),
        cmocka_unit_test(activations_are_their_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
