/* What passes between the modules of a Sequential: freed early, unless the user's code has seen it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <tutti/nn.h>

#include "tensor/core/pool.h"

static tt_tensor *number(float value) { return tt_full(TT_SHAPE(1), TT_F32, value); }

static double value_of(tt_tensor *x) {
    double value = -1;
    assert_int_equal(tt_item(x, &value), TT_OK);
    return value;
}

static tt_status keep_result(tt_module *module, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                             int64_t out_count, void *user) {
    assert_true(module && in_count == 1 && out_count == 1);
    ((tt_tensor **)user)[0] = in[0];
    ((tt_tensor **)user)[1] = out[0];
    return TT_OK;
}

/* A hook may read, as long as the scope lasts, what it saw in the middle of a Sequential. */
static void what_a_hook_saw_lives_as_long_as_its_scope(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *seen[2] = {NULL};
    tt_module *middle = tt_nn_relu(), *model = tt_nn_sequential(tt_nn_identity(), tt_nn_relu(), middle, tt_nn_relu());
    assert_int_equal(tt_module_register_forward_hook(NULL, middle, keep_result, seen), TT_OK);
    assert_true(value_of(tt_module_forward(model, number(3))) == 3);
    assert_true(value_of(tt_scale(seen[0], 1)) == 3 && value_of(tt_scale(seen[1], 1)) == 3);
    tt_module_free(model);
}

static tt_tensor *forward_and_keep(tt_module *self, tt_tensor *x) {
    tt_tensor **kept = tt_module_user(self);
    kept[0] = x;
    return kept[1] = tt_scale(x, 2);
}

/* So may a class of the user's. */
static void what_a_users_class_saw_lives_as_long_as_its_scope(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Keeps", .forward = forward_and_keep);
    tt_tensor *kept[2] = {NULL};
    tt_module *model = tt_nn_sequential(tt_nn_relu(), tt_module_new(&cls, kept), tt_nn_relu());
    assert_true(value_of(tt_module_forward(model, number(3))) == 6);
    assert_true(value_of(tt_scale(kept[0], 1)) == 3 && value_of(tt_scale(kept[1], 1)) == 6);
    tt_module_free(model);
}

/* Nothing else holds what passed between two of the library's modules: its memory is used again. */
static void a_sequential_frees_what_went_from_child_to_child(void **state) {
    (void)state;
    enum { DEPTH = 64, NUMBERS = 1 << 18 };
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *x = tt_ones(TT_SHAPE(NUMBERS), TT_F32);
    tt_module *model = tt_nn_sequential(tt_nn_relu());
    for (int i = 1; i < DEPTH; i++) {
        char name[24];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(tt_module_add_module(model, name, tt_nn_relu()), TT_OK);
    }
    size_t before = tt__pool_most();
    assert_non_null(tt_module_forward(model, x));
    assert_in_range(tt__pool_most() - before, 1, 4 * NUMBERS * sizeof(float));
    tt_module_free(model);
}

/* Nor, where the first module takes several inputs, and no scope would free it: 40 forwards need no more than two. */
static void so_does_one_that_begins_with_several_inputs(void **state) {
    (void)state;
    enum { BATCH = 4096, HIDDEN = 64, FORWARDS = 40 };
    TT_NO_GRAD;
    tt_tensor *x = tt_ones(TT_SHAPE(BATCH, 1), TT_F32), *h = tt_ones(TT_SHAPE(BATCH, HIDDEN), TT_F32);
    tt_module *model = tt_nn_sequential(tt_nn_rnn_cell(1, HIDDEN), tt_nn_relu(), tt_nn_relu(), tt_nn_relu());
    size_t before = 0;
    for (int i = 0; i < FORWARDS; i++) {
        tt_tensor *y = NULL;
        assert_int_equal(tt_module_forward_many(model, TT_TENSORS(x, h), &y, 1), TT_OK);
        tt_tensor_free(y);
        before = i == 1 ? tt__pool_most() : before;
    }
    assert_int_equal(tt__pool_most(), before);
    tt_module_free(model);
    tt_tensor_free(x);
    tt_tensor_free(h);
}

/* The inputs and what a hook saw are not a Sequential's to free. */
static void a_sequential_leaves_its_inputs_and_what_was_shown(void **state) {
    (void)state;
    TT_NO_GRAD;
    tt_tensor *seen[2] = {NULL}, *x = number(3), *y = NULL, *same = NULL;
    tt_module *middle = tt_nn_relu(), *model = tt_nn_sequential(tt_nn_identity(), tt_nn_relu(), middle, tt_nn_relu());
    tt_module *nothing = tt_nn_sequential(tt_nn_identity(), tt_nn_identity());
    assert_int_equal(tt_module_register_forward_hook(NULL, middle, keep_result, seen), TT_OK);
    assert_int_equal(tt_module_forward_many(model, TT_TENSORS(x), &y, 1), TT_OK);
    assert_int_equal(tt_module_forward_many(nothing, TT_TENSORS(x), &same, 1), TT_OK);
    assert_ptr_equal(same, x);
    assert_true(value_of(x) == 3 && value_of(seen[0]) == 3 && value_of(seen[1]) == 3 && value_of(y) == 3);
    tt_tensor_free(seen[0]);
    tt_tensor_free(seen[1]);
    tt_tensor_free(y);
    tt_tensor_free(x);
    tt_module_free(nothing);
    tt_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_hook_saw_lives_as_long_as_its_scope),
        cmocka_unit_test(what_a_users_class_saw_lives_as_long_as_its_scope),
        cmocka_unit_test(a_sequential_frees_what_went_from_child_to_child),
        cmocka_unit_test(so_does_one_that_begins_with_several_inputs),
        cmocka_unit_test(a_sequential_leaves_its_inputs_and_what_was_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
