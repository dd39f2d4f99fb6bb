/* checkpoint: trees of values, made, looked into and named. */
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <stdio.h>
#include <string.h>
#include <tutti/checkpoint.h>

#include "base/error.h"

/* The call fails so. */
#define EXPECT_ERROR(call, status, what) \
    do {                                 \
        assert_int_equal(call, status);  \
        expect_error(status, what);      \
    } while (0)

/* {"model": {"conv": {"weight": x}}, "state": {0: (x, None)}, "lr": 0.5} */
static tt_value *make_tree(tt_tensor *x) {
    tt_value *root = tt_value_dict(), *model = tt_value_dict(), *conv = tt_value_dict(), *state = tt_value_dict(),
             *pair = tt_value_tuple();
    if (tt_value_set(conv, "weight", tt_value_of_tensor(x)) || tt_value_set(model, "conv", conv) ||
        tt_value_append(pair, tt_value_of_tensor(x)) || tt_value_append(pair, tt_value_of_none()) ||
        tt_value_set_at(state, 0, pair) || tt_value_set(root, "model", model) || tt_value_set(root, "state", state) ||
        tt_value_set(root, "lr", tt_value_of_float(0.5)))
        fail_msg("%s", tt_last_error());
    return root;
}

static void a_tree_is_what_was_put_in(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_tensor *x = tt_ones(TT_SHAPE(2, 3), TT_F32);
    tt_value *root = make_tree(x);
    tt_scope_end(scope); /* the tree counts its tensors */
    double lr = 0;
    int64_t key = -1;
    assert_int_equal(tt_value_typeof(root), TT_VALUE_DICT);
    assert_int_equal(tt_value_count(root), 3);
    assert_string_equal(tt_value_string(tt_value_key(root, 1)), "state");
    assert_int_equal(tt_value_get_float(&lr, tt_value_find(root, "lr")), TT_OK);
    assert_true(lr == 0.5);
    const tt_value *states = tt_value_find(root, "state"), *pair = tt_value_find_at(states, 0);
    assert_int_equal(tt_value_get_int(&key, tt_value_key(states, 0)), TT_OK);
    assert_int_equal(key, 0);
    assert_int_equal(tt_value_typeof(pair), TT_VALUE_TUPLE);
    assert_int_equal(tt_value_typeof(tt_value_at(pair, 1)), TT_VALUE_NONE);
    assert_int_equal(tt_tensor_size(tt_value_tensor(tt_value_at(pair, 0)), 1), 3);
    tt_clear_error();
    assert_null(tt_value_find(root, "nothing"));
    assert_null(tt_value_find_at(root, 0));
    assert_null(tt_value_find(pair, "lr"));
    assert_int_equal(tt_last_status(), TT_OK);
    tt_value_free(root);
}

static void tensors_have_dotted_names(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_value *root = make_tree(tt_ones(TT_SHAPE(2), TT_F32));
    const tt_named_tensors *all = tt_value_tensors(root), *model = tt_value_tensors(tt_value_find(root, "model"));
    assert_int_equal(all->count, 2);
    assert_string_equal(all->names[0], "model.conv.weight");
    assert_string_equal(all->names[1], "state.0.0");
    assert_int_equal(model->count, 1);
    assert_string_equal(model->names[0], "conv.weight");
    assert_ptr_equal(tt_value_tensors(root), all);
    tt_value_free(root);
    assert_null(tt_value_tensors(NULL));

    tt_value *twice = tt_value_dict(), *inner = tt_value_dict();
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    assert_int_equal(tt_value_set(inner, "b", tt_value_of_tensor(x)), TT_OK);
    assert_int_equal(tt_value_set(twice, "a", inner), TT_OK);
    assert_int_equal(tt_value_set(twice, "a.b", tt_value_of_tensor(x)), TT_OK);
    assert_null(tt_value_tensors(twice));
    assert_non_null(strstr(tt_last_error(), "the dotted name \"a.b\""));
    tt_value_free(twice);
    tt_scope_end(scope);
}

/* Every call takes its item over, also when it fails: the sanitizer counts. */
static void mistakes_are_told(void **state) {
    (void)state;
    tt_value *list = tt_value_list(), *dict = tt_value_dict(), *number = tt_value_of_int(3);
    EXPECT_ERROR(tt_value_append(dict, tt_value_of_int(1)), TT_ERR_INVALID, "expected a list or a tuple, got a dict");
    EXPECT_ERROR(tt_value_set(list, "a", tt_value_of_int(1)), TT_ERR_INVALID, "expected a dict, got a list of 0");
    EXPECT_ERROR(tt_value_set(number, "a", tt_value_of_int(1)), TT_ERR_INVALID, "expected a dict, got the int 3");
    EXPECT_ERROR(tt_value_append(list, list), TT_ERR_STATE, "part of another value already");
    assert_int_equal(tt_value_set(dict, "a", tt_value_of_int(1)), TT_OK);
    EXPECT_ERROR(tt_value_set(dict, "a", tt_value_of_int(1)), TT_ERR_INVALID, "has \"a\" as a key already");
    EXPECT_ERROR(tt_value_set(dict, "\xff", tt_value_of_int(1)), TT_ERR_INVALID, "expected UTF-8");
    assert_int_equal(tt_value_append(list, dict), TT_OK);
    EXPECT_ERROR(tt_value_append(list, dict), TT_ERR_STATE, "part of another value already");
    EXPECT_ERROR(tt_value_set(dict, "b", tt_value_of_int(1)), TT_ERR_STATE, "fill a container before");
    tt_value_free(dict);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    tt_clear_error();
    EXPECT_ERROR(tt_value_append(list, NULL), TT_ERR_INVALID, "the value is NULL");
    bool b;
    tt_dtype dtype;
    int64_t i;
    double d;
    EXPECT_ERROR(tt_value_get_bool(&b, number), TT_ERR_INVALID, "expected a bool, got the int 3");
    EXPECT_ERROR(tt_value_get_dtype(&dtype, number), TT_ERR_INVALID, "expected a dtype");
    EXPECT_ERROR(tt_value_get_int(&i, list), TT_ERR_INVALID, "expected an int, got a list of 1");
    EXPECT_ERROR(tt_value_get_float(&d, list), TT_ERR_INVALID, "expected a number");
    assert_null(tt_value_string(number));
    assert_null(tt_value_tensor(number));
    assert_null(tt_value_at(list, 1));
    assert_int_equal(tt_last_status(), TT_ERR_NOT_FOUND);
    assert_null(tt_value_key(list, 0));
    assert_null(tt_value_of_dtype((tt_dtype)99));
    tt_value_free(list);
    tt_value_free(number);
    tt_value_free(NULL);
}

static void depth_is_limited(void **state) {
    (void)state;
    tt_value *v = tt_value_list();
    tt_status status = TT_OK;
    int depth = 0;
    while (!status && depth < 200) {
        tt_value *outer = tt_value_list();
        status = tt_value_append(outer, v);
        v = outer;
        depth += !status;
    }
    assert_int_equal(status, TT_ERR_INVALID);
    assert_int_equal(depth, 99);
    tt_value_free(v);
}

static tt_status build_and_name(void *unused) {
    (void)unused;
    TT_AUTO_SCOPE;
    tt_value *root = tt_value_dict(), *inner = tt_value_list();
    tt_status status = tt_value_append(inner, tt_value_of_tensor(tt_ones(TT_SHAPE(3), TT_F32)));
    if (!status)
        status = tt_value_append(inner, tt_value_of_string("text"));
    if (status)
        tt_value_free(inner);
    else
        status = tt_value_set(root, "inner", inner);
    if (!status && !tt_value_tensors(root))
        status = tt_last_status();
    tt_value_free(root);
    return status;
}

static void memory_that_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(build_and_name, NULL, ALLOC_ENDS) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_what_was_put_in), cmocka_unit_test(tensors_have_dotted_names),
        cmocka_unit_test(mistakes_are_told),         cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
