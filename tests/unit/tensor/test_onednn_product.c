/* Products by oneDNN's primitive, in f32, whose code is that of bf16, beside the plain loops: layouts, sizes of 1, sums
 * with what is there, more kinds than are kept; and bf16 products, whoever computes them here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tensor/cpu/onednn/onednn.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <math.h>
#include <tutti/functional.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

static tt_tensor *drawn(int64_t rows, int64_t cols, bool by_columns) {
    tt_tensor *x = tt_randn(by_columns ? S(cols, rows) : S(rows, cols), NULL);
    return by_columns ? tt_transpose(x, 0, 1) : x;
}

/* The largest difference from products in f64. */
static double distance_of(const tt_tensor *y, tt_tensor *before, tt_tensor *a, tt_tensor *b) {
    tt_tensor *exact = tt_matmul(tt_to(a, TT_F64), tt_to(b, TT_F64));
    if (before)
        exact = tt_add(exact, tt_to(before, TT_F64));
    double most = NAN;
    assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(tt_to((tt_tensor *)y, TT_F64), exact))), &most), TT_OK);
    return most;
}

static void multiply(int64_t M, int64_t N, int64_t K, int layout, bool adds) {
    TT_AUTO_SCOPE;
    tt_tensor *a = drawn(M, K, layout & 1), *b = drawn(K, N, layout & 2), *y = tt_randn(S(M, N), NULL);
    tt_tensor *before = adds ? tt_clone(y) : NULL;
    assert_int_equal(tt__onednn_product(y, a, b, adds), TT_OK);
    double far = distance_of(y, before, a, b);
    if (!(far < 1e-4))
        fail_msg("(%d, %d) by (%d, %d), layout %d: %g off", (int)M, (int)K, (int)K, (int)N, layout, far);
}

static void products_in_every_layout(void **state) {
    (void)state;
    tt_manual_seed(1);
    static const int64_t sizes[] = {1, 2, 7, 33};
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 4; n++)
            for (int k = 0; k < 4; k++)
                for (int layout = 0; layout < 4; layout++)
                    multiply(sizes[m], sizes[n], sizes[k], layout, layout == m % 4);
}

/* Rows and columns of larger matrices: strides that are not the sizes. */
static void parts_of_matrices(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_narrow(tt_randn(S(9, 20), NULL), 1, 3, 8), *b = tt_narrow(tt_randn(S(8, 30), NULL), 1, 5, 11);
    tt_tensor *all = tt_zeros(S(9, 40), TT_F32), *y = tt_narrow(all, 1, 2, 11);
    assert_int_equal(tt__onednn_product(y, a, b, 0), TT_OK);
    assert_true(distance_of(y, NULL, a, b) < 1e-4);
    assert_true(tt_tensor_f32(all)[1] == 0 && tt_tensor_f32(all)[13] == 0);
}

static void more_kinds_than_are_kept(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int64_t n = 1; n <= 600; n++)
            multiply(3, n, 5, 0, false);
}

typedef struct side {
    tt_tensor *y, *a, *b;
} side;

static void multiply_one(void *user, int64_t begin, int64_t end) {
    const side *s = user;
    for (int64_t i = begin; i < end; i++) {
        tt_tensor y = tt__matrix_number(s->y, i), a = tt__matrix_number(s->a, i), b = tt__matrix_number(s->b, i);
        assert_int_equal(tt__onednn_product(&y, &a, &b, 0), TT_OK);
    }
}

/* A primitive that was made by one of several threads is not that of a call which has all of them. */
static void side_by_side_and_alone(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    enum { N = 4, SIZE = 192 };
    side s = {tt_zeros(S(N, SIZE, SIZE), TT_F32), tt_randn(S(N, SIZE, SIZE), NULL), tt_randn(S(N, SIZE, SIZE), NULL)};
    tt_tensor *exact = tt_bmm(s.a, s.b), *first = tt_empty(S(SIZE, SIZE), TT_F32);
    for (int round = 0; round < 3; round++) {
        double far = NAN;
        tt__parallel_for(N, 1, multiply_one, &s);
        assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(s.y, exact))), &far), TT_OK);
        assert_true(far < 1e-3);
        assert_int_equal(tt__onednn_product(first, tt_select(s.a, 0, 0), tt_select(s.b, 0, 0), 0), TT_OK);
        assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(first, tt_select(exact, 0, 0)))), &far), TT_OK);
        assert_true(far < 1e-3);
    }
}

/* Whoever computes it: within bf16's rounding of the product of the rounded. */
static void products_of_bf16(void **state) {
    (void)state;
    tt_manual_seed(2);
    for (int layout = 0; layout < 4; layout++) {
        TT_AUTO_SCOPE;
        tt_tensor *a = tt_to(drawn(17, 40, layout & 1), TT_BF16), *b = tt_to(drawn(40, 23, layout & 2), TT_BF16);
        double largest, far = distance_of(tt_matmul(a, b), NULL, a, b);
        assert_int_equal(tt_item(tt_max(tt_abs(tt_matmul(tt_to(a, TT_F64), tt_to(b, TT_F64)))), &largest), TT_OK);
        assert_true(far <= largest / 256 * 1.01);
    }
}

/* A product of bf16 that is f32: only its factors are rounded, also where it is added to what is there. */
static void products_of_bf16_in_f32(void **state) {
    (void)state;
    if (!tt__onednn_takes_bf16())
        skip();
    for (int layout = 0; layout < 8; layout++) {
        TT_AUTO_SCOPE;
        tt_tensor *a = tt_to(drawn(17, 40, layout & 1), TT_BF16), *b = tt_to(drawn(40, 23, layout & 2), TT_BF16);
        tt_tensor *y = tt_randn(S(17, 23), NULL), *before = layout & 4 ? tt_clone(y) : NULL;
        assert_int_equal(tt__onednn_product(y, a, b, before != NULL), TT_OK);
        assert_true(distance_of(y, before, a, b) < 1e-4);
    }
}

/* With a bias, in f32 and rounded to bf16 once. */
static void products_with_a_bias(void **state) {
    (void)state;
    if (!tt__onednn_takes_bf16())
        skip();
    for (int64_t rows = 1; rows <= 65; rows += 16) {
        TT_AUTO_SCOPE;
        tt_tensor *a = tt_to(drawn(rows, 40, false), TT_BF16), *b = tt_to(drawn(40, 23, true), TT_BF16);
        tt_tensor *bias = tt_to(tt_randn(S(23), NULL), TT_BF16), *y = tt_empty(S(rows, 23), TT_F32);
        tt_tensor *rounded = tt_empty(S(rows, 23), TT_BF16);
        assert_int_equal(tt__onednn_product_bias(y, a, b, bias), TT_OK);
        assert_true(distance_of(y, bias, a, b) < 1e-4);
        assert_int_equal(tt__onednn_product_bias(rounded, a, b, bias), TT_OK);
        assert_true(tt_equal(rounded, tt_to(y, TT_BF16)));
    }
}

/* Each column of a in turn is infinite, in products into whole matrices, and into parts of larger ones. */
static void infinities_in_16_bits(void **state) {
    (void)state;
    for (int64_t K = 1; K <= 4; K++)
        for (int64_t at = 0; at < K; at++)
            for (int i = 0; i < 4; i++) {
                TT_AUTO_SCOPE;
                tt_dtype dtype = i & 1 ? TT_F16 : TT_BF16;
                tt_tensor *a = tt_full(S(9, K), TT_F32, 1), *b = tt_ones(S(K, 15), dtype);
                tt_tensor *y = tt_narrow(tt_full(S(9, i & 2 ? 20 : 15), dtype, NAN), 1, 0, 15);
                assert_non_null(tt_fill_(tt_select(a, 1, at), INFINITY));
                assert_int_equal(tt__matmul_out("test", y, tt_to(a, dtype), b, 0), TT_OK);
                double least = 0;
                assert_int_equal(tt_item(tt_neg(tt_max(tt_neg(tt_to(y, TT_F32)))), &least), TT_OK);
                if (least != INFINITY)
                    fail_msg("column %d of %d, %s: %g", (int)at, (int)K, tt_dtype_name(dtype), least);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_in_every_layout), cmocka_unit_test(parts_of_matrices),
        cmocka_unit_test(more_kinds_than_are_kept), cmocka_unit_test(side_by_side_and_alone),
        cmocka_unit_test(products_of_bf16),         cmocka_unit_test(products_of_bf16_in_f32),
        cmocka_unit_test(products_with_a_bias),     cmocka_unit_test(infinities_in_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
