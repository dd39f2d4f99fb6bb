/* The gradient scaler: scales by PyTorch's rules (tests/vectors/grad-scaler.json), what a step skips, the order of
 * calls, its state, and memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/alloc_fail.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <tutti/amp.h>
#include <tutti/functional.h>
#include <tutti/layers.h>

#include <math.h>
#include <string.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

/* Two parameters, of f32 and f64, in a group each. */
typedef struct lab {
    tt_tensor *w, *v;
    tt_optimizer *sgd;
} lab;

static lab lab_make(void) {
    static const char *const names[] = {"w", "v"};
    lab l = {tt_requires_grad_(tt_keep(tt_ones(S(3), TT_F32)), true),
             tt_requires_grad_(tt_keep(tt_ones(S(2), TT_F64)), true), NULL};
    l.sgd = tt_sgd(TT_NAMED_TENSORS(1, &names[0], &l.w), 0.25);
    assert_int_equal(tt_optimizer_add_param_group(l.sgd, TT_NAMED_TENSORS(1, &names[1], &l.v)), TT_OK);
    return l;
}

static void lab_free(lab *l) {
    tt_optimizer_free(l->sgd);
    tt_tensor_free(l->w);
    tt_tensor_free(l->v);
}

/* Gradients of `slope` for every element, times the scale; one of `v` is `odd`, if that is not 0. */
static void lab_backward(const lab *l, tt_grad_scaler *scaler, double slope, double odd) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(l->sgd);
    assert_int_equal(tt_backward(tt_grad_scaler_scale(scaler, tt_sum(tt_scale(l->w, slope)))), TT_OK);
    double factor[] = {slope, odd != 0 ? odd : slope};
    tt_tensor *weights = tt_from_data(factor, S(2), TT_F64);
    assert_int_equal(tt_backward(tt_grad_scaler_scale(scaler, tt_sum(tt_mul(l->v, weights)))), TT_OK);
}

static double first_of(const tt_tensor *x) { return (double)tt_tensor_f32((tt_tensor *)x)[0]; }

/* ---- scales */

static void follow(const json_t *run) {
    lab l = lab_make();
    tt_grad_scaler *scaler =
        tt_grad_scaler_new(vectors_member(run, "init_scale"), .growth_factor = vectors_member(run, "growth_factor"),
                           .backoff_factor = vectors_member(run, "backoff_factor"),
                           .growth_interval = (int64_t)vectors_member(run, "growth_interval"));
    assert_non_null(scaler);
    const json_t *found = json_object_get(run, "found"), *scales = json_object_get(run, "scales");
    for (size_t i = 0; i < json_array_size(found); i++) {
        bool inf = vectors_number(found, i) != 0;
        lab_backward(&l, scaler, 1e-8, inf ? i % 2 ? NAN : -INFINITY : 0);
        assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
        assert_int_equal(tt_grad_scaler_found_inf(scaler, l.sgd), inf);
        assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
        double tracker, scale = tt_grad_scaler_get_scale(scaler);
        assert_true(scale == vectors_number(scales, i));
        TT_AUTO_SCOPE;
        const tt_named_tensors *state = tt_grad_scaler_state_dict(scaler);
        assert_int_equal(tt_item(tt_named_tensors_find(state, "_growth_tracker"), &tracker), TT_OK);
        assert_true(tracker == vectors_number(json_object_get(run, "trackers"), i));
    }
    tt_grad_scaler_free(scaler);
    lab_free(&l);
}

static void scales_are_pytorchs(void **state) {
    (void)state;
    json_t *vectors = vectors_load("grad-scaler.json");
    assert_non_null(vectors);
    const json_t *runs = json_object_get(vectors, "runs");
    assert_true(json_array_size(runs) >= 5);
    for (size_t i = 0; i < json_array_size(runs); i++)
        follow(json_array_get(runs, i));
    json_decref(vectors);
}

/* ---- steps */

static void gradients_are_divided_once(void **state) {
    (void)state;
    lab l = lab_make();
    tt_grad_scaler *scaler = tt_grad_scaler_new(0);
    assert_true(tt_grad_scaler_get_scale(scaler) == 65536);
    lab_backward(&l, scaler, 2, 0);
    assert_true(first_of(tt_grad(l.w)) == 2 * 65536.0);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, l.sgd), TT_OK);
    assert_true(first_of(tt_grad(l.w)) == 2);
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
    assert_true(first_of(tt_grad(l.w)) == 2 && first_of(l.w) == 0.5);
    assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    tt_grad_scaler_free(scaler);
    lab_free(&l);
}

static void a_bad_step_changes_nothing(void **state) {
    (void)state;
    lab l = lab_make();
    tt_grad_scaler *scaler = tt_grad_scaler_new(8);
    lab_backward(&l, scaler, 2, INFINITY);
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
    assert_true(first_of(l.w) == 1);
    assert_true(tt_grad_scaler_found_inf(scaler, l.sgd));
    assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    assert_true(tt_grad_scaler_get_scale(scaler) == 4);
    assert_false(tt_grad_scaler_found_inf(scaler, l.sgd));
    tt_grad_scaler_free(scaler);
    lab_free(&l);
}

/* One optimizer's infinities keep neither another one's step from being made nor the scale from falling. */
static void optimizers_are_told_apart(void **state) {
    (void)state;
    lab bad = lab_make(), good = lab_make();
    tt_grad_scaler *scaler = tt_grad_scaler_new(8);
    lab_backward(&bad, scaler, 2, NAN);
    lab_backward(&good, scaler, 2, 0);
    assert_int_equal(tt_grad_scaler_step(scaler, bad.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_step(scaler, good.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    assert_true(first_of(bad.w) == 1 && first_of(good.w) == 0.5);
    assert_true(tt_grad_scaler_get_scale(scaler) == 4);
    tt_grad_scaler_free(scaler);
    lab_free(&bad);
    lab_free(&good);
}

static void calls_out_of_order_are_errors(void **state) {
    (void)state;
    lab l = lab_make();
    tt_grad_scaler *scaler = tt_grad_scaler_new(8);
    assert_int_equal(tt_grad_scaler_update(scaler), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "no gradients were looked at since the last update");
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "none of the optimizer's parameters has a gradient");
    lab_backward(&l, scaler, 2, 0);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, l.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, l.sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "already since the last update");
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, l.sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "after its step");
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "already since the last update");
    assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    lab_backward(&l, scaler, 2, 0);
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_update_to(scaler, 0), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a scale above 0 that f32 holds, got 0");
    assert_int_equal(tt_grad_scaler_update_to(scaler, 128), TT_OK);
    assert_true(tt_grad_scaler_get_scale(scaler) == 128);
    tt_grad_scaler_free(scaler);
    lab_free(&l);
}

static void values_out_of_range_are_errors(void **state) {
    (void)state;
    assert_null(tt_grad_scaler_new(-1));
    expect_error(TT_ERR_INVALID, "expected a scale above 0");
    assert_null(tt_grad_scaler_new(1e300));
    expect_error(TT_ERR_INVALID, "expected a scale above 0 that f32 holds");
    assert_null(tt_grad_scaler_new(0, .growth_factor = 1));
    expect_error(TT_ERR_INVALID, "expected growth_factor above 1, got 1");
    assert_null(tt_grad_scaler_new(0, .backoff_factor = 1));
    expect_error(TT_ERR_INVALID, "expected backoff_factor above 0 and below 1, got 1");
    assert_null(tt_grad_scaler_new(0, .growth_interval = -3));
    expect_error(TT_ERR_INVALID, "expected growth_interval of at least 1, got -3");
}

static void a_disabled_one_lets_all_through(void **state) {
    (void)state;
    lab l = lab_make();
    tt_grad_scaler *scaler = tt_grad_scaler_new(8, .disabled = true);
    assert_false(tt_grad_scaler_is_enabled(scaler));
    lab_backward(&l, scaler, 2, INFINITY);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, l.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_step(scaler, l.sgd), TT_OK);
    assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    assert_true(first_of(l.w) == 0.5 && tt_grad_scaler_get_scale(scaler) == 1);
    assert_int_equal(tt_grad_scaler_state_dict(scaler)->count, 0);
    tt_grad_scaler_free(scaler);
    lab_free(&l);
}

/* ---- state */

static void state_comes_back_or_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_grad_scaler *a = tt_grad_scaler_new(8, .growth_interval = 7), *b = tt_grad_scaler_new(0);
    tt_grad_scaler *off = tt_grad_scaler_new(0, .disabled = true);
    const tt_named_tensors *saved = tt_grad_scaler_state_dict(a);
    assert_int_equal(tt_grad_scaler_load_state_dict(b, saved), TT_OK);
    assert_true(tt_grad_scaler_get_scale(b) == 8);
    assert_int_equal(tt_grad_scaler_load_state_dict(off, saved), TT_OK);
    assert_int_equal(tt_grad_scaler_load_state_dict(b, tt_grad_scaler_state_dict(off)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected 5 entries, got 0; was it saved from a disabled scaler?");
    tt_tensor *bad[5];
    memcpy(bad, saved->tensors, sizeof bad);
    bad[1] = tt_full(TT_SCALAR, TT_F64, 0.5);
    assert_int_equal(tt_grad_scaler_load_state_dict(b, TT_NAMED_TENSORS(5, saved->names, bad)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected growth_factor above 1");
    bad[1] = tt_ones(S(2), TT_F64);
    assert_int_equal(tt_grad_scaler_load_state_dict(b, TT_NAMED_TENSORS(5, saved->names, bad)), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "\"growth_factor\": expected one number");
    bad[1] = saved->tensors[1];
    bad[3] = tt_full(TT_SCALAR, TT_F64, 2.5);
    assert_int_equal(tt_grad_scaler_load_state_dict(b, TT_NAMED_TENSORS(5, saved->names, bad)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "\"growth_interval\": expected a count, got 2.5");
    const char *names[5];
    memcpy(names, saved->names, sizeof names);
    names[0] = "scales";
    assert_int_equal(tt_grad_scaler_load_state_dict(b, TT_NAMED_TENSORS(5, names, saved->tensors)), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "entry \"scale\" is missing");
    assert_true(tt_grad_scaler_get_scale(b) == 8);
    tt_grad_scaler_free(a);
    tt_grad_scaler_free(b);
    tt_grad_scaler_free(off);
}

/* ---- memory */

static tt_status one_iteration(void *arg) {
    lab *l = arg;
    tt_grad_scaler *scaler = tt_grad_scaler_new(8);
    tt_status status = scaler ? TT_OK : tt_last_status();
    int scope = tt_scope_begin();
    if (!scope)
        status = tt_last_status();
    tt_optimizer_zero_grad(l->sgd);
    if (!status)
        status = tt_backward(tt_grad_scaler_scale(scaler, tt_sum(l->w)));
    tt_scope_end(scope);
    if (!status)
        status = tt_grad_scaler_step(scaler, l->sgd);
    if (!status)
        status = tt_grad_scaler_update(scaler);
    if (!status && !tt_grad_scaler_state_dict(scaler))
        status = tt_last_status();
    tt_grad_scaler_free(scaler);
    return status;
}

static void a_gradient_that_changed_its_type_is_an_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *model = tt_nn_linear(3, 2, .dtype = TT_F64);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    tt_grad_scaler *scaler = tt_grad_scaler_new(0);
    assert_int_equal(tt_module_to(model, TT_F32), TT_OK);
    tt_tensor *loss = tt_sum(tt_module_forward(model, tt_ones(TT_SHAPE(2, 3), TT_F32)));
    assert_int_equal(tt_backward(tt_grad_scaler_scale(scaler, loss)), TT_OK);
    assert_int_equal(tt_grad_scaler_step(scaler, sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "was f64 when it was added, and its gradient is f32");
    tt_grad_scaler_free(scaler);
    tt_optimizer_free(sgd);
    tt_module_free(model);
}

static void nothing_leaks_when_memory_is_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    lab l = lab_make();
    assert_true(alloc_fail_each(one_iteration, &l, ALLOC_ENDS) > 5);
    lab_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_pytorchs),
        cmocka_unit_test(gradients_are_divided_once),
        cmocka_unit_test(a_bad_step_changes_nothing),
        cmocka_unit_test(optimizers_are_told_apart),
        cmocka_unit_test(calls_out_of_order_are_errors),
        cmocka_unit_test(values_out_of_range_are_errors),
        cmocka_unit_test(a_disabled_one_lets_all_through),
        cmocka_unit_test(state_comes_back_or_is_refused),
        cmocka_unit_test(a_gradient_that_changed_its_type_is_an_error),
        cmocka_unit_test(nothing_leaks_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
