/* Parameter groups: options by name, state that lies flat, state dicts of several groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "tensor/core/element.h"
#include "tensor/core/tensor.h"
#include "unit/expect.h"

static const char *const names[] = {"a", "b", "c", "d"};

/* A leaf of n values whose gradient is one everywhere. */
static tt_tensor *leaf(int64_t n, tt_dtype dtype) {
    tt_tensor *x = tt_requires_grad_(tt_full(TT_SHAPE(n), dtype, 1), true);
    assert_int_equal(tt_backward(tt_sum(x)), TT_OK);
    return x;
}

static double first(tt_tensor *x) {
    double value = -1;
    assert_int_equal(tt_item(tt_narrow(x, 0, 0, 1), &value), TT_OK);
    return value;
}

static double option(const tt_optimizer *o, int64_t group, const char *name) {
    double value = -1;
    assert_int_equal(tt_optimizer_get_option(o, group, name, &value), TT_OK);
    return value;
}

static void groups_have_options_of_their_own(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {leaf(3, TT_F32), leaf(5, TT_F32)};
    tt_optimizer *sgd = tt_sgd(TT_NAMED_TENSORS(1, names, x), 0.5);
    assert_int_equal(
        tt_optimizer_add_param_group(sgd, TT_NAMED_TENSORS(1, names, x + 1), .options = TT_OPTION_LIST({"lr", 0.25})),
        TT_OK);
    assert_int_equal(tt_optimizer_group_count(sgd), 2);
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_true(first(x[0]) == 0.5 && first(x[1]) == 0.75);
    assert_true(option(sgd, 0, "lr") == 0.5 && option(sgd, 1, "lr") == 0.25 && option(sgd, 1, "momentum") == 0);
    assert_int_equal(tt_optimizer_set_option(sgd, 1, "lr", 0.125), TT_OK);
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_true(first(x[0]) == 0 && first(x[1]) == 0.625);
    assert_int_equal(tt_optimizer_set_option(sgd, TT_ALL_GROUPS, "lr", 0), TT_OK);
    assert_int_equal(tt_optimizer_set_option(sgd, TT_ALL_GROUPS, "momentum", 0.5), TT_OK); /* state comes when needed */
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_true(first(x[0]) == 0 && first(x[1]) == 0.625);
    assert_non_null(tt_named_tensors_find(tt_optimizer_state_dict(sgd), "state.1.momentum_buffer"));
    assert_string_equal(tt_optimizer_option_name(sgd, 1), "momentum");
    assert_null(tt_optimizer_option_name(sgd, 6));
    tt_optimizer_zero_grad(sgd);
    assert_null(tt_grad(x[1]));
    tt_optimizer_free(sgd);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double value = 7;
    tt_tensor *x[] = {leaf(3, TT_F32), leaf(3, TT_F32)};
    const tt_named_tensors *one = TT_NAMED_TENSORS(1, names, x), *other = TT_NAMED_TENSORS(1, names, x + 1);
    tt_optimizer *sgd = tt_sgd(one, 0.5, .momentum = 0.9, .nesterov = true);
    assert_int_equal(tt_optimizer_set_option(sgd, 0, "learning_rate", 1), TT_ERR_NOT_FOUND);
    expect_error(
        TT_ERR_NOT_FOUND,
        "tt_sgd has no option \"learning_rate\"; it has lr, momentum, dampening, weight_decay, nesterov, maximize");
    assert_int_equal(tt_optimizer_get_option(sgd, 0, NULL, &value), TT_ERR_NOT_FOUND);
    assert_int_equal(tt_optimizer_get_option(sgd, 1, "lr", &value), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "expected a group below 1, got 1");
    assert_int_equal(tt_optimizer_get_option(sgd, TT_ALL_GROUPS, "lr", &value), TT_ERR_NOT_FOUND);
    assert_int_equal(tt_optimizer_set_option(sgd, -2, "lr", 1), TT_ERR_NOT_FOUND);
    assert_int_equal(tt_optimizer_set_option(NULL, 0, "lr", 1), TT_ERR_INVALID);
    assert_true(value == 7);
    assert_int_equal(tt_optimizer_set_option(sgd, 0, "lr", -1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_optimizer_set_option: expected a finite lr of at least 0, got -1");
    assert_int_equal(tt_optimizer_set_option(sgd, 0, "momentum", 0), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "nesterov needs momentum");
    assert_true(option(sgd, 0, "lr") == 0.5 && option(sgd, 0, "momentum") == 0.9);
    assert_int_equal(tt_optimizer_add_param_group(sgd, other, .options = TT_OPTION_LIST({"lr", 1}, {"beta1", 0.5})),
                     TT_ERR_NOT_FOUND);
    assert_int_equal(tt_optimizer_add_param_group(sgd, other, .options = TT_OPTION_LIST({"dampening", 0.5})),
                     TT_ERR_INVALID);
    assert_int_equal(tt_optimizer_add_param_group(sgd, one), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "parameter number 0, f32 (3), is in group 0 already");
    tt_tensor *twice[] = {x[1], x[1]};
    assert_int_equal(tt_optimizer_add_param_group(sgd, TT_NAMED_TENSORS(2, names, twice)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "parameter number 1, f32 (3), is in group 1 already");
    assert_int_equal(tt_optimizer_add_param_group(sgd, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_optimizer_add_param_group(NULL, other), TT_ERR_INVALID);
    assert_int_equal(tt_optimizer_group_count(sgd), 1);
    const tt_named_tensors no_size = {.count = 1, .names = names, .tensors = x};
    assert_null(tt_sgd(&no_size, 0.1));
    expect_error(TT_ERR_INVALID, "expected a list made by TT_NAMED_TENSORS");
    assert_null(tt_adam(one, -1));
    assert_null(tt_adam(one, 0.1, .beta1 = 1));
    expect_error(TT_ERR_INVALID, "tt_adam: expected beta1 below 1, got 1");
    assert_null(tt_adamw(one, 0.1, -0.5));
    expect_error(TT_ERR_INVALID, "tt_adamw: expected a finite weight_decay of at least 0, got -0.5");
    assert_null(tt_rmsprop(one, 0.1, .alpha = -1));
    expect_error(TT_ERR_INVALID, "tt_rmsprop: expected a finite alpha of at least 0, got -1");
    assert_null(tt_adagrad(one, 0.1, .lr_decay = -1));
    expect_error(TT_ERR_INVALID, "tt_adagrad: expected a finite lr_decay of at least 0, got -1");
    assert_null(tt_adadelta(one, 0.1, .rho = 1.5));
    expect_error(TT_ERR_INVALID, "tt_adadelta: expected rho of at most 1, got 1.5");
    tt_optimizer_free(sgd);
}

static void zero_is_a_default_that_can_be_set(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3, TT_F32);
    tt_optimizer *adam = tt_adam(TT_NAMED_TENSORS(1, names, &x), 0.1);
    assert_true(option(adam, 0, "beta1") == 0.9 && option(adam, 0, "beta2") == 0.999 && option(adam, 0, "eps") == 1e-8);
    assert_int_equal(tt_optimizer_set_option(adam, 0, "beta1", 0), TT_OK);
    assert_true(option(adam, 0, "beta1") == 0);
    tt_optimizer_free(adam);
}

/* Options of group 0 have these values, ended by name NULL. */
static void assert_options(tt_optimizer *o, const tt_option *want) {
    int64_t n = 0;
    for (; want[n].name; n++)
        assert_true(option(o, 0, want[n].name) == want[n].value);
    assert_null(tt_optimizer_option_name(o, n));
    tt_optimizer_free(o);
}

static void constructors_set_every_option(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = leaf(3, TT_F32);
    const tt_named_tensors *p = TT_NAMED_TENSORS(1, names, &x);
    assert_options(tt_rmsprop(p, 0.5), TT_OPTION_LIST({"lr", 0.5}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0},
                                                      {"momentum", 0}, {"centered", 0}, {"maximize", 0}));
    assert_options(tt_rmsprop(p, 0.5, .alpha = 0.7, .eps = 0.25, .weight_decay = 3, .momentum = 2, .centered = true,
                              .maximize = true),
                   TT_OPTION_LIST({"lr", 0.5}, {"alpha", 0.7}, {"eps", 0.25}, {"weight_decay", 3}, {"momentum", 2},
                                  {"centered", 1}, {"maximize", 1}));
    assert_options(tt_adagrad(p, 0.5), TT_OPTION_LIST({"lr", 0.5}, {"lr_decay", 0}, {"eps", 1e-10}, {"weight_decay", 0},
                                                      {"initial_accumulator_value", 0}, {"maximize", 0}));
    assert_options(tt_adagrad(p, 0.5, .lr_decay = 0.7, .eps = 0.25, .weight_decay = 3, .initial_accumulator_value = 2,
                              .maximize = true),
                   TT_OPTION_LIST({"lr", 0.5}, {"lr_decay", 0.7}, {"eps", 0.25}, {"weight_decay", 3},
                                  {"initial_accumulator_value", 2}, {"maximize", 1}));
    assert_options(tt_adadelta(p, 1),
                   TT_OPTION_LIST({"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", 0}));
    assert_options(tt_adadelta(p, 1, .rho = 0.7, .eps = 0.25, .weight_decay = 3, .maximize = true),
                   TT_OPTION_LIST({"lr", 1}, {"rho", 0.7}, {"eps", 0.25}, {"weight_decay", 3}, {"maximize", 1}));
    assert_options(tt_lamb(p, 1, 0.5),
                   TT_OPTION_LIST({"lr", 1}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-6}, {"weight_decay", 0.5},
                                  {"max_grad_norm", 1}, {"bias_correction", 1}, {"grad_averaging", 1},
                                  {"adam_w_mode", 1}, {"use_nvlamb", 0}, {"maximize", 0}));
    assert_options(tt_lamb(p, 1, 0.5, .beta1 = 0.5, .beta2 = 0.25, .eps = 2, .max_grad_norm = 3,
                           .no_bias_correction = true, .no_grad_averaging = true, .no_adam_w_mode = true,
                           .use_nvlamb = true, .maximize = true),
                   TT_OPTION_LIST({"lr", 1}, {"beta1", 0.5}, {"beta2", 0.25}, {"eps", 2}, {"weight_decay", 0.5},
                                  {"max_grad_norm", 3}, {"bias_correction", 0}, {"grad_averaging", 0},
                                  {"adam_w_mode", 0}, {"use_nvlamb", 1}, {"maximize", 1}));
}

/* Slots of a group and type are one run of memory, in the parameters' order. */
static void state_lies_flat(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {leaf(16, TT_F32), leaf(8, TT_F64), leaf(3, TT_F32), leaf(32, TT_F32)};
    tt_optimizer *adam = tt_adamw(TT_NAMED_TENSORS(4, names, x), 0.1, 0);
    assert_int_equal(tt_optimizer_step(adam), TT_OK);
    const tt_named_tensors *dict = tt_optimizer_state_dict(adam);
    const float *at[3];
    static const char *const of_f32[] = {"state.0.exp_avg", "state.2.exp_avg", "state.3.exp_avg"};
    for (int i = 0; i < 3; i++)
        at[i] = tt_tensor_f32(tt_named_tensors_find(dict, of_f32[i]));
    assert_ptr_equal(at[1], at[0] + 16);
    assert_ptr_equal(at[2], at[0] + 32); /* each begins on a boundary of 64 bytes */
    assert_int_equal(tt_tensor_dtype(tt_named_tensors_find(dict, "state.1.exp_avg_sq")), TT_F64);
    tt_optimizer_free(adam);
}

static void parameters_that_changed_their_type_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_linear(3, 2);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(m), 0.1);
    assert_int_equal(tt_module_to(m, TT_F64), TT_OK);
    tt_tensor *loss = tt_sum(tt_module_forward(m, tt_ones(TT_SHAPE(1, 3), TT_F64)));
    assert_int_equal(tt_backward(loss), TT_OK);
    assert_int_equal(tt_optimizer_step(sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "parameter 0 was f32 of 6 elements on \"cpu\" when it was added, and is f64 (2, 3) on");
    tt_optimizer_free(sgd);
    tt_module_free(m);
}

/* A step writes over what a record needs: its backward must not use the new values. */
static void a_step_ends_older_records(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w[] = {leaf(3, TT_F32), tt_requires_grad_(tt_ones(TT_SHAPE(3), TT_F32), true)};
    tt_optimizer *sgd = tt_sgd(TT_NAMED_TENSORS(1, names, w), 0.1);
    tt_tensor *y = tt_sum(tt_mul(w[0], w[1])); /* backward to w[1] needs w[0] */
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_int_equal(tt_backward(y), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "tt_mul");
    tt_optimizer_free(sgd);
}

/* The reference device has the same memory and plain loops: a model trains there as on the default one. */
static void a_model_trains_where_it_lies(void **state) {
    (void)state;
    tt_module *m[2];
    tt_optimizer *adam[2];
    for (int i = 0; i < 2; i++) {
        TT_AUTO_SCOPE;
        const tt_device *device = tt_device_get(i ? "reference" : "cpu");
        tt_manual_seed(5);
        m[i] = tt_nn_linear(4, 2);
        assert_int_equal(tt_module_to_device(m[i], device), TT_OK);
        assert_ptr_equal(tt_tensor_device(tt_module_parameters(m[i])->tensors[0]), device);
        adam[i] = tt_adamw(tt_module_parameters(m[i]), 0.1, 0.01);
        tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(3, 4), TT_F32), device);
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(m[i], x))), TT_OK);
        assert_int_equal(tt_optimizer_step(adam[i]), TT_OK);
        const tt_tensor *slot = tt_named_tensors_find(tt_optimizer_state_dict(adam[i]), "state.1.exp_avg");
        assert_ptr_equal(tt_tensor_device(slot), device);
    }
    assert_int_equal(tt_optimizer_load_state_dict(adam[1], tt_optimizer_state_dict(adam[0])), TT_OK);
    assert_int_equal(tt_module_to_device(m[1], tt_device_get("cpu")), TT_OK);
    assert_true(tt_equal(tt_module_parameters(m[0])->tensors[1], tt_module_parameters(m[1])->tensors[1]));
    assert_int_equal(tt_optimizer_step(adam[1]), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "on \"reference\" when it was added, and is f32 (2, 4) on \"cpu\" now");
    tt_tensor *one = tt_full(TT_SHAPE(3), TT_F32, 1), *other = tt_to_device(one, tt_device_get("reference"));
    tt_tensor *both[] = {one, other};
    assert_null(tt_sgd(TT_NAMED_TENSORS(2, names, both), 0.1));
    expect_error(TT_ERR_INVALID, "expected a group on one device, got number 1 on \"reference\" and others on \"cpu\"");
    tt_tensor_free(one);
    tt_tensor_free(other);
    for (int i = 0; i < 2; i++) {
        tt_optimizer_free(adam[i]);
        tt_module_free(m[i]);
    }
}

/* ---- state dicts ---- */

/* Two groups of Adam over these; the second one is slower. */
static tt_optimizer *two_groups(tt_tensor **x) {
    tt_optimizer *adam = tt_adam(TT_NAMED_TENSORS(2, names, x), 0.5, .amsgrad = true);
    assert_int_equal(
        tt_optimizer_add_param_group(adam, TT_NAMED_TENSORS(1, names, x + 2), .options = TT_OPTION_LIST({"lr", 0.25})),
        TT_OK);
    return adam;
}

static void train(tt_optimizer *o, int steps) {
    for (int i = 0; i < steps; i++)
        assert_int_equal(tt_optimizer_step(o), TT_OK);
}

static void groups_go_on_where_they_were(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a[] = {leaf(3, TT_F32), leaf(4, TT_F64), leaf(5, TT_F32)};
    tt_tensor *b[] = {leaf(3, TT_F32), leaf(4, TT_F64), leaf(5, TT_F32)};
    tt_optimizer *whole = two_groups(a), *before = two_groups(b), *after = two_groups(b);
    assert_int_equal(tt_optimizer_set_option(whole, 1, "lr", 0.75), TT_OK);
    assert_int_equal(tt_optimizer_set_option(before, 1, "lr", 0.75), TT_OK);
    train(whole, 5);
    train(before, 2);
    assert_int_equal(tt_optimizer_load_state_dict(after, tt_optimizer_state_dict(before)), TT_OK);
    assert_true(option(after, 1, "lr") == 0.75 && option(after, 0, "lr") == 0.5); /* options are state */
    tt_optimizer_free(before);
    train(after, 3);
    for (int i = 0; i < 3; i++)
        assert_true(tt_equal(a[i], b[i]));
    assert_int_equal(*tt_tensor_i64(tt_named_tensors_find(tt_optimizer_state_dict(after), "state.2.step")), 5);
    tt_optimizer_free(whole);
    tt_optimizer_free(after);
}

/* Loading these entries fails and leaves everything as it was. */
static void refuse(tt_optimizer *o, int64_t n, const char *const *entries, tt_tensor *const *x, tt_status status,
                   const char *text) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *dict = tt_optimizer_state_dict(o);
    int64_t count = dict->count;
    tt_tensor *kept[64];
    for (int64_t i = 0; i < count; i++)
        kept[i] = tt_clone(dict->tensors[i]);
    assert_int_equal(tt_optimizer_load_state_dict(o, TT_NAMED_TENSORS(n, entries, x)), status);
    expect_error(status, text);
    dict = tt_optimizer_state_dict(o);
    assert_int_equal(dict->count, count);
    for (int64_t i = 0; i < count; i++)
        assert_true(tt_equal(kept[i], dict->tensors[i]));
}

static void wrong_states_of_groups_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {leaf(3, TT_F32), leaf(4, TT_F64), leaf(5, TT_F32)};
    tt_optimizer *adam = two_groups(x);
    train(adam, 2);
    tt_tensor *half = tt_full(TT_SCALAR, TT_F64, 0.5), *two = tt_full(TT_SHAPE(2), TT_F64, 2);
    tt_tensor *numbers = tt_from_data(((int64_t[]){0, 2}), TT_SHAPE(2), TT_I64), *three = tt_full(TT_SCALAR, TT_F32, 3);
    tt_tensor *avg = tt_ones(TT_SHAPE(3), TT_F32), *less = tt_full(TT_SCALAR, TT_F64, -1);
    refuse(adam, 1, (const char *[]){"param_groups.2.lr"}, &half, TT_ERR_NOT_FOUND, "\"param_groups.2.lr\"");
    refuse(adam, 1, (const char *[]){"param_groups.x"}, &half, TT_ERR_NOT_FOUND, "unexpected entry \"param_groups.x\"");
    refuse(adam, 1, (const char *[]){"param_groups.0.momentum"}, &half, TT_ERR_NOT_FOUND, "no option \"momentum\"");
    refuse(adam, 1, (const char *[]){"param_groups.0.lr"}, &two, TT_ERR_SHAPE, "expected one number, got f64 (2)");
    refuse(adam, 1, (const char *[]){"param_groups.0.lr"}, &less, TT_ERR_INVALID, "lr of at least 0, got -1");
    refuse(adam, 1, (const char *[]){"param_groups.0.params"}, &numbers, TT_ERR_INVALID, "expected the numbers 0 to 1");
    refuse(adam, 1, (const char *[]){"state.3.step"}, &three, TT_ERR_NOT_FOUND, "2 groups and 3 parameters");
    refuse(adam, 1, (const char *[]){"state.0.step"}, &half, TT_ERR_INVALID, "expected a number of steps, got 0.5");
    refuse(adam, 1, (const char *[]){"state.0.step"}, &three, TT_ERR_NOT_FOUND, "is missing");
    refuse(adam, 1, (const char *[]){"state.0.exp_avg"}, &avg, TT_ERR_NOT_FOUND, "is missing");
    refuse(adam, 3, (const char *[]){"state.0.exp_avg", "state.0.exp_avg_sq", "state.0.max_exp_avg_sq"},
           (tt_tensor *[]){avg, avg, avg}, TT_ERR_NOT_FOUND, "\"state.0.step\" is missing");
    refuse(adam, 1, (const char *[]){"other"}, &avg, TT_ERR_NOT_FOUND, "unexpected entry \"other\"");
    /* PyTorch's steps are f32, and a file of an older version has no options. */
    const char *const entries[] = {"state.0.step", "state.0.exp_avg", "state.0.exp_avg_sq", "state.0.max_exp_avg_sq"};
    tt_tensor *torchs[] = {three, avg, avg, avg};
    assert_int_equal(tt_optimizer_load_state_dict(adam, TT_NAMED_TENSORS(4, entries, torchs)), TT_OK);
    assert_int_equal(*tt_tensor_i64(tt_named_tensors_find(tt_optimizer_state_dict(adam), "state.0.step")), 3);
    assert_null(tt_named_tensors_find(tt_optimizer_state_dict(adam), "state.1.step"));
    assert_true(option(adam, 1, "lr") == 0.25);
    tt_optimizer_free(adam);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_have_options_of_their_own),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(zero_is_a_default_that_can_be_set),
        cmocka_unit_test(constructors_set_every_option),
        cmocka_unit_test(state_lies_flat),
        cmocka_unit_test(parameters_that_changed_their_type_are_refused),
        cmocka_unit_test(a_step_ends_older_records),
        cmocka_unit_test(a_model_trains_where_it_lies),
        cmocka_unit_test(groups_go_on_where_they_were),
        cmocka_unit_test(wrong_states_of_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
