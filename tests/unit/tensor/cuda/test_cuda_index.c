/* Indexing, order and choices on a CUDA device, or on its fake, beside the cpu: see test_cuda.c. Elements are moved,
 * and sums have the cpu's order, so results are its bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_compare.h"

static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I64, TT_I32, TT_I16, TT_I8, TT_U8, TT_BOOL};
enum { TYPES = sizeof types / sizeof *types };

static void expect_same(const char *what, tt_dtype dtype, tt_tensor *got, tt_tensor *expected) {
    if (!got || !expected || !tt_equal(got, expected))
        fail_msg("%s of %s is not the cpu's: %s", what, tt_dtype_name(dtype), tt_last_error());
}

/* Numbers of this type: -5 .. 5, mixed; of f32 with a fraction. */
static tt_tensor *mixed(tt_shape shape, tt_dtype dtype) {
    int64_t n = 1;
    for (int d = 0; d < shape.ndim; d++)
        n *= shape.dim[d];
    double *v = calloc((size_t)n + 1, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (double)(i * 37 % 11 - 5) * 1.1;
    tt_tensor *x = tt_to(tt_from_data(v, shape, TT_F64), dtype);
    free(v);
    return x;
}

/* Indices below `limit`, several of each; (n). */
static tt_tensor *places_below(int64_t limit, int64_t n) {
    int64_t *v = calloc((size_t)n + 1, sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (i * i + i / 7) % limit;
    tt_tensor *x = tt_from_data(v, S(n), TT_I64);
    free(v);
    return x;
}

/* What an operator makes of x and a second tensor, both on one device. */
typedef tt_tensor *(*pair_operator)(tt_tensor *x, tt_tensor *other);

static tt_tensor *select_rows(tt_tensor *x, tt_tensor *index) { return tt_index_select(x, 0, index); }
static tt_tensor *select_columns(tt_tensor *x, tt_tensor *index) { return tt_index_select(x, 1, index); }
static tt_tensor *select_of_turned(tt_tensor *x, tt_tensor *index) {
    return tt_index_select(tt_transpose(x, 0, 1), 1, index);
}
static tt_tensor *gather_columns(tt_tensor *x, tt_tensor *index) {
    return tt_gather_dim(x, 1, tt_view(index, S(4, tt_tensor_numel(index) / 4)));
}
static tt_tensor *gather_rows(tt_tensor *x, tt_tensor *index) {
    return tt_gather_dim(x, 0, tt_transpose(tt_view(index, S(3, tt_tensor_numel(index) / 3)), 0, 1));
}
static tt_tensor *scatter_columns(tt_tensor *x, tt_tensor *index) {
    tt_tensor *places = tt_view(index, S(4, tt_tensor_numel(index) / 4));
    return tt_scatter_dim(x, 1, places, tt_gather_dim(x, 1, places));
}
static tt_tensor *scatter_nines(tt_tensor *x, tt_tensor *index) {
    return tt_scatter_value(x, 0, tt_view(index, S(tt_tensor_numel(index) / 4, 4)), 1);
}
static tt_tensor *add_columns(tt_tensor *x, tt_tensor *index) {
    tt_tensor *places = tt_view(index, S(4, tt_tensor_numel(index) / 4));
    return tt_scatter_add(x, 1, places, tt_gather_dim(x, 1, places));
}
static tt_tensor *add_in_one_line(tt_tensor *x, tt_tensor *index) {
    tt_tensor *line = tt_contiguous(tt_narrow(x, 1, 2, 1)), *places = tt_view(index, S(tt_tensor_numel(index), 1));
    return tt_scatter_add(line, 0, places, tt_gather_dim(line, 0, places));
}
static tt_tensor *upper(tt_tensor *x, tt_tensor *index) {
    (void)index;
    return tt_triu(x, 1);
}
static tt_tensor *lower_of_turned(tt_tensor *x, tt_tensor *index) {
    (void)index;
    return tt_tril(tt_transpose(x, 0, 1), -1);
}
static tt_tensor *upper_of_many(tt_tensor *x, tt_tensor *index) {
    (void)index;
    return tt_triu(tt_expand(x, S(2, tt_tensor_size(x, 0), tt_tensor_size(x, 1))), 0);
}
static tt_tensor *choose(tt_tensor *x, tt_tensor *index) {
    (void)index;
    return tt_where(tt_gt(x, tt_narrow(x, 0, 0, 1)), x, tt_narrow(x, 1, 1, 1));
}
static tt_tensor *fill_masked(tt_tensor *x, tt_tensor *index) {
    (void)index;
    return tt_masked_fill(x, tt_eq(tt_narrow(x, 1, 0, 1), tt_narrow(x, 1, 2, 1)), 1);
}

static const struct {
    const char *name;
    pair_operator run;
    int64_t limit, count; /* of the indices */
} movers[] = {
    {"index_select", select_rows, 8, 50},
    {"index_select of columns", select_columns, 6, 100},
    {"index_select, turned", select_of_turned, 8, 70},
    {"index_select of nothing", select_rows, 8, 0},
    {"gather", gather_columns, 6, 40},
    {"gather, turned", gather_rows, 8, 24},
    {"scatter", scatter_columns, 6, 40},
    {"scatter of a number", scatter_nines, 8, 20},
    {"scatter_add", add_columns, 6, 40},
    {"scatter_add in one line", add_in_one_line, 8, 100},
    {"triu", upper, 1, 0},
    {"tril, turned", lower_of_turned, 1, 0},
    {"triu of several", upper_of_many, 1, 0},
    {"where", choose, 1, 0},
    {"masked_fill", fill_masked, 1, 0},
};

static void elements_go_where_the_cpus_go(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        for (int t = 0; t < TYPES; t++) {
            TT_AUTO_SCOPE;
            tt_tensor *index = places_below(movers[i].limit, movers[i].count), *x = mixed(S(8, 6), types[t]);
            expect_same(movers[i].name, types[t], movers[i].run(there(x), there(index)), movers[i].run(x, index));
        }
}

static tt_tensor *slope_of(pair_operator run, tt_tensor *x, tt_tensor *index) {
    tt_requires_grad_(x, true);
    tt_tensor *y = run(x, index),
              *g = y ? tt_to_device(mixed(tt_tensor_shape(y), tt_tensor_dtype(x)), tt_tensor_device(x)) : NULL;
    return g && !tt_backward(tt_sum(tt_mul(y, g))) ? tt_grad(x) : NULL;
}

static void gradients_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *index = places_below(movers[i].limit, movers[i].count),
                      *x = tt_detach(mixed(S(8, 6), floats[f]));
            tt_tensor *far = tt_detach(there(x));
            expect_close(movers[i].name, floats[f], slope_of(movers[i].run, far, there(index)),
                         slope_of(movers[i].run, x, index));
        }
}

static tt_tensor *long_cumsum(tt_tensor *x) { return tt_cumsum(x, 1); }
static tt_tensor *short_cumsum(tt_tensor *x) { return tt_cumsum(x, 0); }
static tt_tensor *turned_cumsum(tt_tensor *x) { return tt_cumsum(tt_transpose(x, 0, 1), 0); }

static void running_sums_are_the_cpus(void **state) {
    (void)state;
    tt_tensor *(*const sums[])(tt_tensor *) = {long_cumsum, short_cumsum, turned_cumsum};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = tt_detach(mixed(S(3, 100), floats[f])), *far = tt_detach(there(x));
            tt_requires_grad_(x, true);
            tt_requires_grad_(far, true);
            tt_tensor *y = sums[i](x), *far_y = sums[i](far);
            expect_close("cumsum", floats[f], far_y, y);
            assert_int_equal(tt_backward(tt_sum(tt_mul(y, y))), TT_OK);
            assert_int_equal(tt_backward(tt_sum(tt_mul(far_y, far_y))), TT_OK);
            expect_close("the gradient of cumsum", floats[f], tt_grad(far), tt_grad(x));
        }
}

/* NaN and infinities behind their place alone. */
static void running_sums_keep_not_numbers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(2, 90), TT_F32);
    tt_tensor_f32(x)[40] = INFINITY;
    tt_tensor_f32(x)[60] = -INFINITY;
    tt_tensor_f32(x)[130] = NAN;
    expect_close("cumsum", TT_F32, tt_cumsum(there(x), 1), tt_cumsum(x, 1));
}

static void comparisons_are_the_cpus(void **state) {
    (void)state;
    tt_tensor *(*const compare[])(tt_tensor *, tt_tensor *) = {tt_eq, tt_ne, tt_lt, tt_le, tt_gt, tt_ge};
    for (size_t i = 0; i < sizeof compare / sizeof *compare; i++)
        for (int t = 0; t < TYPES; t++) {
            TT_AUTO_SCOPE;
            tt_tensor *a = mixed(S(7, 9), types[t]), *b = tt_narrow(a, 0, 3, 1), *turned = tt_transpose(a, 0, 1);
            if (types[t] == TT_F32)
                tt_tensor_f32(a)[30] = NAN;
            expect_same("a comparison", types[t], compare[i](there(a), there(b)), compare[i](a, b));
            tt_tensor *far = tt_transpose(there(a), 0, 1);
            expect_same("a comparison, turned", types[t], compare[i](far, tt_narrow(far, 1, 2, 1)),
                        compare[i](turned, tt_narrow(turned, 1, 2, 1)));
            expect_same("a comparison to a number", types[t], tt_ge_scalar(there(a), 1), tt_ge_scalar(a, 1));
        }
}

/* ---- dropout: the same elements ---- */

static tt_tensor *dropped(tt_tensor *x, bool turned) {
    tt_manual_seed(9);
    return tt_dropout(turned ? tt_transpose(x, 0, 1) : x, 0.4, true);
}

static void the_same_elements_are_dropped(void **state) {
    (void)state;
    for (int f = 0; f < FLOATS; f++)
        for (int kind = 0; kind < 3; kind++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = tt_detach(numbers(13, kind == 2 ? 1 : 17, floats[f])), *far = tt_detach(there(x));
            tt_requires_grad_(x, true);
            tt_requires_grad_(far, true);
            tt_tensor *y = dropped(x, kind == 1), *far_y = dropped(far, kind == 1);
            expect_close("dropout", floats[f], far_y, y);
            expect_same("what is dropped", floats[f], tt_eq_scalar(far_y, 0), tt_eq_scalar(y, 0));
            assert_int_equal(tt_backward(tt_sum(tt_mul(y, y))), TT_OK);
            assert_int_equal(tt_backward(tt_sum(tt_mul(far_y, far_y))), TT_OK);
            expect_close("the gradient of dropout", floats[f], tt_grad(far), tt_grad(x));
        }
}

/* A gradient whose order of memory is not y's: places are those of dx. */
static void gradients_of_another_layout_are_dropped_alike(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_detach(numbers(6, 10, TT_F32)), *far = tt_detach(there(x)), *g = numbers(10, 6, TT_F32);
    tt_requires_grad_(x, true);
    tt_requires_grad_(far, true);
    assert_int_equal(tt_backward(tt_sum(tt_mul(dropped(x, false), tt_transpose(g, 0, 1)))), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_mul(dropped(far, false), tt_transpose(there(g), 0, 1)))), TT_OK);
    expect_close("the gradient of dropout", TT_F32, tt_grad(far), tt_grad(x));
}

/* ---- embeddings ---- */

enum { STEPS = 15, WORDS = 300 };

/* Learn the successor of each of 20 tokens; token 3 is padding. Indices are many more than a block takes at a time. */
static void train_words(const tt_device *device, double loss[STEPS], tt_tensor **table) {
    tt_manual_seed(5);
    tt_module *model = tt_nn_sequential(tt_nn_embedding(20, 12, .padding_idx = &(int64_t){3}), tt_nn_dropout(0.1),
                                        tt_nn_linear(12, 20));
    tt_tensor *x = places_below(20, WORDS), *y = tt_index_select(tt_arange_from(19, -1, -1, TT_I64), 0, x);
    assert_int_equal(tt_module_to_device(model, device), TT_OK);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 1, .momentum = 0.5);
    x = tt_to_device(x, device);
    y = tt_to_device(y, device);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *l = tt_cross_entropy(tt_module_forward(model, x), y);
        tt_optimizer_zero_grad(sgd);
        if (tt_backward(l) || tt_item(l, &loss[step]) || tt_optimizer_step(sgd))
            fail_msg("step %d on %s: %s", step, tt_device_name(device), tt_last_error());
    }
    *table = tt_clone(here(tt_named_tensors_find(tt_module_parameters(model), "0.weight")));
    tt_optimizer_free(sgd);
    tt_module_free(model);
}

static void embeddings_train(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double near[STEPS], far[STEPS], again[STEPS];
    tt_tensor *near_table, *far_table, *again_table;
    train_words(TT_CPU, near, &near_table);
    train_words(TT_CUDA(0), far, &far_table);
    train_words(TT_CUDA(0), again, &again_table);
    for (int step = 0; step < STEPS; step++)
        if (!(fabs(near[step] - far[step]) <= 1e-4))
            fail_msg("step %d: loss %.9g on the cpu, %.9g on the device", step, near[step], far[step]);
    assert_true(difference(far_table, near_table) < 1e-4);
    assert_true(tt_equal(far_table, again_table));
    assert_true(far[STEPS - 1] < 0.8 * far[0]);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_go_where_the_cpus_go),
        cmocka_unit_test(gradients_are_the_cpus),
        cmocka_unit_test(running_sums_are_the_cpus),
        cmocka_unit_test(running_sums_keep_not_numbers),
        cmocka_unit_test(comparisons_are_the_cpus),
        cmocka_unit_test(the_same_elements_are_dropped),
        cmocka_unit_test(gradients_of_another_layout_are_dropped_alike),
        cmocka_unit_test(embeddings_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
