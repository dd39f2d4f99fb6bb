/* Operators that change their input: the gradients of those that don't, what backward refuses, what may not be
 * changed. */
#include "op_checks.h"

#include "unit/expect.h"

#include <tutti/init.h>
#include <tutti/optim.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

/* ---- gradients: of a result that is changed, and of what it is changed by */

static tt_tensor *fresh(tt_tensor *x) { return tt_scale(x, 2); }
static tt_tensor *apart(tt_tensor *x) { return tt_add_scalar(x, 1.5); }

static tt_tensor *f_add(tt_tensor *const *in) { return tt_add_(fresh(in[0]), in[1]); }
static tt_tensor *f_sub(tt_tensor *const *in) { return tt_sub_(fresh(in[0]), in[1]); }
static tt_tensor *f_mul(tt_tensor *const *in) { return tt_mul_(fresh(in[0]), in[1]); }
static tt_tensor *f_div(tt_tensor *const *in) { return tt_div_(fresh(in[0]), apart(in[1])); }
static tt_tensor *f_scale(tt_tensor *const *in) { return tt_scale_(fresh(in[0]), -0.7); }
static tt_tensor *f_relu(tt_tensor *const *in) { return tt_relu_(fresh(in[0])); }
static tt_tensor *f_fill(tt_tensor *const *in) { return tt_add_(tt_fill_(fresh(in[0]), 3), in[0]); }
static tt_tensor *f_zero(tt_tensor *const *in) { return tt_add_(tt_zero_(fresh(in[0])), in[0]); }
static tt_tensor *f_chain(tt_tensor *const *in) {
    return tt_relu_(tt_add_(tt_mul_(tt_scale_(fresh(in[0]), 0.5), in[1]), in[0]));
}
/* What was computed before goes back to the history that x had then. */
static tt_tensor *f_before(tt_tensor *const *in) {
    tt_tensor *x = fresh(in[0]), *earlier = tt_scale(x, 3);
    return tt_add(tt_mul_(x, in[1]), earlier);
}
static tt_tensor *f_with_itself(tt_tensor *const *in) {
    tt_tensor *x = fresh(in[0]);
    return tt_mul_(tt_add_(x, x), x);
}
/* x had no history. */
static tt_tensor *f_into_constant(tt_tensor *const *in) {
    tt_tensor *x = tt_zero_(tt_empty_like(in[0]));
    return tt_mul_(tt_add_(x, in[0]), in[0]);
}

static const gradcheck_case cases[] = {
    {"add_", f_add, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"add_ broadcast", f_add, 2, {{2, {5, 7}}, {1, {7}}}},
    {"sub_ broadcast", f_sub, 2, {{2, {5, 7}}, {2, {5, 1}}}},
    {"mul_", f_mul, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"mul_ broadcast", f_mul, 2, {{2, {5, 7}}, {2, {5, 1}}}},
    {"div_", f_div, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"div_ by a scalar", f_div, 2, {{2, {5, 7}}, {0, {0}}}},
    {"scale_", f_scale, 1, {{2, {5, 7}}}},
    {"relu_", f_relu, 1, {{2, {5, 7}}}},
    {"fill_", f_fill, 1, {{2, {5, 7}}}},
    {"zero_", f_zero, 1, {{2, {5, 7}}}},
    {"a chain", f_chain, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"what was computed before", f_before, 2, {{2, {5, 7}}, {2, {5, 7}}}},
    {"with itself", f_with_itself, 1, {{2, {5, 7}}}},
    {"into a constant", f_into_constant, 1, {{2, {5, 7}}}},
    {"an image", f_mul, 2, {{4, {2, 3, 4, 5}}, {4, {1, 3, 1, 1}}}},
};

static void in_place_gradients(void **state) {
    (void)state;
    op_check(&(op_family){.cases = cases, .count = OP_COUNT(cases)});
}

/* ---- values */

static tt_tensor *f32(tt_shape shape, const float *v) { return tt_from_data(v, shape, TT_F32); }

static void x_itself_changes(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = f32(S(2, 2), (float[]){1, -2, 3, -4}), *b = f32(S(2), (float[]){10, 20});
    assert_true(tt_add_(x, b) == x && tt_equal(x, f32(S(2, 2), (float[]){11, 18, 13, 16})));
    assert_true(tt_sub_(x, b) == x && tt_mul_(x, b) == x && tt_div_(x, b) == x && tt_scale_(x, 2) == x);
    assert_true(tt_equal(x, f32(S(2, 2), (float[]){2, -4, 6, -8})));
    assert_true(tt_equal(tt_relu_(x), f32(S(2, 2), (float[]){2, 0, 6, 0})));
    assert_true(tt_equal(tt_fill_(x, 7), tt_full(S(2, 2), TT_F32, 7)));
    assert_true(tt_equal(tt_zero_(tt_arange(3)), tt_zeros(S(3), TT_I64)));
    tt_tensor *column = tt_narrow(x, 1, 0, 1); /* views change what they show, where nothing is recorded */
    assert_non_null(tt_add_(column, tt_ones(TT_SCALAR, TT_F32)));
    assert_true(tt_equal(x, f32(S(2, 2), (float[]){8, 7, 8, 7})));
    assert_non_null(tt_add_(x, tt_transpose(x, 0, 1))); /* overlaps, in another layout */
    assert_true(tt_equal(x, f32(S(2, 2), (float[]){16, 15, 15, 14})));
    assert_false(tt_requires_grad(x));
}

/* ---- what backward needs */

static void overwritten_values_are_seen(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(tt_ones(S(3), TT_F32), true), *y = tt_exp(w), *loss = tt_sum(y);
    assert_non_null(tt_scale_(y, 2)); /* exp saved its result */
    assert_int_equal(tt_backward(loss), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "tt_exp"));
    tt_tensor *x = fresh(w), *z = tt_relu_(x);
    assert_non_null(tt_add_(z, w)); /* and so did relu_ */
    assert_int_equal(tt_backward(tt_sum(z)), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "tt_relu_"));
    tt_clear_error();
}

static void leaves_change_under_no_grad_only(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(tt_ones(S(3), TT_F32), true), *two = tt_full(S(3), TT_F32, 2);
    op_expect(tt_add_(w, two), TT_ERR_STATE, "tt_add_", "is a leaf that requires a gradient");
    op_expect(tt_zero_(w), TT_ERR_STATE, "tt_zero_", "is a leaf that requires a gradient");
    {
        TT_NO_GRAD;
        assert_true(tt_add_(w, two) == w && tt_mul_(w, w) == w);
    }
    assert_true(tt_requires_grad(w) && tt_equal(tt_detach(w), tt_full(S(3), TT_F32, 9)));
    assert_int_equal(tt_backward(tt_sum(w)), TT_OK);
    assert_true(tt_equal(tt_grad(w), tt_ones(S(3), TT_F32)));
}

static void views_are_refused_where_it_is_recorded(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(tt_ones(S(2, 3), TT_F32), true), *x = fresh(w), *view = tt_view(x, S(6));
    op_expect(tt_relu_(view), TT_ERR_STATE, "tt_relu_", "shares its storage with views");
    op_expect(tt_mul_(x, w), TT_ERR_STATE, "tt_mul_", "shares its storage with views");
    assert_non_null(tt_relu_(tt_clone(view)));
    assert_int_equal(tt_backward(tt_sum(x)), TT_OK); /* as if nothing had been tried */
    tt_tensor *wide = tt_transpose(tt_zeros(S(2, 3), TT_F32), 0, 1);
    op_expect(tt_add_(wide, w), TT_ERR_SHAPE, "tt_add_",
              "expected b that broadcasts to x f32 (3, 2), got b f32 (2, 3)");
}

/* A tensor that repeats elements in memory is written to by nobody: what is written to one place would be lost. */
static void repeated_elements_are_not_written(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const char what[] = "f32 (3, 4) repeats elements in memory; tt_clone() it first";
    tt_tensor *row = tt_zeros(S(4), TT_F32), *x = tt_expand(row, S(3, 4)), *y = tt_rand(S(3, 4), NULL);
    tt_optimizer *o = NULL;
    op_expect(tt_add_(x, y), TT_ERR_INVALID, "tt_add_", what);
    op_expect(tt_fill_(x, 1), TT_ERR_INVALID, "tt_fill_", what);
    const tt_status found[] = {tt_copy(x, y),
                               tt_uniform_(x, 0, 1, NULL),
                               tt_normal_(x, 0, 1, NULL),
                               tt_init_constant_(x, 1),
                               tt_init_ones_(x),
                               tt_init_eye_(x),
                               tt_init_orthogonal_(x),
                               tt_init_uniform_(x, 0, 1),
                               tt_init_trunc_normal_(x, 0, 1),
                               tt_init_xavier_normal_(x),
                               tt_init_kaiming_uniform_(x)};
    for (int i = 0; i < OP_COUNT(found); i++)
        assert_int_equal(found[i], TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, what);
    tt_tensor *leaf = tt_requires_grad_(tt_detach(x), true);
    const tt_named_tensors all = {
        .size = sizeof all, .count = 1, .names = (const char *[]){"w"}, .tensors = (tt_tensor *[]){leaf}};
    assert_null(o = tt_sgd(&all, 0.1));
    expect_error(TT_ERR_INVALID, what);
    tt_tensor *mean = tt_expand(tt_zeros(S(1), TT_F32), S(4)), *var = tt_ones(S(4), TT_F32);
    op_expect(tt_batch_norm(y, .running_mean = mean, .running_var = var, .training = true), TT_ERR_INVALID,
              "tt_batch_norm", "f32 (4) repeats elements");
    assert_non_null(tt_batch_norm(y, .running_mean = mean, .running_var = var));
    assert_true(tt_equal(row, tt_zeros(S(4), TT_F32)));
}

static void wrong_arguments(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 3), TT_F32), *i = tt_zeros(S(2, 3), TT_I64), *v = tt_zeros(S(3), TT_F32);
    op_expect(tt_add_(v, a), TT_ERR_SHAPE, "tt_add_", "b f32 (2, 3)");
    op_expect(tt_div_(a, i), TT_ERR_DTYPE, "tt_div_", "b i64");
    op_expect(tt_relu_(i), TT_ERR_DTYPE, "tt_relu_", "x i64");
    op_expect(tt_fill_(i, 0.5), TT_ERR_INVALID, "tt_fill_", "0.5 does not fit i64");
    op_expect(tt_mul_(a, tt_to_device(a, tt_device_get("reference"))), TT_ERR_INVALID, "tt_mul_", "reference");
    tt_tensor *const none[] = {tt_add_(NULL, a),   tt_sub_(a, NULL), tt_mul_(NULL, a),  tt_div_(a, NULL),
                               tt_scale_(NULL, 2), tt_relu_(NULL),   tt_fill_(NULL, 1), tt_zero_(NULL)};
    for (size_t k = 0; k < OP_COUNT(none); k++)
        assert_null(none[k]);
    assert_int_equal(tt_last_status(), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place_gradients),
        cmocka_unit_test(x_itself_changes),
        cmocka_unit_test(overwritten_values_are_seen),
        cmocka_unit_test(leaves_change_under_no_grad_only),
        cmocka_unit_test(views_are_refused_where_it_is_recorded),
        cmocka_unit_test(repeated_elements_are_not_written),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
