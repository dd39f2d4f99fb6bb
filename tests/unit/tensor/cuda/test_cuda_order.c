/* Sorting on the CUDA device, beside the cpu, and what the device's tables have: test_cuda.c says on what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_compare.h"
#include "tensor/device/device.h"
#include "tensor/kernels/kernels.h"
#include "tensor/ops/ops.h"

static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I64, TT_I32, TT_I16, TT_I8, TT_U8, TT_BOOL};
enum { TYPES = sizeof types / sizeof *types };

/* ---- tables ---- */

/* Entries that the plain loops have and the device lacks are written to `text`; find_outside waits, and expect_within
 * takes its place. */
static void list_missing(tt_dtype dtype, char *text, size_t size) {
    const tt__kernels *plain = tt__reference_kernels[dtype], *far = TT_CUDA(0)->kernels[dtype];
    size_t used = 0;
#define LIST_ENTRY(name, arguments)                                      \
    if (plain->name && !far->name && strcmp(#name, "find_outside") != 0) \
        used += (size_t)snprintf(text + used, used < size ? size - used : 0, " " #name);
    TT__KERNEL_LIST(LIST_ENTRY)
#undef LIST_ENTRY
}

static void no_kernel_is_missing(void **state) {
    (void)state;
    for (int t = 0; t < TYPES; t++) {
        char missing[2048] = "";
        list_missing(types[t], missing, sizeof missing);
        if (*missing)
            fail_msg("the device lacks of %s:%s (docs/gpu.md says that it has all)", tt_dtype_name(types[t]), missing);
    }
}

/* ---- what no operator of the library asks for yet ---- */

static void expect_equal(const char *what, tt_dtype dtype, tt_tensor *got, tt_tensor *expected) {
    if (!got || !expected || !tt_equal(here(got), here(expected)))
        fail_msg("%s of %s is not the cpu's: %s", what, tt_dtype_name(dtype), tt_last_error());
}

static tt_tensor *shuffled(tt_shape shape, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(shape, TT_F64);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        ((double *)tt_tensor_data(x))[i] = (double)(i * 37 % 101 % 29 - 14) * 0.75;
    return tt_to(x, dtype);
}

/* x, its rows moved by one. */
static tt_tensor *moved_on(tt_tensor *x) {
    static const int64_t rows[] = {1, 2, 3, 4, 0};
    return tt_index_select(x, 0, tt_to_device(tt_from_data(rows, S(5), TT_I64), tt_tensor_device(x)));
}

static tt_tensor *run_cumsum(tt_tensor *x, int dim, bool backwards) {
    tt_tensor *y = tt__empty_like("cumsum", x);
    return tt__cumsum_out("cumsum", y, x, dim, backwards) ? NULL : y;
}

static void integers_and_bools_are_the_cpus(void **state) {
    (void)state;
    for (int t = 0; t < TYPES; t++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = shuffled(S(5, 70), types[t]), *far = there(x), *y = tt__empty_like("y", x),
                  *far_y = tt__empty_like("y", far);
        for (int k = 0; k < 4; k++)
            expect_equal("cumsum", types[t], run_cumsum(far, k % 2, k > 1), run_cumsum(x, k % 2, k > 1));
        expect_equal("argmax", types[t], tt_argmax(far, 1), tt_argmax(x, 1));
        assert_false(tt__add_out("add", y, x, x) || tt__add_out("add", far_y, far, far));
        expect_equal("add", types[t], far_y, y);
        assert_false(tt__sub_out("sub", y, x, moved_on(x)) || tt__sub_out("sub", far_y, far, moved_on(far)));
        expect_equal("sub", types[t], far_y, y);
    }
}

/* ---- sorting ---- */

typedef struct sort_case {
    tt_shape shape;
    int dim;
    int64_t k; /* -1: a sort, not the first k */
    bool descending;
} sort_case;

/* Some are longer than several blocks' tiles. */
static const sort_case sort_cases[] = {
    {{.ndim = 1, .dim = {1}}, 0, -1, false},        {{.ndim = 1, .dim = {31}}, 0, -1, true},
    {{.ndim = 1, .dim = {1000}}, 0, -1, false},     {{.ndim = 1, .dim = {1000}}, 0, -1, true},
    {{.ndim = 2, .dim = {7, 65}}, 1, -1, false},    {{.ndim = 2, .dim = {129, 3}}, 0, -1, true},
    {{.ndim = 3, .dim = {3, 40, 2}}, 1, -1, false}, {{.ndim = 2, .dim = {4, 200}}, 1, 5, false},
    {{.ndim = 2, .dim = {100, 3}}, 0, 100, true},   {{.ndim = 2, .dim = {4, 9}}, 1, 0, true},
    {{.ndim = 2, .dim = {0, 9}}, 1, -1, true},      {{.ndim = 0}, 0, -1, false},
};

static void sort_on(const sort_case *c, tt_tensor *x, tt_tensor **values, tt_tensor **indices) {
    tt_status status = c->k < 0 ? tt_sort(values, indices, x, c->dim, .descending = c->descending)
                                : tt_topk(values, indices, x, c->k, c->dim, .smallest = !c->descending);
    if (status)
        fail_msg("sort on %s: %s", tt_device_name(tt_tensor_device(x)), tt_last_error());
}

static void orders_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sort_cases / sizeof *sort_cases; i++)
        for (int t = 0; t < TYPES; t++) {
            TT_AUTO_SCOPE;
            const sort_case *c = &sort_cases[i];
            tt_tensor *x = shuffled(c->shape, types[t]), *values, *indices, *far_values, *far_indices;
            sort_on(c, x, &values, &indices);
            sort_on(c, there(x), &far_values, &far_indices);
            expect_equal("sort", types[t], far_values, values);
            expect_equal("the order", types[t], far_indices, indices);
            if (c->shape.ndim)
                expect_equal("argsort", types[t], tt_argsort(there(x), c->dim), tt_argsort(x, c->dim));
        }
}

/* NaN is the largest, in either direction; equal numbers, NaN too, stay in order. */
static void nan_is_the_largest(void **state) {
    (void)state;
    for (int descending = 0; descending < 2; descending++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = shuffled(S(300), TT_F32), *values, *indices, *far_values, *far_indices;
        for (int i = 3; i < 300; i += 41)
            tt_tensor_f32(x)[i] = i % 2 ? NAN : INFINITY;
        assert_false(tt_sort(&values, &indices, x, 0, .descending = descending));
        assert_false(tt_sort(&far_values, &far_indices, there(x), 0, .descending = descending));
        assert_true(isnan(tt_tensor_f32(here(far_values))[descending ? 0 : 299]));
        expect_equal("the order", TT_F32, far_indices, indices);
        assert_true(difference(far_values, values) == 0);
    }
}

static tt_tensor *slope_of_sort(const sort_case *c, tt_tensor *x) {
    tt_tensor *values, *indices;
    tt_requires_grad_(x, true);
    sort_on(c, x, &values, &indices);
    tt_shape shape = tt_tensor_shape(values);
    tt_tensor *slope =
        tt_to_device(tt_view(tt_to(tt_arange(tt_tensor_numel(values)), TT_F32), shape), tt_tensor_device(x));
    return tt_backward(tt_sum(tt_mul(values, slope))) ? NULL : tt_grad(x);
}

static void slopes_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sort_cases / sizeof *sort_cases; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_detach(shuffled(sort_cases[i].shape, TT_F32)), *far = tt_detach(there(x));
        expect_close("the gradient of sort", TT_F32, slope_of_sort(&sort_cases[i], far),
                     slope_of_sort(&sort_cases[i], x));
    }
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_kernel_is_missing), cmocka_unit_test(integers_and_bools_are_the_cpus),
        cmocka_unit_test(orders_are_the_cpus),  cmocka_unit_test(nan_is_the_largest),
        cmocka_unit_test(slopes_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
