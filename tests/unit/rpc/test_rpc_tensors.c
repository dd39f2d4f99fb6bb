/* Tensors as values: what travels of one, and what a hostile worker may say of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/values/tensor_hooks.h"
#include "unit/expect.h"

#include <tutti/rpc_training.h>

static const tt__rpc_tensor_hooks *hooks(void) {
    const tt__rpc_tensor_hooks *given = tt__rpc_tensor_hooks_of();
    assert_non_null(given);
    return given;
}

/* What arrives of x: a share of the caller's. */
static tt_tensor *travel(tt_tensor *x) {
    tt__rpc_form form;
    size_t bytes = 0;
    void *keep = NULL, *data = NULL;
    const void *elements = hooks()->describe(x, &form, &bytes, &keep);
    assert_non_null(elements);
    tt_tensor *y = hooks()->make(&form, bytes, &data);
    assert_non_null(y);
    if (bytes)
        memcpy(data, elements, bytes);
    hooks()->release(keep);
    assert_int_equal(hooks()->made(y, &form), TT_OK);
    return y;
}

static void expect_arrives(tt_tensor *x) {
    tt_tensor *y = travel(x);
    assert_true(tt_equal(x, y));
    assert_true(tt_is_contiguous(y));
    assert_int_equal(tt_requires_grad(y), tt_requires_grad(x));
    hooks()->free(y);
}

static void what_a_tensor_shows_arrives(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_reshape(tt_arange(24), TT_SHAPE(2, 3, 4));
    static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I64, TT_I32, TT_U8, TT_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        tt_tensor *typed = tt_to(x, dtypes[i]);
        expect_arrives(typed);
        expect_arrives(tt_transpose(typed, 0, 2));
        expect_arrives(tt_select(typed, 1, 2));
        expect_arrives(tt_slice(typed, 2, 1, 4, 2));
    }
    expect_arrives(tt_expand(tt_ones(TT_SHAPE(3, 1), TT_F32), TT_SHAPE(3, 5)));
    expect_arrives(tt_full(TT_SCALAR, TT_F64, 3));
    expect_arrives(tt_zeros(TT_SHAPE(0, 4), TT_F32));
    expect_arrives(tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F64), true));
}

static void a_result_arrives_as_a_leaf(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F64), true);
    tt_tensor *y = travel(tt_scale(x, 3));
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, y))), TT_OK);
    assert_float_equal(((double *)tt_tensor_data(tt_grad(y)))[1], 6, 0);
    assert_null(tt_grad(x));
    hooks()->free(y);
}

/* Its data stays as it is while it is sent, though its owner lets it go. */
static void what_is_sent_is_kept(void **state) {
    (void)state;
    tt__rpc_form form;
    size_t bytes;
    void *keep = NULL;
    tt_tensor *x = tt_full(TT_SHAPE(1000), TT_F32, 7);
    const float *elements = hooks()->describe(x, &form, &bytes, &keep);
    assert_ptr_equal(elements, tt_tensor_data(x)); /* nothing is copied that lies well */
    tt_tensor_free(x);
    assert_float_equal(elements[999], 7, 0);
    hooks()->release(keep);
}

static void received_tensors_can_be_kept(void **state) {
    (void)state;
    tt_tensor *x = tt_full(TT_SHAPE(3), TT_F32, 7), *y = travel(x);
    tt_tensor_free(y);
    expect_error(TT_ERR_STATE, "a value of a call");
    assert_ptr_equal(tt_keep(y), y);
    hooks()->free(y);
    assert_true(tt_equal(x, y));
    tt_tensor_free(y);
    tt_tensor_free(x);
}

static void taking_one_out_of_a_value(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_rpc_value value = tt_rpc_tensor(travel(tt_requires_grad_(tt_full(TT_SHAPE(3), TT_F32, 7), true)));
    value.owned = true;
    tt_tensor *x = tt_rpc_take_tensor(&value);
    assert_int_equal(value.kind, TT_RPC_NONE);
    assert_true(tt_requires_grad(x));
    assert_float_equal(tt_tensor_f32(x)[2], 7, 0);
    assert_null(tt_rpc_take_tensor(&value));
    expect_error(TT_ERR_INVALID, "expected a tensor, got none");
    assert_int_equal(tt_rpc_tensor(NULL).kind, TT_RPC_NONE);
}

static void expect_refused(tt__rpc_form form, size_t bytes, const char *what) {
    void *data = NULL;
    assert_null(hooks()->make(&form, bytes, &data));
    expect_error(TT_ERR_MISMATCH, what);
}

static void impossible_forms_are_refused(void **state) {
    (void)state;
    const tt__rpc_form good = {.dtype = TT_F32, .ndim = 2, .shape = {3, 4}};
    tt__rpc_form form = good;
    expect_refused(form, 47, "don't have the 47 bytes");
    form.dtype = 200;
    expect_refused(form, 48, "number 200");
    form = good;
    form.ndim = TT_MAX_DIMS + 1;
    expect_refused(form, 48, "at most 8 dimensions");
    form = good;
    form.shape[1] = -4;
    expect_refused(form, 48, "2 dimensions don't have");
    form.shape[0] = (int64_t)1 << 62;
    form.shape[1] = (int64_t)1 << 62;
    expect_refused(form, 0, "2 dimensions don't have");
    form.shape[0] = (int64_t)1 << 61; /* times 4 times 4 is 0 of 64 bits */
    form.shape[1] = 4;
    expect_refused(form, 0, "2 dimensions don't have");
}

/* One of integers can't require a gradient, whatever its sender says. */
static void integers_have_no_gradients(void **state) {
    (void)state;
    const tt__rpc_form form = {.dtype = TT_I64, .ndim = 1, .requires_grad = 1, .shape = {1}};
    void *data = NULL;
    tt_tensor *x = hooks()->make(&form, 8, &data);
    assert_non_null(x);
    assert_int_not_equal(hooks()->made(x, &form), TT_OK);
    tt_clear_error();
    hooks()->free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_tensor_shows_arrives), cmocka_unit_test(a_result_arrives_as_a_leaf),
        cmocka_unit_test(what_is_sent_is_kept),        cmocka_unit_test(received_tensors_can_be_kept),
        cmocka_unit_test(taking_one_out_of_a_value),   cmocka_unit_test(impossible_forms_are_refused),
        cmocka_unit_test(integers_have_no_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
