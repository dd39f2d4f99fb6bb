/* Averages of parameters: PyTorch's bits, evaluation in between, state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "unit/autograd/gradcheck.h"
#include "unit/expect.h"
#include "unit/vectors.h"

enum { N = 19, UPDATES = 20 };
static const char *const names[] = {"a", "b"};

static void update(tt_ema *ema, tt_tensor *x, int from, int to) {
    for (int n = from; n < to; n++) {
        assert_int_equal(tt_copy(x, gradcheck_row(N, n, tt_tensor_dtype(x))), TT_OK);
        assert_int_equal(tt_ema_update(ema), TT_OK);
    }
}

static void check_case(const json_t *c) {
    TT_AUTO_SCOPE;
    const tt_dtype dtype = strcmp(json_string_value(json_object_get(c, "dtype")), "f32") ? TT_F64 : TT_F32;
    tt_tensor *x = gradcheck_row(N, 0, dtype);
    tt_ema *ema[2]; /* the second one goes on where the first one was */
    for (int i = 0; i < 2; i++)
        ema[i] = tt_ema_new(TT_NAMED_TENSORS(1, names, &x), vectors_member(c, "decay"),
                            .warm_up = json_is_true(json_object_get(c, "warm_up")));
    update(ema[0], x, 0, 7);
    assert_int_equal(tt_ema_load_state_dict(ema[1], tt_ema_state_dict(ema[0])), TT_OK);
    assert_int_equal(tt_ema_load_state_dict(ema[1], tt_ema_state_dict(ema[1])), TT_OK); /* its own */
    update(ema[1], x, 7, UPDATES);
    const tt_named_tensors *dict = tt_ema_state_dict(ema[1]);
    assert_int_equal(*tt_tensor_i64(tt_named_tensors_find(dict, "n_averaged")), UPDATES);
    const void *got = tt_tensor_data(tt_named_tensors_find(dict, "module.a"));
    for (size_t i = 0; i < N; i++) {
        double want = vectors_number(json_object_get(c, "module.a"), i);
        assert_true(dtype == TT_F32 ? ((const float *)got)[i] == (float)want : ((const double *)got)[i] == want);
    }
    for (int i = 0; i < 2; i++)
        tt_ema_free(ema[i]);
}

static void averages_are_pytorchs_to_the_bit(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-optim.json");
    assert_non_null(vectors);
    const json_t *cases = json_object_get(vectors, "averages");
    assert_int_equal(json_array_size(cases), 8);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(vectors);
}

/* A model is evaluated with its averages, and trained on with its own values. */
static void parameters_come_back(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *base = tt_ones(TT_SHAPE(2, 3), TT_F32), *count = tt_full(TT_SCALAR, TT_I64, 3);
    tt_tensor *x[] = {tt_transpose(base, 0, 1), count}; /* in another layout than row-major; an integer */
    tt_ema *ema = tt_ema_new(TT_NAMED_TENSORS(2, names, x), 0.5);
    assert_int_equal(tt_ema_update(ema), TT_OK);
    assert_int_equal(tt_copy(base, tt_full(TT_SHAPE(2, 3), TT_F32, 3)), TT_OK);
    assert_int_equal(tt_copy(count, tt_full(TT_SCALAR, TT_I64, 8)), TT_OK);
    assert_int_equal(tt_ema_update(ema), TT_OK);
    assert_int_equal(tt_ema_restore(ema), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "tt_ema_restore: nothing is stored: call tt_ema_store() before tt_ema_copy_to()");
    for (int round = 0; round < 2; round++) {
        assert_int_equal(tt_ema_store(ema), TT_OK);
        assert_int_equal(tt_ema_copy_to(ema), TT_OK);
        assert_true(tt_equal(base, tt_full(TT_SHAPE(2, 3), TT_F32, 2)));
        assert_int_equal(*tt_tensor_i64(count), 8); /* not averaged */
        assert_int_equal(tt_ema_restore(ema), TT_OK);
        assert_true(tt_equal(base, tt_full(TT_SHAPE(2, 3), TT_F32, 3)));
    }
    tt_ema_free(ema);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = gradcheck_row(N, 0, TT_F32), *count = tt_full(TT_SCALAR, TT_I64, -1);
    const tt_named_tensors *list = TT_NAMED_TENSORS(1, names, &x);
    assert_null(tt_ema_new(list, 1.5));
    expect_error(TT_ERR_INVALID, "tt_ema_new: expected a decay between 0 and 1, got 1.5");
    assert_null(tt_ema_new(NULL, 0.5));
    expect_error(TT_ERR_INVALID, "tt_ema_new: expected a list of tensors, got NULL");
    tt_ema *ema = tt_ema_new(list, 0.5);
    const char *entries[] = {"n_averaged", "module.b"};
    tt_tensor *state_of[] = {count, x};
    assert_int_equal(tt_ema_load_state_dict(ema, TT_NAMED_TENSORS(1, entries, state_of)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected \"n_averaged\" and 1 averages, got 1 entries");
    assert_int_equal(tt_ema_load_state_dict(ema, TT_NAMED_TENSORS(2, entries, state_of)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "\"n_averaged\": expected a number of updates, got -1");
    *tt_tensor_i64(count) = 4;
    assert_int_equal(tt_ema_load_state_dict(ema, TT_NAMED_TENSORS(2, entries, state_of)), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "entry \"module.a\" is missing");
    entries[1] = "module.a";
    state_of[1] = gradcheck_row(N, 0, TT_F64);
    assert_int_equal(tt_ema_load_state_dict(ema, TT_NAMED_TENSORS(2, entries, state_of)), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "\"module.a\": expected f32 (19), got f64 (19)");
    assert_int_equal(*tt_tensor_i64(tt_ema_state_dict(ema)->tensors[0]), 0); /* nothing was changed */
    assert_int_equal(tt_ema_update(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_ema_copy_to(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_ema_load_state_dict(ema, NULL), TT_ERR_INVALID);
    assert_null(tt_ema_state_dict(NULL));
    tt_ema_free(NULL);
    tt_clear_error();
    tt_ema_free(ema);
}

static void parameters_outlive_their_module(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_linear(3, 2, .no_bias = true);
    tt_tensor *first = tt_clone(tt_detach(tt_module_parameters(m)->tensors[0]));
    tt_ema *ema = tt_ema_new(tt_module_parameters(m), 0.5);
    tt_module_free(m);
    assert_int_equal(tt_ema_update(ema), TT_OK);
    assert_int_equal(tt_ema_store(ema), TT_OK);
    assert_int_equal(tt_ema_restore(ema), TT_OK);
    const tt_named_tensors *dict = tt_ema_state_dict(ema);
    assert_true(tt_equal(dict->tensors[dict->count - 1], first));
    tt_ema_free(ema);
}

static void a_converted_model_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_linear(3, 2);
    tt_ema *ema = tt_ema_new(tt_module_parameters(m), 0.5);
    assert_int_equal(tt_module_to(m, TT_F64), TT_OK);
    assert_int_equal(tt_ema_update(ema), TT_ERR_STATE);
    expect_error(TT_ERR_STATE,
                 "\"weight\" was f32 (2, 3) on cpu when the average was made, and is f64 (2, 3) on cpu now");
    tt_ema_free(ema);
    tt_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_pytorchs_to_the_bit), cmocka_unit_test(parameters_come_back),
        cmocka_unit_test(wrong_arguments_are_refused),      cmocka_unit_test(parameters_outlive_their_module),
        cmocka_unit_test(a_converted_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
