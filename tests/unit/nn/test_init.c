/* Initial values: PyTorch's bits (tests/vectors/torch-init.json), any layout, what is refused. */
#include "module_vectors.h"

#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/init.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_status fill_uniform(tt_tensor *x) { return tt_init_uniform_(x, -0.3, 0.7); }
static tt_status fill_normal(tt_tensor *x) { return tt_init_normal_(x, 0.5, 2); }
static tt_status fill_trunc(tt_tensor *x) { return tt_init_trunc_normal_(x, 0, 1); }
static tt_status fill_trunc_wide(tt_tensor *x) { return tt_init_trunc_normal_(x, 0.1, 0.5, .a = -0.3, .b = 2); }
static tt_status fill_trunc_narrow(tt_tensor *x) { return tt_init_trunc_normal_(x, 0, 0.02, .a = -0.02, .b = 0.01); }
static tt_status fill_constant(tt_tensor *x) { return tt_init_constant_(x, 0.1); }
static tt_status fill_dirac(tt_tensor *x) { return tt_init_dirac_(x); }
static tt_status fill_dirac_groups(tt_tensor *x) { return tt_init_dirac_(x, .groups = 2); }
static tt_status fill_xavier(tt_tensor *x) { return tt_init_xavier_uniform_(x); }
static tt_status fill_xavier_tanh(tt_tensor *x) {
    return tt_init_xavier_uniform_(x, .gain = tt_init_calculate_gain(TT_NONLINEARITY_TANH, 0));
}
static tt_status fill_xavier_normal(tt_tensor *x) {
    return tt_init_xavier_normal_(x, .gain = tt_init_calculate_gain(TT_NONLINEARITY_SELU, 0));
}
static tt_status fill_kaiming(tt_tensor *x) { return tt_init_kaiming_uniform_(x, .a = sqrt(5)); }
static tt_status fill_kaiming_linear(tt_tensor *x) {
    return tt_init_kaiming_uniform_(x, .nonlinearity = TT_NONLINEARITY_LINEAR);
}
static tt_status fill_kaiming_normal(tt_tensor *x) {
    return tt_init_kaiming_normal_(x, .mode = TT_FAN_OUT, .nonlinearity = TT_NONLINEARITY_RELU);
}
static tt_status fill_orthogonal(tt_tensor *x) { return tt_init_orthogonal_(x); }
static tt_status fill_orthogonal_twice(tt_tensor *x) { return tt_init_orthogonal_(x, .gain = 2); }

static const struct {
    const char *call;
    tt_status (*fill)(tt_tensor *x);
} fills[] = {
    {"uniform_", fill_uniform},
    {"normal_", fill_normal},
    {"trunc_normal_", fill_trunc},
    {"trunc_normal_ 0.1 0.5 -0.3 2", fill_trunc_wide},
    {"trunc_normal_ 0 0.02 -0.02 0.01", fill_trunc_narrow},
    {"constant_", fill_constant},
    {"zeros_", tt_init_zeros_},
    {"ones_", tt_init_ones_},
    {"eye_", tt_init_eye_},
    {"dirac_", fill_dirac},
    {"dirac_ 2", fill_dirac_groups},
    {"xavier_uniform_", fill_xavier},
    {"xavier_uniform_ tanh", fill_xavier_tanh},
    {"xavier_normal_", fill_xavier_normal},
    {"kaiming_uniform_", fill_kaiming},
    {"kaiming_uniform_ linear", fill_kaiming_linear},
    {"kaiming_normal_", fill_kaiming_normal},
    {"orthogonal_", fill_orthogonal},
    {"orthogonal_ 2", fill_orthogonal_twice},
};

static tt_status fill_by_name(const char *call, tt_tensor *x) {
    for (size_t i = 0; i < COUNT(fills); i++)
        if (!strcmp(fills[i].call, call))
            return fills[i].fill(x);
    fail_msg("no function for %s", call);
    return TT_ERR_INVALID;
}

static void values_are_pytorchs(void **state) {
    (void)state;
    json_t *file = vectors_load("torch-init.json"), *cases = json_object_get(file, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        TT_AUTO_SCOPE;
        const json_t *c = json_array_get(cases, i);
        const char *call = json_string_value(json_object_get(c, "call"));
        tt_tensor *theirs = vector_stored(c);
        tt_tensor *x = tt_requires_grad_(tt_full(vector_shape(c), tt_tensor_dtype(theirs), 9), true);
        tt_manual_seed(5);
        assert_int_equal(fill_by_name(call, x), TT_OK);
        if (!strncmp(call, "orthogonal", 10))
            expect_close(call, "", x, theirs, tt_tensor_dtype(x) == TT_F64 ? 1e-13 : 1e-6);
        else if (!tt_equal(x, theirs))
            fail_msg("%s, case %zu: bits differ", call, i);
    }
    json_decref(file);
}

/* Values by shape don't depend on strides; drawn ones follow memory, as tt_uniform_()'s. */
static void any_layout_is_filled(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_transpose(tt_full(TT_SHAPE(4, 6), TT_F32, 9), 0, 1), *y = tt_zeros(TT_SHAPE(6, 4), TT_F32);
    assert_int_equal(tt_init_eye_(x), TT_OK);
    assert_int_equal(tt_init_eye_(y), TT_OK);
    assert_true(tt_equal(x, y));
    tt_manual_seed(1);
    assert_int_equal(tt_init_orthogonal_(x), TT_OK);
    tt_manual_seed(1);
    assert_int_equal(tt_init_orthogonal_(y), TT_OK);
    assert_true(tt_equal(x, y));
    tt_tensor *whole = tt_full(TT_SHAPE(5, 9), TT_F64, 9), *part = tt_narrow(whole, 1, 2, 4);
    assert_int_equal(tt_init_trunc_normal_(part, 0, 1), TT_OK);
    double largest, edge;
    assert_int_equal(tt_item(tt_max(tt_abs(part)), &largest), TT_OK);
    assert_int_equal(tt_item(tt_min(tt_narrow(whole, 1, 6, 3)), &edge), TT_OK);
    assert_true(largest <= 2 && edge == 9);
    tt_tensor *half = tt_ones(TT_SHAPE(3), TT_F16);
    assert_int_equal(tt_init_zeros_(half), TT_OK);
    assert_true(tt_equal(half, tt_zeros(TT_SHAPE(3), TT_F16)));
}

static void columns_are_orthogonal(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(TT_SHAPE(120, 80), TT_F64), *eye = tt_zeros(TT_SHAPE(80, 80), TT_F64);
    assert_int_equal(tt_init_orthogonal_(x, .gain = 3), TT_OK);
    assert_int_equal(tt_init_eye_(eye), TT_OK);
    expect_close("x^T x", "", tt_matmul(tt_transpose(x, 0, 1), x), tt_scale(eye, 9), 1e-14);
}

/* Backward over a record that needs what stood there before is an error. */
static void a_fill_is_seen_by_records(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_status (*const all[])(tt_tensor *) = {tt_init_ones_, tt_init_eye_, fill_trunc, fill_xavier, fill_orthogonal};
    for (size_t i = 0; i < COUNT(all); i++) {
        tt_tensor *x = tt_requires_grad_(tt_full(TT_SHAPE(3, 2), TT_F32, 2), true), *y = tt_sum(tt_mul(x, x));
        assert_int_equal(all[i](x), TT_OK);
        assert_int_equal(tt_backward(y), TT_ERR_STATE);
        expect_error(TT_ERR_STATE, "overwritten");
    }
}

static void empty_tensors_stay(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(TT_SHAPE(0, 3, 2), TT_F32), *flat = tt_zeros(TT_SHAPE(3, 0), TT_F32);
    for (size_t i = 0; i < COUNT(fills); i++)
        if (strcmp(fills[i].call, "eye_"))
            assert_int_equal(fills[i].fill(x), TT_OK);
    assert_int_equal(tt_init_eye_(flat), TT_OK);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(4, 3), TT_F32), *row = tt_ones(TT_SHAPE(4), TT_F32);
    tt_tensor *ints = tt_ones(TT_SHAPE(4, 3), TT_I64), *half = tt_ones(TT_SHAPE(4, 3), TT_F16);
    assert_int_equal(tt_init_xavier_uniform_(row), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "tt_init_xavier_uniform_: expected at least 2 dimensions, got f32 (4)");
    assert_int_equal(tt_init_dirac_(x), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "tt_init_dirac_: expected at least 3 dimensions, got f32 (4, 3)");
    assert_int_equal(tt_init_eye_(tt_ones(TT_SHAPE(1, 2, 3), TT_F32)), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "tt_init_eye_: expected at most 2 dimensions");
    assert_int_equal(tt_init_dirac_(tt_ones(TT_SHAPE(4, 3, 3), TT_F32), .groups = 3), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_init_dirac_: expected groups that divide 4, got 3");
    assert_int_equal(tt_init_zeros_(ints), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "tt_init_zeros_: expected a tensor of floats, got i64 (4, 3)");
    assert_int_equal(tt_init_kaiming_normal_(half), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "tt_init_kaiming_normal_: expected f32 or f64, got f16 (4, 3)");
    assert_int_equal(tt_init_kaiming_normal_(x, .mode = (tt_fan_mode)2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_init_kaiming_normal_: expected a tt_fan_mode");
    assert_int_equal(tt_init_orthogonal_(x, .gain = -1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_init_orthogonal_: expected a gain of at least 0, got -1");
    assert_int_equal(tt_init_trunc_normal_(x, 0, 0), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_init_trunc_normal_: expected std above 0 and a < b");
    assert_int_equal(tt_init_trunc_normal_(x, 0, 1, .a = 1, .b = 1), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_init_uniform_(x, 1, 0), TT_ERR_INVALID);
    tt_clear_error();
    assert_true(isnan(tt_init_calculate_gain((tt_nonlinearity)17, 0)));
    expect_error(TT_ERR_INVALID, "tt_init_calculate_gain: expected a tt_nonlinearity, got 17");
    assert_true(tt_equal(x, tt_ones(TT_SHAPE(4, 3), TT_F32)));
}

static tt_status fill_all(void *arg) {
    TT_AUTO_SCOPE;
    (void)arg;
    tt_tensor *x = tt_zeros(TT_SHAPE(4, 3, 3), TT_F32);
    if (!x)
        return tt_last_status();
    for (size_t i = 0; i < COUNT(fills); i++)
        if (strcmp(fills[i].call, "eye_") && fills[i].fill(x))
            return tt_last_status();
    return TT_OK;
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_true(alloc_fail_each(fill_all, NULL, ALLOC_ENDS) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pytorchs),       cmocka_unit_test(any_layout_is_filled),
        cmocka_unit_test(columns_are_orthogonal),    cmocka_unit_test(a_fill_is_seen_by_records),
        cmocka_unit_test(empty_tensors_stay),        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
