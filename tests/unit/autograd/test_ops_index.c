/* Operators on shapes, places and order: the checks of op_checks.h, values that are known, wrong inputs. */
#include "op_checks.h"

#include "op_cases_index.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

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

/* ---- joining and indexing */

static void results_lie_as_what_they_are_joined_from(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_memory_format(tt_rand(S(2, 3, 4, 5), NULL), TT_CHANNELS_LAST), *both[] = {x, x};
    tt_tensor *y = tt_cat(both, 2, 1);
    assert_true(tt_to_memory_format(y, TT_CHANNELS_LAST) == y);
    assert_true(tt_equal(tt_contiguous(y), tt_cat((tt_tensor *[]){tt_contiguous(x), x}, 2, 1)));
    assert_true(tt_is_contiguous(tt_stack((tt_tensor *[]){tt_contiguous(x), x}, 2, 0)));
}

/* What of the source no index asks for has a gradient of zero; PyTorch's backward refuses such a source. */
static void sources_may_be_larger(void **state) {
    (void)state;
    const gradcheck_case larger[] = {{"scatter", f_scatter, 2, {{2, {4, 3}}, {2, {3, 4}}}},
                                     {"scatter_add", f_scatter_add, 2, {{2, {2, 3}}, {2, {3, 6}}}}};
    op_check(&(op_family){.cases = larger, .count = 2});
}

/* All element types take part. */
static void every_type_is_indexed(void **state) {
    (void)state;
    for (int t = TT_F32; t <= TT_BOOL; t++) {
        TT_AUTO_SCOPE;
        tt_dtype dtype = (tt_dtype)t;
        tt_tensor *x = tt_to(I64(0, 1, 0, 1, 1), dtype), *index = I64(1, 0, 4);
        tt_tensor *want = tt_to(I64(1, 0, 1), dtype);
        assert_true(tt_equal(tt_index_select(x, 0, index), want) && tt_equal(tt_gather_dim(x, 0, index), want));
        assert_true(tt_equal(tt_slice(tt_cat((tt_tensor *[]){want, x}, 2, 0), 0, 0, 3, 1), want));
        assert_true(tt_equal(tt_scatter_dim(x, 0, index, want), x));
        assert_true(tt_equal(tt_scatter_value(x, 0, index, 1), tt_to(I64(1, 1, 0, 1, 1), dtype)));
        assert_true(tt_equal(tt_scatter_add(x, 0, I64(0, 2), want), tt_to(I64(1, 1, 0, 1, 1), dtype)));
    }
}

/* 256 is the last whole number of bf16 that 1 can be added to: sums are made in f32. */
static void small_types_add_up_in_f32(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(tt_zeros(S(2, 1), TT_BF16), true), *index = tt_zeros(S(1000), TT_I64);
    assert_int_equal(tt_backward(tt_sum(tt_embedding(w, index))), TT_OK);
    double v = 0;
    assert_int_equal(tt_item(tt_select(tt_select(tt_grad(w), 0, 0), 0, 0), &v), TT_OK);
    assert_true(v == 1000);
}

static void padding_gets_no_gradient(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *w = tt_requires_grad_(tt_ones(S(4, 2), TT_F32), true), *index = I64(3, 1, 3, 0);
    for (int64_t padding = -1; padding <= 3; padding += 4) {
        tt_zero_grad(w);
        assert_int_equal(tt_backward(tt_sum(tt_embedding(w, index, .padding_idx = &padding))), TT_OK);
        assert_true(
            tt_equal(tt_grad(w), tt_to(tt_from_data(((int64_t[]){1, 1, 1, 1, 0, 0, 0, 0}), S(4, 2), TT_I64), TT_F32)));
    }
}

/* The gradient of a large table has the bits of the plain loops, whatever the number of threads. */
static void large_tables_have_the_bits_of_the_plain_loops(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *table = tt_rand(S(300, 64), NULL), *index = tt_randint(0, 300, S(8, 500), NULL);
    tt_tensor *g = tt_randn(S(8, 500, 64), NULL), *grad[3];
    for (int i = 0; i < 3; i++) {
        const tt_device *device = tt_device_get(i == 2 ? "reference" : "cpu");
        tt_tensor *w = tt_requires_grad_(tt_to_device(tt_clone(table), device), true);
        assert_int_equal(tt_set_num_threads(i + 1), TT_OK);
        tt_tensor *y = tt_embedding(w, tt_to_device(index, device));
        assert_int_equal(tt_backward(y, .gradient = tt_to_device(g, device)), TT_OK);
        grad[i] = tt_to_device(tt_clone(tt_grad(w)), tt_device_get("cpu"));
    }
    assert_int_equal(tt_set_num_threads(0), TT_OK);
    assert_true(tt_equal(grad[0], grad[1]) && tt_equal(grad[0], grad[2]));
}

/* ---- order */

static void sorting_is_stable_and_nan_is_largest(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const float numbers[] = {2, NAN, -1, 2, -INFINITY, NAN, 2, -0.0f, 0, INFINITY};
    tt_tensor *x = tt_from_data(numbers, S(10), TT_F32), *values, *indices;
    assert_true(tt_equal(tt_argsort(x, 0), I64(4, 2, 7, 8, 0, 3, 6, 9, 1, 5)));
    assert_true(tt_equal(tt_argsort(x, 0, .descending = true), I64(1, 5, 9, 0, 3, 6, 7, 8, 2, 4)));
    assert_int_equal(tt_topk(&values, &indices, x, 3, -1), TT_OK);
    assert_true(tt_equal(indices, I64(1, 5, 9)));
    assert_int_equal(tt_topk(&values, &indices, x, 0, -1), TT_OK);
    assert_int_equal(tt_tensor_numel(values), 0);
}

/* Long rows, many equal ones: in order, and equal ones in the order in which they stood. */
static void long_rows_are_sorted(void **state) {
    (void)state;
    enum { N = 1000 };
    for (int t = TT_F32; t <= TT_BOOL; t++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to(tt_randint(0, t == TT_BOOL ? 2 : 100, S(N), NULL), (tt_dtype)t), *values, *indices;
        assert_int_equal(tt_sort(&values, &indices, x, 0), TT_OK);
        const int64_t *v = tt_tensor_i64(tt_to(values, TT_I64)), *at = tt_tensor_i64(indices);
        for (int i = 1; i < N; i++)
            assert_true(v[i - 1] < v[i] || (v[i - 1] == v[i] && at[i - 1] < at[i]));
        assert_true(tt_equal(tt_index_select(x, 0, indices), values));
    }
}

static void one_hot_marks_places(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_one_hot(tt_view(I64(2, 0), S(2, 1)), 3);
    assert_true(tt_equal(x, tt_from_data(((int64_t[]){0, 0, 1, 1, 0, 0}), S(2, 1, 3), TT_I64)));
    assert_true(tt_equal(tt_one_hot(tt_full(TT_SCALAR, TT_I64, 1), 2), I64(0, 1)));
    assert_int_equal(tt_tensor_numel(tt_one_hot(tt_zeros(S(0), TT_I64), 2)), 0);
    op_expect(tt_one_hot(I64(0, 3), 3), TT_ERR_INVALID, "tt_one_hot", "0..2 (dimension 1 of i64 (2, 3)), got index[1]");
    op_expect(tt_one_hot(I64(0), 0), TT_ERR_INVALID, "tt_one_hot", "got 0");
    op_expect(tt_one_hot(tt_zeros(S(2), TT_F32), 2), TT_ERR_DTYPE, "tt_one_hot", "got f32 (2)");
}

static void masks_are_triangles(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *mask = tt_tril(tt_ones(S(2, 2), TT_BOOL), 0), *x = tt_ones(S(2, 3), TT_F16);
    assert_true(tt_equal(tt_to(mask, TT_I64), tt_from_data(((int64_t[]){1, 0, 1, 1}), S(2, 2), TT_I64)));
    assert_true(tt_equal(tt_triu(x, INT64_MIN), x) && tt_equal(tt_triu(x, INT64_MAX), tt_zeros(S(2, 3), TT_F16)));
}

/* ---- making; numbers as PyTorch gives them */

static tt_tensor *f64s(int64_t n, const double *v) { return tt_from_data(v, S(n), TT_F64); }
#define F64(...) f64s((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static void numbers_at_equal_distances(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_true(tt_equal(tt_arange_from(5, 0, -1.5, TT_F64), F64(5, 3.5, 2, 0.5)));
    assert_true(tt_equal(tt_arange_from(0, 1, 0.25, TT_BF16), tt_to(F64(0, 0.25, 0.5, 0.75), TT_BF16)));
    assert_true(tt_equal(tt_arange_from(-2, 5, 3, TT_I64), I64(-2, 1, 4)));
    assert_int_equal(tt_tensor_numel(tt_arange_from(2, 2, 1, TT_F32)), 0);
    tt_tensor *line = tt_linspace(3, -2, 7, TT_F64);
    assert_true(gradcheck_difference(line, F64(3, 13.0 / 6, 4.0 / 3, 0.5, -1.0 / 3, -7.0 / 6, -2)) < 1e-15);
    assert_true(tt_equal(tt_slice(line, 0, 0, 7, 6), F64(3, -2)));
    assert_true(tt_equal(tt_linspace(0, 10, 4, TT_I64), I64(0, 3, 6, 10)));
    assert_true(tt_equal(tt_linspace(5, 6, 1, TT_F64), F64(5)));
    assert_int_equal(tt_tensor_numel(tt_linspace(0, 1, 0, TT_F32)), 0);
    op_expect(tt_arange_from(0, 1, -1, TT_F32), TT_ERR_INVALID, "tt_arange_from", "got 0, 1, -1");
    op_expect(tt_arange_from(0, 1, 0, TT_F32), TT_ERR_INVALID, "tt_arange_from", "got 0, 1, 0");
    op_expect(tt_arange_from(0, NAN, 1, TT_F32), TT_ERR_INVALID, "tt_arange_from", "got 0, nan, 1");
    op_expect(tt_arange_from(0, 5, 2.5, TT_I32), TT_ERR_INVALID, "tt_arange_from", "for i32, got 0 by steps of 2.5");
    op_expect(tt_linspace(0, 1, -1, TT_F32), TT_ERR_SHAPE, "tt_linspace", "(-1)");
}

static void made_like_others(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_memory_format(tt_rand(S(2, 3, 4, 5), NULL), TT_CHANNELS_LAST), *y = tt_full_like(x, 2.5);
    assert_true(gradcheck_same_order(y, x) && tt_equal(y, tt_full(S(2, 3, 4, 5), TT_F32, 2.5)));
    assert_true(tt_equal(tt_zeros_like(I64(1, 2)), I64(0, 0)) && tt_equal(tt_ones_like(I64(1, 2)), I64(1, 1)));
    assert_true(tt_equal(tt_eye(2, 3, TT_I64), tt_one_hot(I64(0, 1), 3)));
    assert_true(tt_equal(tt_eye(3, 2, TT_I64), tt_transpose(tt_one_hot(I64(0, 1), 3), 0, 1)));
    assert_int_equal(tt_tensor_numel(tt_eye(0, 4, TT_F32)), 0);
    op_expect(tt_full_like(tt_zeros(S(1), TT_U8), 256), TT_ERR_INVALID, "tt_full_like", "256 does not fit u8");
    op_expect(tt_eye(-1, 2, TT_F32), TT_ERR_SHAPE, "tt_eye", "(-1, 2)");
    assert_null(tt_zeros_like(NULL));
}

/* ---- products of batches */

/* Large enough for threads: many small products side by side, and few large ones. */
static void large_batches_match_f64(void **state) {
    (void)state;
    static const tt_shape shapes[][2] = {{{4, {6, 7, 33, 48}}, {4, {6, 7, 48, 40}}},
                                         {{3, {3, 150, 100}}, {3, {3, 100, 170}}},
                                         {{4, {5, 1, 30, 64}}, {3, {9, 64, 50}}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const gradcheck_case c = {"batches", f_batched, 2, {shapes[i][0], shapes[i][1]}};
        for (int mode = 0; mode < GRADCHECK_MODES; mode++)
            if (mode != GRADCHECK_STRIDED || i == 1)
                op_below(gradcheck_f32_worst(&c, (gradcheck_mode)mode), 2e-5, &c, (gradcheck_mode)mode,
                         "f32 differs from f64");
    }
}

static void wrong_products(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a = tt_zeros(S(2, 3, 4), TT_F32), *b = tt_zeros(S(3, 4, 5), TT_F32),
              *scalar = tt_zeros(TT_SCALAR, TT_F32);
    op_expect(tt_bmm(a, b), TT_ERR_SHAPE, "tt_bmm", "a f32 (2, 3, 4), b f32 (3, 4, 5)");
    op_expect(tt_bmm(a, tt_zeros(S(4, 5), TT_F32)), TT_ERR_SHAPE, "tt_bmm", "b f32 (4, 5)");
    op_expect(tt_bmm(a, tt_zeros(S(2, 3, 4), TT_F32)), TT_ERR_SHAPE, "tt_bmm", "(B, K, N)");
    op_expect(tt_bmm(a, tt_zeros(S(2, 4, 4), TT_F64)), TT_ERR_DTYPE, "tt_bmm", "b f64");
    op_expect(tt_matmul(a, b), TT_ERR_SHAPE, "tt_matmul", "a f32 (2, 3, 4), b f32 (3, 4, 5)");
    op_expect(tt_matmul(a, scalar), TT_ERR_SHAPE, "tt_matmul", "b f32 ()");
    op_expect(tt_matmul(a, tt_zeros(S(3), TT_F32)), TT_ERR_SHAPE, "tt_matmul", "b f32 (3)");
    assert_null(tt_bmm(NULL, b));
    assert_null(tt_bmm(a, NULL));
}

/* ---- attention */

/* Several blocks of rows, against the plain loops. */
static void long_attention_matches_the_reference(void **state) {
    (void)state;
    const gradcheck_kind cpu = {"cpu", TT_F32, TT_F32}, plain = {"reference", TT_F64, TT_F32};
    const gradcheck_case cases[] = {
        {"long", f_attention, 3, {{3, {2, 150, 16}}, {3, {2, 90, 16}}, {3, {2, 90, 8}}}},
        {"long, causal", f_attention_causal, 3, {{3, {2, 150, 16}}, {3, {2, 150, 16}}, {3, {2, 150, 8}}}},
        {"long, masked", f_attention_masked, 3, {{3, {2, 130, 16}}, {3, {2, 70, 16}}, {3, {2, 70, 8}}}}};
    const gradcheck_kind half = {"cpu", TT_BF16, TT_BF16}, exact = {"reference", TT_F64, TT_BF16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_below(gradcheck_compare(&cases[i], GRADCHECK_LEAF, &cpu, &plain), 2e-5, &cases[i], GRADCHECK_LEAF,
                 "f32 is off");
        op_below(gradcheck_compare(&cases[i], GRADCHECK_LEAF, &half, &exact), 2e-2, &cases[i], GRADCHECK_LEAF,
                 "bf16 is off");
    }
}

static void rows_that_see_nothing_are_zero(void **state) {
    (void)state;
    for (int device = 0; device < 2; device++) {
        TT_AUTO_SCOPE;
        const tt_device *on = tt_device_get(device ? "reference" : "cpu");
        tt_tensor *q = tt_requires_grad_(tt_to_device(tt_ones(S(2, 3), TT_F32), on), true);
        tt_tensor *mask = tt_to_device(tt_to(tt_view(I64(0, 1), S(2, 1)), TT_BOOL), on);
        tt_tensor *y = tt_scaled_dot_product_attention(q, q, q, .attn_mask = mask);
        assert_true(tt_equal(tt_select(y, 0, 0), tt_to_device(tt_zeros(S(3), TT_F32), on)));
        assert_true(tt_equal(tt_select(y, 0, 1), tt_to_device(tt_ones(S(3), TT_F32), on)));
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        assert_true(gradcheck_difference(tt_grad(q), tt_full(S(2, 3), TT_F32, 0.5)) < 1e-6);
    }
}

/* A row that sees one key has its value whatever q and k are. Backward does not need the result, which may be
 * reused. */
static void attention_to_one_key(void **state) {
    (void)state;
    static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_BF16};
    for (int i = 0; i < 3; i++) {
        TT_AUTO_SCOPE;
        tt_generator *g = tt_generator_new(7);
        tt_tensor *x[3];
        for (int n = 0; n < 3; n++)
            x[n] = tt_requires_grad_(tt_to(tt_randn(S(n ? 1 : 5, 8), g), dtypes[i]), true);
        tt_tensor *y = tt_scaled_dot_product_attention(x[0], x[1], x[2]), *g_y = tt_to(tt_randn(S(5, 8), g), dtypes[i]);
        {
            TT_NO_GRAD;
            assert_non_null(tt_fill_(y, 100));
        }
        assert_int_equal(tt_backward(y, .gradient = g_y), TT_OK);
        double largest = -1;
        for (int n = 0; n < 2; n++) {
            assert_int_equal(tt_item(tt_max(tt_abs(tt_grad(x[n]))), &largest), TT_OK);
            assert_true(largest == 0);
        }
        assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(tt_grad(x[2]), tt_sum(g_y, .dim = TT_DIMS(0))))), &largest),
                         TT_OK);
        assert_true(largest < (dtypes[i] == TT_BF16 ? 4e-2 : 1e-5));
        tt_generator_free(g);
    }
}

static void wrong_attention(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const char who[] = "tt_scaled_dot_product_attention";
    tt_tensor *q = tt_zeros(S(2, 3, 4), TT_F32), *k = tt_zeros(S(2, 5, 4), TT_F32), *v = tt_zeros(S(2, 6, 4), TT_F32);
    tt_tensor *row = tt_zeros(S(3), TT_F32), *f64 = tt_zeros(S(5), TT_F64);
    op_expect(tt_scaled_dot_product_attention(q, k, v), TT_ERR_SHAPE, who, "v f32 (2, 6, 4)");
    op_expect(tt_scaled_dot_product_attention(row, row, row), TT_ERR_SHAPE, who, "q f32 (3)");
    op_expect(tt_scaled_dot_product_attention(q, k, k, .attn_mask = row), TT_ERR_SHAPE, who, "got f32 (3)");
    op_expect(tt_scaled_dot_product_attention(q, k, k, .attn_mask = f64), TT_ERR_DTYPE, who, "bool or f32, got f64");
    op_expect(tt_scaled_dot_product_attention(q, k, k, .attn_mask = tt_requires_grad_(tt_zeros(S(5), TT_F32), true)),
              TT_ERR_UNSUPPORTED, who, "no gradient");
    op_expect(tt_scaled_dot_product_attention(q, f64, k), TT_ERR_DTYPE, who, "k f64 (5)");
    assert_null(tt_scaled_dot_product_attention(NULL, k, k));
    tt_tensor *none = tt_requires_grad_(tt_zeros(S(2, 0, 4), TT_F32), true), *query = tt_requires_grad_(q, true);
    tt_tensor *y = tt_scaled_dot_product_attention(query, none, none);
    assert_true(tt_equal(y, tt_zeros(S(2, 3, 4), TT_F32)));
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(tt_equal(tt_grad(query), tt_zeros(S(2, 3, 4), TT_F32)));
}

/* ---- images */

static void wrong_images(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(1, 2, 3, 4), TT_F32);
    op_expect(tt_interpolate(tt_zeros(S(3, 4), TT_F32), S(2, 2)), TT_ERR_SHAPE, "tt_interpolate", "got f32 (3, 4)");
    op_expect(tt_interpolate(x, S(0, 2)), TT_ERR_SHAPE, "tt_interpolate", "f32 (1, 2, 3, 4) and (0, 2)");
    op_expect(tt_interpolate(x, S(2)), TT_ERR_SHAPE, "tt_interpolate", "and (2)");
    op_expect(tt_interpolate(x, S(3, INT64_MAX)), TT_ERR_SHAPE, "tt_interpolate", "9223372036854775807");
    op_expect(tt_interpolate(tt_to_memory_format(x, TT_CHANNELS_LAST), S(3, INT64_MAX)), TT_ERR_SHAPE, "tt_interpolate",
              "9223372036854775807");
    op_expect(tt_interpolate(tt_zeros(S(1, 2, 0, 4), TT_F32), S(2, 2)), TT_ERR_SHAPE, "tt_interpolate", "elements");
    op_expect(tt_interpolate(x, S(2, 2), .align_corners = true), TT_ERR_INVALID, "tt_interpolate", "align_corners");
    op_expect(tt_interpolate(x, S(2, 2), .mode = (tt_interpolate_mode)7), TT_ERR_INVALID, "tt_interpolate", "got 7");
    assert_null(tt_interpolate(NULL, S(2, 2)));
}

/* ---- errors */

static void wrong_orders(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32), *values = x, *indices = x;
    op_expect(tt_triu(tt_zeros(S(3), TT_F32), 0), TT_ERR_SHAPE, "tt_triu", "(..., R, C), got f32 (3)");
    op_expect(tt_cumsum(x, 2), TT_ERR_SHAPE, "tt_cumsum", "no dimension 2");
    op_expect(tt_cumsum(I64(1), 0), TT_ERR_DTYPE, "tt_cumsum", "i64");
    op_expect(tt_argsort(x, -3), TT_ERR_SHAPE, "tt_argsort", "no dimension -3");
    assert_int_equal(tt_sort(&values, &indices, x, 2), TT_ERR_SHAPE);
    op_expect(NULL, TT_ERR_SHAPE, "tt_sort", "no dimension 2");
    assert_int_equal(tt_sort(&values, NULL, x, 0), TT_ERR_INVALID);
    op_expect(NULL, TT_ERR_INVALID, "tt_sort", "`indices` is NULL");
    assert_int_equal(tt_topk(&values, &indices, x, 4, 1), TT_ERR_INVALID);
    op_expect(NULL, TT_ERR_INVALID, "tt_topk", "0..3 (dimension 1 of f32 (2, 3)), got 4");
    assert_int_equal(tt_topk(&values, &indices, x, -1, 1), TT_ERR_INVALID);
    assert_int_equal(tt_topk(&values, &indices, NULL, 1, 1), TT_ERR_INVALID);
    assert_true(values == x && indices == x);
    tt_clear_error();
}

static void wrong_joins(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32), *y = tt_zeros(S(2, 4), TT_F32), *z = tt_zeros(S(2, 3), TT_F64);
    tt_tensor *scalar = tt_zeros(TT_SCALAR, TT_F32);
    op_expect(tt_cat((tt_tensor *[]){x, y}, 2, 0), TT_ERR_SHAPE, "tt_cat", "number 0 f32 (2, 3), number 1 f32 (2, 4)");
    op_expect(tt_cat((tt_tensor *[]){x, x, z}, 3, 0), TT_ERR_DTYPE, "tt_cat", "number 2 f64 (2, 3)");
    op_expect(tt_cat(&x, 1, 2), TT_ERR_SHAPE, "tt_cat", "no dimension 2");
    op_expect(tt_cat(&scalar, 1, 0), TT_ERR_SHAPE, "tt_cat", "no dimension 0 in f32 ()");
    op_expect(tt_cat(&x, 0, 0), TT_ERR_INVALID, "tt_cat", "at least one tensor");
    op_expect(tt_cat(NULL, 2, 0), TT_ERR_INVALID, "tt_cat", "NULL");
    op_expect(tt_stack((tt_tensor *[]){x, y}, 2, 0), TT_ERR_SHAPE, "tt_stack", "number 1 f32 (2, 4)");
    op_expect(tt_stack(&x, 1, 3), TT_ERR_SHAPE, "tt_stack", "no place 3");
    op_expect(tt_stack(&x, -1, 0), TT_ERR_INVALID, "tt_stack", "of -1");
}

static void wrong_indices(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(S(2, 3), TT_F32), *index = tt_full(S(2, 3), TT_I64, 2), *row = I64(0, -1);
    tt_tensor *i32 = tt_zeros(S(2), TT_I32), *large = tt_zeros(S(3, 3), TT_I64);
    int64_t padding = 2;
    op_expect(tt_index_select(x, 1, row), TT_ERR_INVALID, "tt_index_select",
              "indices in 0..2 (dimension 1 of f32 (2, 3)), got index[1] = -1");
    op_expect(tt_index_select(x, 2, row), TT_ERR_SHAPE, "tt_index_select", "no dimension 2");
    op_expect(tt_index_select(x, 0, index), TT_ERR_SHAPE, "tt_index_select", "expected index (n), got i64 (2, 3)");
    op_expect(tt_index_select(x, 0, i32), TT_ERR_DTYPE, "tt_index_select", "index i64, got i32 (2)");
    op_expect(tt_gather_dim(x, 0, index), TT_ERR_INVALID, "tt_gather_dim", "0..1 (dimension 0");
    op_expect(tt_gather_dim(x, 1, large), TT_ERR_SHAPE, "tt_gather_dim", "but in dimension 1, got x f32 (2, 3)");
    op_expect(tt_gather_dim(x, 1, row), TT_ERR_SHAPE, "tt_gather_dim", "index i64 (2)");
    op_expect(tt_scatter_dim(x, 0, large, x), TT_ERR_SHAPE, "tt_scatter_dim", "src f32 (2, 3)");
    op_expect(tt_scatter_dim(x, 1, index, index), TT_ERR_DTYPE, "tt_scatter_dim", "src i64");
    op_expect(tt_scatter_value(x, 0, index, 1), TT_ERR_INVALID, "tt_scatter_value", "index[0] = 2");
    op_expect(tt_scatter_add(x, -3, index, x), TT_ERR_SHAPE, "tt_scatter_add", "no dimension -3");
    op_expect(tt_embedding(x, row), TT_ERR_INVALID, "tt_embedding", "in 0..1 (dimension 0 of f32 (2, 3))");
    op_expect(tt_embedding(x, i32), TT_ERR_DTYPE, "tt_embedding", "i32");
    op_expect(tt_embedding(index, index), TT_ERR_DTYPE, "tt_embedding", "weight i64");
    op_expect(tt_embedding(tt_zeros(S(2), TT_F32), row), TT_ERR_SHAPE, "tt_embedding", "weight (V, C)");
    op_expect(tt_embedding(x, large, .padding_idx = &padding), TT_ERR_INVALID, "tt_embedding", "-2..1, got 2");
    op_expect(tt_gather_dim(x, 1, tt_to_device(index, tt_device_get("reference"))), TT_ERR_INVALID, "tt_gather_dim",
              "on one device");
}

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
    tt_tensor *x = tt_zeros(S(2), TT_I64);
    const tt_tensor *got[] = {
        tt_permute(NULL, S(0)),
        tt_movedim(NULL, 0, 0),
        tt_expand(NULL, S(1)),
        tt_squeeze(NULL, 0),
        tt_cat((tt_tensor *[]){NULL}, 1, 0),
        tt_stack((tt_tensor *[]){x, NULL}, 2, 0),
        tt_index_select(NULL, 0, x),
        tt_index_select(x, 0, NULL),
        tt_gather_dim(NULL, 0, x),
        tt_gather_dim(x, 0, NULL),
        tt_scatter_dim(NULL, 0, x, x),
        tt_scatter_dim(x, 0, NULL, x),
        tt_scatter_dim(x, 0, x, NULL),
        tt_scatter_value(NULL, 0, x, 0),
        tt_scatter_add(x, 0, x, NULL),
        tt_embedding(NULL, x),
        tt_embedding(x, NULL),
        tt_triu(NULL, 0),
        tt_tril(NULL, 0),
        tt_cumsum(NULL, 0),
        tt_argsort(NULL, 0),
        tt_one_hot(NULL, 1),
        tt_squeeze_all(NULL),
        tt_unsqueeze(NULL, 0),
        tt_slice(NULL, 0, 0, 0, 1),
        tt_select(NULL, 0, 0),
    };
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        assert_null(got[i]);
    assert_int_equal(tt_last_status(), TT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OP_FAMILY_TESTS(&index_family),
        cmocka_unit_test(slices_are_brought_inside),
        cmocka_unit_test(views_see_what_is_written),
        cmocka_unit_test(parts_are_those_of_pytorch),
        cmocka_unit_test(results_lie_as_what_they_are_joined_from),
        cmocka_unit_test(sources_may_be_larger),
        cmocka_unit_test(every_type_is_indexed),
        cmocka_unit_test(small_types_add_up_in_f32),
        cmocka_unit_test(padding_gets_no_gradient),
        cmocka_unit_test(large_tables_have_the_bits_of_the_plain_loops),
        cmocka_unit_test(sorting_is_stable_and_nan_is_largest),
        cmocka_unit_test(long_rows_are_sorted),
        cmocka_unit_test(one_hot_marks_places),
        cmocka_unit_test(masks_are_triangles),
        cmocka_unit_test(numbers_at_equal_distances),
        cmocka_unit_test(made_like_others),
        cmocka_unit_test(large_batches_match_f64),
        cmocka_unit_test(wrong_products),
        cmocka_unit_test(long_attention_matches_the_reference),
        cmocka_unit_test(rows_that_see_nothing_are_zero),
        cmocka_unit_test(attention_to_one_key),
        cmocka_unit_test(wrong_attention),
        cmocka_unit_test(wrong_images),
        cmocka_unit_test(wrong_views),
        cmocka_unit_test(wrong_orders),
        cmocka_unit_test(wrong_joins),
        cmocka_unit_test(wrong_indices),
        cmocka_unit_test(null_gives_null_and_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
