/* What passes between the modules of a Sequential: freed early, unless the user's code has seen it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <tutti/nn.h>

#include "tensor/pool.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_hook_saw_lives_as_long_as_its_scope),
        cmocka_unit_test(what_a_users_class_saw_lives_as_long_as_its_scope),
        cmocka_unit_test(a_sequential_frees_what_went_from_child_to_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
