/* Tensors: ownership, scopes, views, copies, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "tensor/ops/ops.h"

#include <tutti/functional.h>

static tt_tensor *counting(tt_shape shape) {
    tt_tensor *x = tt_empty(shape, TT_F32);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        tt_tensor_f32(x)[i] = (float)i;
    return x;
}

static void making_and_looking(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data(((float[]){1, 2, 3, 4, 5, 6}), TT_SHAPE(2, 3), TT_F32);
    assert_int_equal(tt_tensor_dim(x), 2);
    assert_int_equal(tt_tensor_size(x, -1), 3);
    assert_int_equal(tt_tensor_size(x, 2), 0);
    assert_int_equal(tt_tensor_stride(x, 0), 3);
    assert_int_equal(tt_tensor_shape(x).dim[0], 2);
    assert_true((uintptr_t)tt_tensor_data(x) % 64 == 0);
    assert_true(tt_tensor_f32(x)[5] == 6);
    assert_string_equal(TT__DESCRIBE(x), "f32 (2, 3)");
    assert_string_equal(TT__DESCRIBE(tt_full(TT_SCALAR, TT_I64, 7)), "i64 ()");
    char small[5];
    assert_string_equal(tt_tensor_describe(x, small, sizeof small), "f32 ");
    assert_int_equal(tt_tensor_i64(tt_arange(5))[4], 4);
    assert_int_equal(tt_tensor_numel(tt_arange(0)), 0);
    double v = 0;
    assert_int_equal(tt_item(tt_full(TT_SHAPE(1, 1), TT_U8, 200), &v), TT_OK);
    assert_true(v == 200);
    for (int dtype = TT_F32; dtype <= TT_U8; dtype++) {
        assert_int_equal(tt_item(tt_full(TT_SCALAR, (tt_dtype)dtype, 100), &v), TT_OK);
        assert_true(v == 100);
    }
    assert_string_equal(TT__DESCRIBE(NULL), "NULL");
    assert_int_equal(tt_item(x, &v), TT_ERR_SHAPE);
    assert_int_equal(tt_item(x, NULL), TT_ERR_INVALID);
    assert_null(tt_tensor_i64(x));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    assert_null(tt_tensor_f32(tt_arange(1)));
    assert_int_equal(tt_tensor_numel(tt_empty(TT_SHAPE(3, 0, 2), TT_F64)), 0);
    assert_int_equal(tt_tensor_numel(NULL) + tt_tensor_dim(NULL) + tt_tensor_size(NULL, 0), 0);
    tt_clear_error();
}

/* Values that every type holds, there and back; and arithmetic of each on the plain loops. */
static void every_dtype_is_a_tensors(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int number = TT_F32; number <= TT_BOOL; number++) {
        tt_dtype dtype = (tt_dtype)number;
        tt_tensor *x = tt_full(TT_SHAPE(2, 3), dtype, 1), *y = tt_zeros(TT_SHAPE(2, 3), dtype);
        assert_true(tt_equal(tt_to(tt_ones(TT_SHAPE(2, 3), TT_F32), dtype), x));
        assert_true(tt_equal(tt_to(x, TT_F64), tt_ones(TT_SHAPE(2, 3), TT_F64)));
        assert_int_equal(tt_copy(tt_transpose(y, 0, 1), tt_transpose(x, 0, 1)), TT_OK);
        assert_true(tt_equal(x, y));
        assert_int_equal(tt__sub_out("test", y, x, x), TT_OK);
        assert_true(tt_equal(y, tt_zeros(TT_SHAPE(2, 3), dtype)));
        double v = 5;
        assert_int_equal(tt_item(tt_narrow(tt_narrow(x, 0, 0, 1), 1, 2, 1), &v), TT_OK);
        assert_true(v == 1);
        assert_int_equal(tt_tensor_i64(tt_argmax(x, 1))[0], 0);
    }
}

static double as_double(tt_tensor *x) {
    double v = -1;
    assert_int_equal(tt_item(x, &v), TT_OK);
    return v;
}

static void values_are_rounded_to_their_type(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_true(as_double(tt_full(TT_SCALAR, TT_F16, 2049)) == 2048); /* 11 digits, ties to even */
    assert_true(as_double(tt_full(TT_SCALAR, TT_F16, 65520)) == INFINITY);
    assert_true(as_double(tt_full(TT_SCALAR, TT_BF16, 257)) == 256);
    assert_true(as_double(tt_full(TT_SCALAR, TT_BOOL, 0.5)) == 1);
    assert_true(as_double(tt_full(TT_SCALAR, TT_I8, -128)) == -128);
    assert_true(as_double(tt_to(tt_full(TT_SCALAR, TT_I64, 257), TT_I8)) == 1);
    assert_true(as_double(tt_to(tt_full(TT_SCALAR, TT_I16, -3), TT_BF16)) == -3);
    const double outside[][2] = {{TT_I8, 128}, {TT_I8, -129}, {TT_I16, 32768}, {TT_U8, -1}, {TT_I32, 3e9}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        assert_null(tt_full(TT_SCALAR, (tt_dtype)outside[i][0], outside[i][1]));
        assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    }
    assert_null(tt_empty(TT_SCALAR, (tt_dtype)99));
    assert_int_equal(tt_last_status(), TT_ERR_DTYPE);
    tt_clear_error();
}

static void a_blob_is_not_copied(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    float memory[6] = {0};
    tt_tensor *x = tt_from_blob(memory, TT_SHAPE(2, 3), TT_F32);
    memory[4] = 7;
    assert_ptr_equal(tt_tensor_data(x), memory);
    assert_true(tt_tensor_f32(tt_narrow(x, 0, 1, 1))[1] == 7);
}

/* ---- scopes ---- */

static void scope_recycles(void **state) {
    (void)state;
    int id = tt_scope_begin();
    void *data = tt_tensor_data(tt_empty(TT_SHAPE(1000), TT_F32));
    tt_scope_end(id);
    id = tt_scope_begin();
    assert_ptr_equal(tt_tensor_data(tt_empty(TT_SHAPE(1000), TT_F32)), data);
    tt_scope_end(id);
}

static void ending_the_outer_ends_the_inner(void **state) {
    (void)state;
    int outer = tt_scope_begin(), inner = tt_scope_begin();
    assert_int_not_equal(outer, inner);
    assert_true(tt_ones(TT_SHAPE(3), TT_F32)->owner == TT__OWNER_SCOPE);
    tt_scope_end(outer);
    tt_scope_end(inner); /* not open: nothing */
    tt_scope_end(outer);
    tt_scope_end(12345);
    tt_tensor *x = tt_ones(TT_SHAPE(3), TT_F32);
    assert_true(x->owner == TT__OWNER_CALLER);
    tt_tensor_free(x);
}

static void scopes_nest_deeply(void **state) {
    (void)state;
    int first = tt_scope_begin();
    for (int i = 0; i < 40; i++) {
        assert_true(tt_scope_begin() > first);
        tt_ones(TT_SHAPE(3), TT_F32);
    }
    assert_null(tt_view(tt_arange(3), TT_SHAPE(2))); /* its error passes through all of them */
    tt_scope_end(first + 1);
    double v;
    assert_int_equal(tt_item(NULL, &v), TT_ERR_SHAPE);
    tt_scope_end(first);
    tt_clear_error();
}

static int leave_by_return(int how) {
    TT_AUTO_SCOPE;
    tt_ones(TT_SHAPE(100), TT_F32);
    for (int i = 0; i < 3; i++) {
        TT_AUTO_SCOPE;
        tt_ones(TT_SHAPE(100), TT_F32);
        if (how == 0)
            return 0;
        if (how == 1)
            break;
        if (how == 2)
            continue;
        goto out;
    }
out:
    return how;
}

static void every_way_out_of_a_block_ends_its_scope(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        assert_int_equal(leave_by_return(how), how);
        tt_tensor *x = tt_ones(TT_SCALAR, TT_F32);
        assert_true(x->owner == TT__OWNER_CALLER); /* no scope is open */
        tt_tensor_free(x);
    }
}

static void kept_tensors_live_on(void **state) {
    (void)state;
    int outer = tt_scope_begin(), inner = tt_scope_begin();
    tt_tensor *first = tt_ones(TT_SHAPE(2), TT_F32), *x = counting(TT_SHAPE(4)), *last = tt_ones(TT_SHAPE(2), TT_F32);
    tt_tensor *part = tt_keep(tt_narrow(x, 0, 2, 2)); /* its storage lives on with it */
    assert_ptr_equal(tt_keep(first), first);
    assert_ptr_equal(tt_keep(last), last);
    assert_ptr_equal(tt_keep(last), last);
    tt_scope_end(inner);
    assert_true(tt_tensor_f32(part)[1] == 3);
    tt_tensor *o = tt_keep(tt_ones(TT_SCALAR, TT_F32));
    tt_scope_end(outer);
    assert_true(tt_tensor_f32(first)[0] == 1 && tt_tensor_f32(last)[1] == 1);
    tt_tensor_free(part);
    tt_tensor_free(first);
    tt_tensor_free(last);
    tt_tensor_free(o);
}

static void only_owners_free(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    tt_tensor_free(x);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "f32 (2) belongs to a scope"));
    assert_true(tt_tensor_f32(x)[0] == 1);
    assert_int_equal(tt__tensor_adopt(x, "a test"), TT_OK);
    assert_ptr_equal(tt_keep(x), x); /* stays the holder's */
    tt_tensor_free(x);
    assert_non_null(strstr(tt_last_error(), "belongs to a test"));
    assert_int_equal(tt__tensor_adopt(x, "another"), TT_ERR_STATE);
    tt__tensor_disown(x);
    tt_tensor_free(NULL);
    tt_clear_error();
}

static void the_first_error_of_a_scope_is_kept(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    {
        TT_AUTO_SCOPE;
        assert_null(tt_view(x, TT_SHAPE(3)));
        assert_null(tt_transpose(x, 0, 9));
    }
    double v = 5;
    assert_int_equal(tt_item(NULL, &v), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "tt_view")); /* from the inner scope, and the first */
    tt_clear_error();
    assert_int_equal(tt_item(NULL, &v), TT_ERR_INVALID);
    tt_clear_error();
    assert_true(v == 5);
}

static void *made_elsewhere(void *arg) {
    (void)arg;
    tt_tensor *x = counting(TT_SHAPE(1000)), *y = tt_ones(TT_SHAPE(5), TT_I64);
    tt_tensor_free(y); /* waits in this thread's pool, which ends with the thread */
    return x;
}

static void a_tensor_may_be_freed_by_another_thread(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *x = NULL;
        assert_int_equal(pthread_create(&thread, NULL, made_elsewhere, NULL), 0);
        assert_int_equal(pthread_join(thread, &x), 0);
        assert_true(tt_tensor_f32(x)[999] == 999);
        tt_tensor_free(x);
    }
}

/* ---- views ---- */

/* Element (i, j, k) of x, through its strides. */
static float at3(const tt_tensor *x, int64_t i, int64_t j, int64_t k) {
    return tt_tensor_f32(x)[i * tt_tensor_stride(x, 0) + j * tt_tensor_stride(x, 1) + k * tt_tensor_stride(x, 2)];
}

static void views_share_storage(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = counting(TT_SHAPE(2, 3, 4)), *t = tt_transpose(x, 0, 2);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 3; j++)
            for (int64_t k = 0; k < 4; k++)
                assert_true(at3(t, k, j, i) == at3(x, i, j, k));
    tt_tensor_f32(tt_narrow(t, 0, 3, 1))[0] = -1;
    assert_true(tt_tensor_f32(x)[3] == -1);
    assert_ptr_equal(tt_contiguous(x), x);
    assert_false(tt_is_contiguous(t));
    assert_true(tt_equal(tt_contiguous(t), t));
    assert_ptr_not_equal(tt_tensor_data(tt_clone(x)), tt_tensor_data(x));
}

/* Every shape of 24 elements of a view with joined, split and permuted dimensions: a view where the layout allows it,
 * else a copy; always the same elements in row-major order. */
static void reshape_keeps_the_order(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *base = counting(TT_SHAPE(4, 3, 5));
    tt_tensor *layouts[] = {tt_narrow(base, 2, 1, 2), tt_transpose(tt_narrow(base, 2, 0, 2), 0, 1),
                            tt_transpose(tt_narrow(base, 2, 3, 2), 1, 2), tt_narrow(tt_transpose(base, 0, 2), 0, 2, 2),
                            tt_clone(tt_narrow(base, 2, 1, 2))};
    const tt_shape shapes[] = {TT_SHAPE(24),       TT_SHAPE(12, 2),       TT_SHAPE(4, 6),    TT_SHAPE(2, 2, 3, 2),
                               TT_SHAPE(3, 8),     TT_SHAPE(1, 4, 1, 6),  TT_SHAPE(6, 1, 4), TT_SHAPE(2, 3, 4),
                               TT_SHAPE(3, -1, 2), TT_SHAPE(24, 1, 1, 1), TT_SHAPE(2, 12)};
    int views = 0;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        const float *want = tt_tensor_f32(tt_contiguous(layouts[l]));
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            tt_tensor *y = tt_reshape(layouts[l], shapes[s]), *v = tt_view(layouts[l], shapes[s]);
            assert_memory_equal(tt_tensor_data(tt_contiguous(y)), want, 24 * sizeof *want);
            assert_true((v != NULL) == (tt_tensor_data(y) == tt_tensor_data(layouts[l])));
            views += v != NULL;
        }
    }
    assert_int_equal(views, 3 + 1 + 0 + 1 + 11); /* by hand: which shapes only split or join what one stride crosses */
    tt_clear_error();
}

static void flatten_joins_the_last_dimensions(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = counting(TT_SHAPE(2, 3, 4));
    assert_string_equal(TT__DESCRIBE(tt_flatten(x, 1)), "f32 (2, 12)");
    assert_string_equal(TT__DESCRIBE(tt_flatten(x, 0)), "f32 (24)");
    assert_string_equal(TT__DESCRIBE(tt_flatten(x, -1)), "f32 (2, 3, 4)");
    assert_string_equal(TT__DESCRIBE(tt_flatten(tt_ones(TT_SCALAR, TT_F32), 0)), "f32 (1)");
}

/* ---- copies ---- */

static void copies_cross_layouts(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_I32, TT_I64, TT_U8};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        tt_tensor *x = tt_to(counting(TT_SHAPE(3, 5)), dtypes[i]), *y = tt_zeros(TT_SHAPE(5, 3), dtypes[i]);
        assert_false(tt_equal(x, tt_transpose(y, 0, 1)));
        assert_int_equal(tt_copy(tt_transpose(y, 0, 1), x), TT_OK);
        assert_true(tt_equal(x, tt_transpose(y, 0, 1)));
        assert_false(tt_equal(x, y));
        assert_true(tt_equal(tt_to(x, TT_F32), counting(TT_SHAPE(3, 5))));
    }
    tt_tensor *x = counting(TT_SHAPE(2));
    assert_int_equal(tt_copy(x, tt_arange(2)), TT_ERR_DTYPE);
    assert_int_equal(tt_copy(x, counting(TT_SHAPE(3))), TT_ERR_SHAPE);
    assert_int_equal(tt_copy(x, x), TT_OK);
    tt_clear_error();
    assert_int_equal(tt_copy(x, NULL), TT_ERR_INVALID);
    tt_clear_error();
}

/* src and dst over one storage: every element is read before it is written. */
static void copies_within_a_storage(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *square = counting(TT_SHAPE(3, 3)), *before = tt_clone(square);
    assert_int_equal(tt_copy(square, tt_transpose(square, 0, 1)), TT_OK);
    assert_true(tt_equal(square, tt_transpose(before, 0, 1)));
    tt_tensor *table = counting(TT_SHAPE(6, 2)), *column = tt_narrow(table, 1, 0, 1);
    tt_tensor *shifted = tt_clone(tt_narrow(column, 0, 0, 5));
    assert_int_equal(tt_copy(tt_narrow(column, 0, 1, 5), tt_narrow(column, 0, 0, 5)), TT_OK);
    assert_true(tt_equal(tt_narrow(column, 0, 1, 5), shifted));
}

/* Sizes no stride can hold are refused, also where there is no element. */
static void impossible_shapes(void **state) {
    (void)state;
    const int64_t big = INT64_C(1) << 40;
    const tt_shape shapes[] = {TT_SHAPE(big, big),  TT_SHAPE(0, big, big), TT_SHAPE(big, big, 0), TT_SHAPE(big, 0, big),
                               TT_SHAPE(INT64_MAX), TT_SHAPE(-1),          {.ndim = 9},           {.ndim = -1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        assert_null(tt_empty(shapes[i], TT_F32));
        assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
        tt_clear_error();
    }
    TT_AUTO_SCOPE;
    assert_null(tt_view(tt_empty(TT_SHAPE(0), TT_F32), TT_SHAPE(0, big, big)));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    tt_clear_error();
    assert_int_equal(tt_tensor_size(tt_flatten(tt_empty(TT_SHAPE(big, 0), TT_F32), 0), 0), 0);
}

static void conversions(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data(((double[]){-1.75, 2.5, 1e300, -1e300}), TT_SHAPE(4), TT_F64);
    const int64_t *i = tt_tensor_i64(tt_to(x, TT_I64));
    assert_true(i[0] == -1 && i[1] == 2 && i[2] == INT64_MAX && i[3] == INT64_MIN);
    tt_tensor *big = tt_full(TT_SCALAR, TT_I64, 16777217);
    assert_true(tt_tensor_f32(tt_to(big, TT_F32))[0] == 16777216.0f);
    assert_true(tt_equal(tt_to(tt_to(big, TT_F64), TT_I64), big));
    assert_int_equal(*(uint8_t *)tt_tensor_data(tt_to(tt_full(TT_SCALAR, TT_I32, 257), TT_U8)), 1);
}

/* Floats that an integer type doesn't hold become the ends of its range, NaN 0, wherever they are converted. */
static void floats_out_of_range_are_clipped(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const struct {
        tt_dtype dtype;
        double low, high;
    } types[] = {{TT_U8, 0, 255}, {TT_I8, -128, 127}, {TT_I16, -32768, 32767}, {TT_I32, INT32_MIN, INT32_MAX}};
    const float values[] = {3e10f, -3e10f, INFINITY, -INFINITY, NAN, 100.9f};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        double low = types[i].low, high = types[i].high;
        const double expected[] = {high, low, high, low, 0, 100};
        for (int d = 0; d < 4; d++) {
            static const tt_dtype from[] = {TT_F32, TT_F64, TT_BF16, TT_F16};
            tt_tensor *x = tt_to(tt_from_data(values, TT_SHAPE(6), TT_F32), from[d]);
            tt_tensor *y = tt_to(tt_to(x, types[i].dtype), TT_F64);
            for (int k = 0; k < (d < 2 ? 6 : 5); k++)
                assert_true(((double *)tt_tensor_data(y))[k] == expected[k]);
        }
        double last = 0;
        assert_int_equal(tt_item(tt_select(tt_linspace(0, 3e10, 3, types[i].dtype), 0, -1), &last), TT_OK);
        assert_true(last == high);
        assert_int_equal(tt_item(tt_select(tt_arange_from(0, -6e10, -3e10, types[i].dtype), 0, -1), &last), TT_OK);
        assert_true(last == low);
        tt_tensor *zeros = tt_zeros(TT_SHAPE(2), types[i].dtype), *index = tt_zeros(TT_SHAPE(1), TT_I64);
        assert_int_equal(tt_item(tt_select(tt_scatter_value(zeros, 0, index, 1e12), 0, 0), &last), TT_OK);
        assert_true(last == high);
    }
}

static void equality_is_of_bits(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *nan = tt_full(TT_SCALAR, TT_F32, __builtin_nan("")), *zero = tt_zeros(TT_SCALAR, TT_F32);
    assert_true(tt_equal(nan, nan));
    assert_false(tt_equal(zero, tt_full(TT_SCALAR, TT_F32, -0.0)));
    assert_false(tt_equal(zero, tt_zeros(TT_SCALAR, TT_I32)));
    assert_false(tt_equal(zero, tt_zeros(TT_SHAPE(1), TT_F32)));
    assert_false(tt_equal(zero, NULL));
}

/* A loan ends with the lender, unless the caller keeps the tensor. */
static void a_lent_tensor_can_be_kept(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = counting(TT_SHAPE(4, 3)), *y = tt_narrow(x, 0, 0, 2), *other = tt_narrow(x, 0, 2, 2);
    assert_int_equal(tt__tensor_lend(y, "a lender"), TT_OK);
    tt_tensor_free(y);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_non_null(strstr(tt_last_error(), "belongs to a lender"));
    assert_int_equal(tt__tensor_adopt(y, "a module"), TT_ERR_STATE);
    assert_ptr_equal(tt_keep(y), y);
    assert_ptr_equal(tt_keep(y), y); /* once is enough */
    tt__tensor_take_back(y);
    assert_true(tt_tensor_f32(y)[5] == 5);
    assert_true(tt__tensor_is_shared(y));
    tt_tensor_free(y);
    assert_int_equal(tt__tensor_lend(other, "a lender"), TT_OK);
    tt__tensor_take_back(other); /* not kept: gone, and x's storage has one user again */
    assert_false(tt__tensor_is_shared(x));
    tt__tensor_take_back(NULL);
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_and_looking),
        cmocka_unit_test(every_dtype_is_a_tensors),
        cmocka_unit_test(values_are_rounded_to_their_type),
        cmocka_unit_test(a_blob_is_not_copied),
        cmocka_unit_test(scope_recycles),
        cmocka_unit_test(ending_the_outer_ends_the_inner),
        cmocka_unit_test(scopes_nest_deeply),
        cmocka_unit_test(every_way_out_of_a_block_ends_its_scope),
        cmocka_unit_test(kept_tensors_live_on),
        cmocka_unit_test(only_owners_free),
        cmocka_unit_test(the_first_error_of_a_scope_is_kept),
        cmocka_unit_test(a_tensor_may_be_freed_by_another_thread),
        cmocka_unit_test(views_share_storage),
        cmocka_unit_test(reshape_keeps_the_order),
        cmocka_unit_test(flatten_joins_the_last_dimensions),
        cmocka_unit_test(copies_cross_layouts),
        cmocka_unit_test(copies_within_a_storage),
        cmocka_unit_test(impossible_shapes),
        cmocka_unit_test(conversions),
        cmocka_unit_test(floats_out_of_range_are_clipped),
        cmocka_unit_test(equality_is_of_bits),
        cmocka_unit_test(a_lent_tensor_can_be_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
