/* Random tensors: the generator reaches tensors of any layout, and impossible arguments are refused. */
#include "tensor/random/generator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void contiguous_tensors_get_the_raw_sequence(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_generator g;
    float f[40];
    double d[40];
    tt_manual_seed(3);
    tt__generator_init(&g, 3);
    tt__generator_uniform_f32(&g, f, 40, -1, 2);
    tt_tensor *x = tt_empty(TT_SHAPE(5, 8), TT_F32);
    assert_int_equal(tt_uniform_(x, -1, 2, NULL), TT_OK);
    assert_memory_equal(tt_tensor_data(x), f, sizeof f);
    tt__generator_normal_f64(&g, d, 40, 1, 3);
    x = tt_empty(TT_SHAPE(40), TT_F64);
    assert_int_equal(tt_normal_(x, 1, 3, tt_default_generator()), TT_OK);
    assert_memory_equal(tt_tensor_data(x), d, sizeof d);
    tt__generator_uniform_f64(&g, d, 40, 0, 1);
    assert_int_equal(tt_uniform_(x, 0, 1, NULL), TT_OK);
    assert_memory_equal(tt_tensor_data(x), d, sizeof d);
    tt__generator_normal_f32(&g, f, 40, 0, 1);
    assert_memory_equal(tt_tensor_data(tt_randn(TT_SHAPE(2, 20), NULL)), f, sizeof f);
    tt__generator_uniform_f32(&g, f, 40, 0, 1);
    assert_memory_equal(tt_tensor_data(tt_rand(TT_SHAPE(40, 1), NULL)), f, sizeof f);
    int64_t n[9];
    tt__generator_randint(&g, n, 9, -4, 10);
    assert_memory_equal(tt_tensor_data(tt_randint(-4, 6, TT_SHAPE(3, 3), NULL)), n, sizeof n);
}

/* A view is filled one element after the other as they lie in memory, with the serial normal. */
static void views_are_filled_in_the_order_of_memory(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_generator *g = tt_generator_new(8), *same = tt_generator_new(8);
    tt_tensor *base = tt_zeros(TT_SHAPE(3, 4, 8), TT_F32);
    tt_tensor *view = tt_narrow(tt_transpose(base, 0, 2), 1, 1, 2); /* (8, 2, 3): rows 1 and 2 of each (4, 8) */
    assert_int_equal(tt_normal_(view, 2, 0.5, g), TT_OK);
    for (int i = 0; i < 3 * 4 * 8; i++) {
        bool inside = i / 8 % 4 == 1 || i / 8 % 4 == 2;
        float want = inside ? (float)tt__generator_normal(same, 2, 0.5) : 0;
        assert_true(tt_tensor_f32(base)[i] == want);
    }
    tt_tensor *columns = tt_transpose(tt_zeros(TT_SHAPE(2, 3), TT_F64), 0, 1);
    double want[6];
    tt__generator_uniform_f64(same, want, 6, -2, -1);
    assert_int_equal(tt_uniform_(columns, -2, -1, g), TT_OK);
    assert_memory_equal(tt_tensor_data(columns), want, sizeof want);
    tt_generator_free(g);
    tt_generator_free(same);
}

static void empty_and_scalar_work(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double value = -1;
    assert_int_equal(tt_tensor_numel(tt_randn(TT_SHAPE(0, 3), NULL)), 0);
    assert_int_equal(tt_item(tt_rand(TT_SCALAR, NULL), &value), TT_OK);
    assert_true(value >= 0 && value < 1);
    tt_tensor *x = tt_empty(TT_SHAPE(2), TT_F32);
    assert_int_equal(tt_uniform_(x, 3, 3, NULL), TT_OK);
    assert_true(tt_tensor_f32(x)[1] == 3);
    assert_int_equal(tt_normal_(x, 5, 0, NULL), TT_OK);
    assert_true(tt_tensor_f32(x)[0] == 5);
}

static void impossible_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(TT_SHAPE(3), TT_F32);
    assert_int_equal(tt_uniform_(x, 2, 1, NULL), TT_ERR_INVALID);
    assert_string_equal(tt_last_error(), "tt_uniform_: expected low <= high and a finite difference, got 2 and 1");
    assert_int_equal(tt_uniform_(x, 0, NAN, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_uniform_(x, -INFINITY, 0, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_uniform_(x, -3e38, 3e38, NULL), TT_ERR_INVALID); /* their difference is no f32 */
    assert_int_equal(tt_normal_(x, 0, -1, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_normal_(x, 0, NAN, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_normal_(tt_arange(3), 0, 1, NULL), TT_ERR_DTYPE);
    assert_string_equal(tt_last_error(), "tt_normal_: expected f32 or f64, got i64 (3); tt_to() converts");
    assert_null(tt_randint(5, 5, TT_SHAPE(2), NULL));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_null(tt_randn(TT_SHAPE(-1), NULL));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "tt_randn"));
}

/* NULL in: the error that made it NULL is what is reported. */
static void the_first_error_stays(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_int_equal(tt_uniform_(tt_rand(TT_SHAPE(-7), NULL), 0, 1, NULL), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "tt_rand"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contiguous_tensors_get_the_raw_sequence),
        cmocka_unit_test(views_are_filled_in_the_order_of_memory),
        cmocka_unit_test(empty_and_scalar_work),
        cmocka_unit_test(impossible_arguments_are_refused),
        cmocka_unit_test(the_first_error_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
