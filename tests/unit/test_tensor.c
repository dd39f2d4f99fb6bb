/* Tensors: ownership, scopes, views, copies, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/tensor.h"

static tt_tensor *counting(tt_shape shape) {
    tt_tensor *x = tt_zeros(shape, TT_F32);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        tt_tensor_f32(x)[i] = (float)i;
    return x;
}

static void making(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data((float[]){1, 2, 3, 4, 5, 6}, TT_SHAPE(2, 3), TT_F32);
    assert_int_equal(tt_tensor_dim(x), 2);
    assert_int_equal(tt_tensor_size(x, -1), 3);
    assert_int_equal(tt_tensor_size(x, 2), 0);
    assert_int_equal(tt_tensor_stride(x, 0), 3);
    assert_true((uintptr_t)tt_tensor_data(x) % 64 == 0);
    assert_true(tt_tensor_f32(x)[5] == 6);
    assert_string_equal(TT__DESCRIBE(x), "f32 (2, 3)");
    assert_string_equal(TT__DESCRIBE(tt_full(TT_SCALAR, TT_I64, 7)), "i64 ()");
    assert_int_equal(tt_tensor_i64(tt_arange(5))[4], 4);
    double v = 0;
    assert_int_equal(tt_item(tt_full(TT_SHAPE(1, 1), TT_U8, 200), &v), TT_OK);
    assert_true(v == 200);
    assert_int_equal(tt_tensor_numel(tt_empty(TT_SHAPE(3, 0, 2), TT_F64)), 0);
}

int main(void) {
    (void)counting;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
