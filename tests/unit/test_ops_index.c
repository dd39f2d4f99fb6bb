/* Operators on shapes, places and order: the suite of op_suite.h, values that are known, wrong inputs. */
#include "op_suite.h"

#include "op_cases_index.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static void gradients_match_finite_differences(void **state) {
    (void)state;
    op_each_mode(&index_family, op_check_gradients);
}

static void devices_and_types_agree(void **state) {
    (void)state;
    op_each_mode(&index_family, op_check_kinds);
}

static void f32_matches_pytorch(void **state) {
    (void)state;
    op_check_pytorch(&index_family);
}

static tt_tensor *i64(int64_t n, const int64_t *v) { return tt_from_data(v, S(n), TT_I64); }
#define I64(...) i64((int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- views */

static void slices_are_brought_inside(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_arange(6);
    assert_true(tt_equal(tt_slice(x, 0, -2, INT64_MAX, 1), I64(4, 5)));
    assert_true(tt_equal(tt_slice(x, 0, -100, 100, 4), I64(0, 4)));
    assert_true(tt_equal(tt_slice(x, -1, 1, -1, INT64_MAX), I64(1)));
    assert_int_equal(tt_tensor_numel(tt_slice(x, 0, INT64_MIN, INT64_MIN, 1)), 0);
    assert_int_equal(tt_tensor_numel(tt_slice(x, 0, 6, INT64_MAX, 1)), 0);
    assert_true(tt_equal(tt_select(x, 0, -6), tt_full(TT_SCALAR, TT_I64, 0)));
}

/* A view shares its storage. */
static void views_see_what_is_written(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_I32), *row = tt_select(x, 0, 1);
    assert_int_equal(tt_copy(row, tt_ones(S(3), TT_I32)), TT_OK);
    double v = 0;
    assert_int_equal(tt_item(tt_select(tt_select(tt_permute(x, S(1, 0)), 0, 2), 0, 1), &v), TT_OK);
    assert_true(v == 1);
    assert_true(tt_is_contiguous(tt_unsqueeze(x, 1)) && tt_is_contiguous(tt_squeeze(tt_unsqueeze(x, -1), 2)));
    assert_int_equal(tt_tensor_dim(tt_squeeze(tt_zeros(TT_SCALAR, TT_F32), -1)), 0);
}

static void parts_are_those_of_pytorch(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *out[5], *x = tt_arange(5), *none = tt_zeros(S(0, 2), TT_F32);
    assert_int_equal(tt_chunk(out, 3, x, 0), TT_OK); /* 2, 2, 1 */
    assert_true(tt_equal(out[1], I64(2, 3)) && tt_equal(out[2], I64(4)));
    assert_int_equal(tt_split(out, 1, x, 7, 0), TT_OK);
    assert_true(tt_equal(out[0], x));
    assert_int_equal(tt_split(out, 1, none, 0, 0), TT_OK);
    assert_int_equal(tt_chunk(out, 3, none, 0), TT_OK);
    assert_int_equal(tt_tensor_size(out[2], 1), 2);
    assert_int_equal(tt_unbind(out, 0, none, 0), TT_OK);
}

/* ---- errors */

static void wrong_views(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32), *full = tt_zeros(S(1, 1, 1, 1, 1, 1, 1, 1), TT_F32), *out[4] = {x, x};
    op_expect(tt_permute(x, S(0)), TT_ERR_SHAPE, "tt_permute", "each dimension of f32 (2, 3) once, got (0)");
    op_expect(tt_permute(x, S(0, -2)), TT_ERR_SHAPE, "tt_permute", "got (0, -2)");
    op_expect(tt_permute(x, S(0, INT64_MAX)), TT_ERR_SHAPE, "tt_permute", "got (0, ");
    op_expect(tt_permute(x, (tt_shape){.ndim = 99}), TT_ERR_SHAPE, "tt_permute", "once");
    op_expect(tt_movedim(x, 0, 2), TT_ERR_SHAPE, "tt_movedim", "no dimensions 0 and 2");
    op_expect(tt_expand(x, S(2)), TT_ERR_SHAPE, "tt_expand", "f32 (2, 3), got (2)");
    op_expect(tt_expand(x, S(4, 3)), TT_ERR_SHAPE, "tt_expand", "got (4, 3)");
    op_expect(tt_expand(x, S(-1, 2, 3)), TT_ERR_SHAPE, "tt_expand", "got (-1, 2, 3)");
    op_expect(tt_squeeze(x, 2), TT_ERR_SHAPE, "tt_squeeze", "no dimension 2");
    op_expect(tt_unsqueeze(x, 3), TT_ERR_SHAPE, "tt_unsqueeze", "no place 3");
    op_expect(tt_unsqueeze(full, 0), TT_ERR_SHAPE, "tt_unsqueeze", "at most 8");
    op_expect(tt_slice(x, 0, 0, 1, 0), TT_ERR_INVALID, "tt_slice", "a step of at least 1, got 0");
    op_expect(tt_slice(x, 2, 0, 1, 1), TT_ERR_SHAPE, "tt_slice", "no dimension 2");
    op_expect(tt_select(x, 1, 3), TT_ERR_INVALID, "tt_select", "in -3..2 of dimension 1 of f32 (2, 3), got 3");
    assert_int_equal(tt_split(out, 3, x, 2, 1), TT_ERR_SHAPE);
    op_expect(NULL, TT_ERR_SHAPE, "tt_split", "makes 2 parts, but 3 are asked for");
    assert_int_equal(tt_split(out, 1, x, 0, 1), TT_ERR_INVALID);
    assert_int_equal(tt_split(out, 1, x, -1, 1), TT_ERR_INVALID);
    op_expect(NULL, TT_ERR_INVALID, "tt_split", "got -1");
    assert_int_equal(tt_chunk(out, 0, x, 1), TT_ERR_INVALID);
    op_expect(NULL, TT_ERR_INVALID, "tt_chunk", "got 0");
    assert_int_equal(tt_unbind(out, 2, x, 1), TT_ERR_SHAPE);
    op_expect(NULL, TT_ERR_SHAPE, "tt_unbind", "makes 3 parts");
    assert_int_equal(tt_unbind(NULL, 2, x, 0), TT_ERR_INVALID);
    assert_int_equal(tt_unbind(out, 2, NULL, 0), TT_ERR_INVALID);
    assert_ptr_equal(out[0], x);
}

static void null_gives_null_and_no_error(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_clear_error();
    const tt_tensor *got[] = {
        tt_permute(NULL, S(0)), tt_movedim(NULL, 0, 0), tt_expand(NULL, S(1)),      tt_squeeze(NULL, 0),
        tt_squeeze_all(NULL),   tt_unsqueeze(NULL, 0),  tt_slice(NULL, 0, 0, 0, 1), tt_select(NULL, 0, 0),
    };
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        assert_null(got[i]);
    assert_int_equal(tt_last_status(), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(devices_and_types_agree),
        cmocka_unit_test(f32_matches_pytorch),
        cmocka_unit_test(slices_are_brought_inside),
        cmocka_unit_test(views_see_what_is_written),
        cmocka_unit_test(parts_are_those_of_pytorch),
        cmocka_unit_test(wrong_views),
        cmocka_unit_test(null_gives_null_and_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
