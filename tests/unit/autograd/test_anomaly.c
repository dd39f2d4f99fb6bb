/* Anomaly mode: the call whose backward made the first NaN is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "unit/expect.h"

#include <tutti/autograd.h>
#include <tutti/functional.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

/* A loss in which tt_mul's backward multiplies 0 by infinity, at element 1 of its first input. */
static tt_tensor *bad_loss(void) {
    tt_tensor *x = tt_requires_grad_(tt_ones(S(3), TT_F32), true), *factor = tt_ones(S(3), TT_F32);
    tt_tensor_f32(factor)[1] = INFINITY;
    tt_tensor *weight = tt_ones(S(3), TT_F32);
    tt_tensor_f32(weight)[1] = 0;
    return tt_sum(tt_mul(tt_mul(tt_scale(x, 2), factor), weight));
}

static void without_it_nothing_is_looked_for(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_false(tt_is_anomaly_enabled());
    assert_int_equal(tt_backward(bad_loss()), TT_OK);
}

static void the_call_is_named(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_set_detect_anomaly(true);
    assert_true(tt_is_anomaly_enabled());
    tt_status status = tt_backward(bad_loss());
    tt_set_detect_anomaly(false);
    assert_int_equal(status, TT_ERR_NAN);
    assert_non_null(strstr(tt_last_error(), "/test_anomaly(")); /* where the call was made */
    expect_error(TT_ERR_NAN, "tt_mul gave its input 0 a gradient, f32 (3), whose element 1 is not a number; the call");
}

static void good_gradients_pass(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_set_detect_anomaly(true);
    tt_tensor *x = tt_requires_grad_(tt_full(S(2, 2), TT_F64, INFINITY), true);
    tt_status status = tt_backward(tt_sum(tt_scale(tt_transpose(x, 0, 1), 3)));
    tt_set_detect_anomaly(false);
    assert_int_equal(status, TT_OK);
}

static void a_nan_that_came_in_is_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_ones(S(2), TT_F16), true);
    tt_tensor *y = tt_scale(x, 3);
    tt_set_detect_anomaly(true);
    tt_status status = tt_backward(y, .gradient = tt_full(S(2), TT_F16, NAN));
    tt_set_detect_anomaly(false);
    assert_int_equal(status, TT_ERR_NAN);
    expect_error(TT_ERR_NAN, "the gradient of its result had such elements already); the call, the ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_it_nothing_is_looked_for),
        cmocka_unit_test(the_call_is_named),
        cmocka_unit_test(good_gradients_pass),
        cmocka_unit_test(a_nan_that_came_in_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
