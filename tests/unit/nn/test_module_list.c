/* ModuleList and ModuleDict: names as PyTorch's, ownership, what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/nn.h>

/* As torch.nn.ModuleDict({"blocks": ModuleList([Linear(2, 3), ReLU(), Linear(3, 2)]), "head": Linear(2, 1)}). */
static tt_module *nested(void) {
    return tt_nn_module_dict({"blocks", tt_nn_module_list(tt_nn_linear(2, 3), tt_nn_relu(), tt_nn_linear(3, 2))},
                             {"head", tt_nn_linear(2, 1)});
}

static void names_are_numbers_and_keys(void **state) {
    (void)state;
    static const char *const names[] = {"blocks.0.weight", "blocks.0.bias", "blocks.2.weight",
                                        "blocks.2.bias",   "head.weight",   "head.bias"};
    tt_module *m = nested();
    const tt_named_tensors *list = tt_module_state_dict(m);
    assert_int_equal(list->count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(list->names[i], names[i]);
    assert_string_equal(tt_module_class_name(m), "ModuleDict");
    assert_string_equal(tt_module_class_name(tt_module_child(m, "blocks")), "ModuleList");
    tt_module_free(m);
}

static void a_list_grows(void **state) {
    (void)state;
    tt_module *list = tt_nn_module_list();
    assert_int_equal(tt_module_child_count(list), 0);
    for (int i = 0; i < 12; i++)
        assert_int_equal(tt_module_list_append(list, tt_nn_linear(2, 2, .no_bias = true)), TT_OK);
    assert_string_equal(tt_module_child_name(list, 11), "11");
    assert_string_equal(tt_module_parameters(list)->names[11], "11.weight");
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(1, 2), TT_F32);
    assert_non_null(tt_module_forward(tt_module_child_at(list, 3), x));
    tt_module_eval(list);
    assert_false(tt_module_training(tt_module_child_at(list, 7)));
    tt_module_free(list);
    tt_module *dict = tt_nn_module_dict();
    assert_int_equal(tt_module_add_module(dict, "a", tt_nn_relu()), TT_OK);
    assert_int_equal(tt_module_child_count(dict), 1);
    tt_module_free(dict);
}

static void they_have_no_forward(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = nested();
    tt_tensor *x = tt_ones(TT_SHAPE(1, 2), TT_F32), *out[2];
    assert_null(tt_module_forward(m, x));
    expect_error(TT_ERR_UNSUPPORTED, "forward: a ModuleDict has none; run its children");
    assert_int_equal(tt_module_forward_many(tt_module_child(m, "blocks"), TT_TENSORS(x, x), out, 2),
                     TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "forward: a ModuleList has none");
    tt_module_free(m);
}

static void what_does_not_fit_is_refused_and_freed(void **state) {
    (void)state;
    tt_module *list = tt_nn_module_list(tt_nn_relu()), *relu = tt_nn_relu();
    assert_int_equal(tt_module_list_append(list, NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_module_list_append(list, list), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "cannot be inside itself");
    assert_int_equal(tt_module_list_append(relu, tt_nn_linear(2, 2)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_module_list_append: expected a ModuleList, got a ReLU");
    assert_int_equal(tt_module_list_append(NULL, tt_nn_linear(2, 2)), TT_ERR_INVALID);
    tt_clear_error();
    assert_null(tt_nn_module_list(tt_nn_linear(2, 2), tt_nn_linear(0, 2)));
    expect_error(TT_ERR_INVALID, "tt_nn_linear: expected sizes of at least 1");
    assert_null(tt_nn_module_dict({"a", tt_nn_linear(2, 2)}, {"a", tt_nn_linear(2, 2)}));
    expect_error(TT_ERR_INVALID, "has a \"a\" already");
    assert_null(tt_nn_module_list_with(&(tt_nn_sequential_args){.count = 1, .named = &(tt_named_child){"a", relu}},
                                       sizeof(tt_nn_sequential_args)));
    expect_error(TT_ERR_INVALID, "tt_nn_module_list: expected `children`, whose names are numbers, got `named`");
    assert_null(
        tt_nn_module_dict_with(&(tt_nn_sequential_args){.count = 1, .children = &relu}, sizeof(tt_nn_sequential_args)));
    expect_error(TT_ERR_INVALID, "tt_nn_module_dict: expected `named`");
    tt_module_free(relu);
    tt_module_free(list);
}

static tt_status make_and_free(void *arg) {
    (void)arg;
    tt_module *m = nested();
    tt_status status =
        m ? tt_module_list_append(tt_module_child(m, "blocks"), tt_nn_embedding(3, 2)) : tt_last_status();
    tt_module_free(m);
    return status;
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_true(alloc_fail_each(make_and_free, NULL, ALLOC_ENDS) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_numbers_and_keys), cmocka_unit_test(a_list_grows),
        cmocka_unit_test(they_have_no_forward),       cmocka_unit_test(what_does_not_fit_is_refused_and_freed),
        cmocka_unit_test(out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
