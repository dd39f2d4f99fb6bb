/* checkpoint: an optimizer's state as PyTorch's tree. tests/interop exchanges it with PyTorch. */
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <string.h>
#include <tutti/checkpoint.h>

#include "base/error.h"

typedef struct run {
    tt_module *model;
    tt_optimizer *adam;
} run;

static run run_make(uint64_t seed) {
    tt_manual_seed(seed);
    run r = {.model = tt_nn_linear(3, 2)};
    const tt_named_tensors *params = tt_module_parameters(r.model);
    r.adam = tt_adam(TT_NAMED_TENSORS(1, params->names, params->tensors), 0.1, .beta1 = 0.8, .amsgrad = true);
    assert_non_null(r.adam);
    assert_int_equal(tt_optimizer_add_param_group(r.adam, TT_NAMED_TENSORS(1, params->names + 1, params->tensors + 1),
                                                  .options = TT_OPTION_LIST({"lr", 0.5})),
                     TT_OK);
    return r;
}

static void run_free(run *r) {
    tt_optimizer_free(r->adam);
    tt_module_free(r->model);
}

static void run_step(const run *r) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(r->adam);
    tt_tensor *x = tt_full(TT_SHAPE(4, 3), TT_F32, 0.5);
    assert_int_equal(tt_backward(tt_mse_loss(tt_module_forward(r->model, x), tt_ones(TT_SHAPE(4, 2), TT_F32))), TT_OK);
    assert_int_equal(tt_optimizer_step(r->adam), TT_OK);
}

static void assert_same_weights(const run *a, const run *b) {
    const tt_named_tensors *of[] = {tt_module_parameters(a->model), tt_module_parameters(b->model)};
    for (int64_t i = 0; i < of[0]->count; i++)
        assert_true(tt_equal(of[0]->tensors[i], of[1]->tensors[i]));
}

static void a_state_goes_on_to_the_bit(void **state) {
    (void)state;
    run a = run_make(1), b = run_make(2);
    run_step(&a);
    tt_value *value = tt_value_of_optimizer(a.adam);
    assert_non_null(value);
    const tt_value *groups = tt_value_find(value, "param_groups"), *second = tt_value_at(groups, 1);
    double lr = 0;
    bool amsgrad = false;
    assert_int_equal(tt_value_count(groups), 2);
    assert_int_equal(tt_value_get_float(&lr, tt_value_find(second, "lr")), TT_OK);
    assert_int_equal(tt_value_get_bool(&amsgrad, tt_value_find(second, "amsgrad")), TT_OK);
    assert_true(lr == 0.5 && amsgrad);
    assert_int_equal(tt_value_typeof(tt_value_find(second, "betas")), TT_VALUE_TUPLE);
    assert_null(tt_value_find(second, "beta1"));
    assert_int_equal(tt_module_load_state_dict(b.model, tt_module_state_dict(a.model)), TT_OK);
    assert_int_equal(tt_optimizer_load_value(b.adam, value), TT_OK);
    tt_value_free(value);
    for (int i = 0; i < 3; i++) {
        run_step(&a);
        run_step(&b);
    }
    assert_same_weights(&a, &b);
    run_free(&a);
    run_free(&b);
}

/* {"state": state, "param_groups": groups}; takes both over */
static void refuse(tt_optimizer *adam, tt_value *state, tt_value *groups, const char *text) {
    tt_value *value = tt_value_dict();
    assert_int_equal(tt_value_set(value, "state", state), TT_OK);
    assert_int_equal(tt_value_set(value, "param_groups", groups), TT_OK);
    assert_int_not_equal(tt_optimizer_load_value(adam, value), TT_OK);
    assert_non_null(strstr(tt_last_error(), text));
    tt_value_free(value);
}

static tt_value *list_of(tt_value *item) {
    tt_value *list = tt_value_list();
    assert_int_equal(tt_value_append(list, item), TT_OK);
    return list;
}

static tt_value *dict_of(const char *key, tt_value *item) {
    tt_value *dict = tt_value_dict();
    assert_int_equal(tt_value_set(dict, key, item), TT_OK);
    return dict;
}

static void other_trees_are_refused(void **state) {
    (void)state;
    run r = run_make(1);
    assert_null(tt_value_of_optimizer(NULL));
    assert_int_equal(tt_optimizer_load_value(r.adam, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_optimizer_load_value(NULL, NULL), TT_ERR_INVALID);
    refuse(r.adam, tt_value_list(), tt_value_list(), "expected a dict in \"state\"");
    refuse(r.adam, tt_value_dict(), tt_value_of_int(3), "expected a list in \"param_groups\"");
    refuse(r.adam, tt_value_dict(), list_of(tt_value_of_int(3)), "expected a dict for each group");
    refuse(r.adam, tt_value_dict(), list_of(tt_value_dict()), "expected \"params\"");
    refuse(r.adam, dict_of("0", tt_value_dict()), tt_value_list(), "parameters by number");
    refuse(r.adam, tt_value_dict(), list_of(dict_of("lr", tt_value_of_string("high"))), "expected a number");
    refuse(r.adam, tt_value_dict(), list_of(dict_of("params", list_of(tt_value_of_int(7)))), "param_groups.0.params");
    tt_value *far = tt_value_dict();
    assert_int_equal(tt_value_set_at(far, 9, dict_of("step", tt_value_of_int(1))), TT_OK);
    refuse(r.adam, far, tt_value_list(), "state.9.step");
    run_free(&r);
}

static tt_status there_and_back(tt_optimizer *adam) {
    tt_value *value = tt_value_of_optimizer(adam);
    tt_status status = value ? tt_optimizer_load_value(adam, value) : tt_last_status();
    tt_value_free(value);
    return status;
}

static tt_status whole_program(void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_module *model = tt_nn_linear(3, 2);
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 0.1);
    tt_tensor *x = tt_full(TT_SHAPE(4, 3), TT_F32, 0.5);
    tt_status status = adam ? tt_backward(tt_sum(tt_module_forward(model, x))) : tt_last_status();
    if (!status)
        status = tt_optimizer_step(adam);
    if (!status)
        status = there_and_back(adam);
    tt_optimizer_free(adam);
    tt_module_free(model);
    return status;
}

static void memory_that_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(whole_program, NULL, ALLOC_ENDS), 50, 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_state_goes_on_to_the_bit),
                                       cmocka_unit_test(other_trees_are_refused),
                                       cmocka_unit_test(memory_that_runs_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
