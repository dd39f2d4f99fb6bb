/* Collectives on tensors: every one of them on tensors of any layout, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

enum { ROWS = 4, COLUMNS = 3 };

static bool is_error(tt_status status, tt_status expected, const char *text) {
    return status == expected && strstr(tt_last_error(), text);
}

/* (ROWS, COLUMNS) with 100 * rank + its number among the elements, contiguous or as a transposed view. */
static tt_tensor *numbered(int rank, bool plain, tt_dtype dtype) {
    tt_tensor *x = tt_full(TT_SHAPE(ROWS, COLUMNS), TT_F32, 100.0 * rank);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        tt_tensor_f32(x)[i] += (float)i;
    x = tt_to(x, dtype);
    if (plain)
        return x;
    tt_tensor *turned = tt_transpose(tt_empty(TT_SHAPE(COLUMNS, ROWS), dtype), 0, 1);
    CHECK(tt_copy(turned, x) == TT_OK && !tt_is_contiguous(turned));
    return turned;
}

/* Room of the given shape, with its last two dimensions turned if it is not plain. */
static tt_tensor *room(tt_shape shape, bool plain, tt_dtype dtype) {
    if (plain)
        return tt_zeros(shape, dtype);
    int a = shape.ndim - 2, b = shape.ndim - 1;
    int64_t size = shape.dim[a];
    shape.dim[a] = shape.dim[b];
    shape.dim[b] = size;
    return tt_transpose(tt_zeros(shape, dtype), a, b);
}

static double at(tt_tensor *x, int64_t row, int64_t column) {
    double value;
    CHECK(tt_item(tt_narrow(tt_narrow(x, 0, row, 1), 1, column, 1), &value) == TT_OK);
    return value;
}

/* Row r of x is row `row_of` of rank `rank`'s numbered tensor. */
static void check_row(tt_tensor *x, int64_t r, int rank, int64_t row_of) {
    for (int c = 0; c < COLUMNS; c++)
        CHECK(at(x, r, c) == 100.0 * rank + (double)(row_of * COLUMNS + c));
}

static void in_place(tt_group *group, int rank, bool plain, tt_dtype dtype) {
    int world = tt_get_world_size(group);
    tt_tensor *x = numbered(rank, plain, dtype);
    CHECK(tt_tensor_broadcast(group, x, 1) == TT_OK);
    check_row(x, 2, 1, 2);
    x = numbered(0, plain, dtype);
    CHECK(tt_tensor_all_reduce(group, x, TT_SUM) == TT_OK);
    CHECK(at(x, 3, 2) == world * 11 && at(x, 0, 1) == world);
    x = numbered(rank, plain, dtype);
    CHECK(tt_tensor_reduce(group, x, TT_MAX, 0) == TT_OK);
    check_row(x, 1, rank == 0 ? world - 1 : rank, 1);
}

static void gathered(tt_group *group, int rank, bool plain, tt_dtype dtype) {
    int world = tt_get_world_size(group);
    const tt_tensor *x = numbered(rank, plain, dtype);
    tt_tensor *joined = room(TT_SHAPE(world * ROWS, COLUMNS), plain, dtype);
    CHECK(tt_tensor_all_gather(group, x, joined) == TT_OK);
    for (int r = 0; r < world * ROWS; r++)
        check_row(joined, r, r / ROWS, r % ROWS);
    tt_tensor *stacked = room(TT_SHAPE(world, ROWS, COLUMNS), !plain, dtype);
    CHECK(tt_tensor_all_gather(group, x, stacked) == TT_OK);
    CHECK(tt_equal(tt_reshape(stacked, tt_tensor_shape(joined)), joined));
    tt_tensor *at_root = room(TT_SHAPE(world * ROWS, COLUMNS), plain, dtype);
    CHECK(tt_tensor_gather(group, x, rank == 1 ? at_root : NULL, 1) == TT_OK);
    CHECK(rank != 1 || tt_equal(at_root, joined));
    tt_tensor *part = room(TT_SHAPE(ROWS, COLUMNS), plain, dtype);
    CHECK(tt_tensor_scatter(group, rank == 1 ? at_root : NULL, part, 1) == TT_OK);
    CHECK(tt_equal(part, x));
    CHECK(tt_tensor_reduce_scatter(group, joined, part, TT_SUM) == TT_OK);
    CHECK(at(part, 1, 1) == world * (100.0 * rank + 4));
}

static void exchanged(tt_group *group, int rank, bool plain, tt_dtype dtype) {
    int world = tt_get_world_size(group), right = (rank + 1) % world, left = (rank + world - 1) % world, from = -1;
    tt_tensor *x = numbered(rank, plain, dtype), *out = room(TT_SHAPE(ROWS, COLUMNS), plain, dtype);
    CHECK(tt_tensor_all_to_all(group, x, out) == TT_OK);
    for (int r = 0; r < ROWS; r++)
        check_row(out, r, r / (ROWS / world), rank * (ROWS / world) + r % (ROWS / world));
    if (rank % 2) {
        CHECK(tt_tensor_recv(group, out, TT_ANY_SOURCE, .tag = 3, .source = &from) == TT_OK && from == left);
        CHECK(tt_tensor_send(group, x, right, .tag = 3) == TT_OK);
    } else {
        CHECK(tt_tensor_send(group, x, right, .tag = 3) == TT_OK);
        CHECK(tt_tensor_recv(group, out, left, .tag = 3) == TT_OK);
    }
    check_row(out, 3, left, 3);
}

static void every_call(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_I64};
    for (int t = 0; t < 3; t++)
        for (int plain = 0; plain < 2; plain++) {
            TT_AUTO_SCOPE;
            in_place(group, rank, plain, types[t]);
            gathered(group, rank, plain, types[t]);
            exchanged(group, rank, plain, types[t]);
        }
}

static void layouts_and_types(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, every_call, NULL), 0);
    assert_int_equal(run_ranks(4, every_call, NULL), 0);
}

static void asynchronous(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_work *work = NULL;
    tt_tensor *x = numbered(rank, true, TT_F32), *turned = numbered(rank, false, TT_F32);
    CHECK(tt_tensor_all_reduce(group, x, TT_SUM, .work = &work) == TT_OK && tt_work_wait(work) == TT_OK);
    CHECK(at(x, 0, 0) == 100);
    tt_work_free(work);
    tt_status status = tt_tensor_all_reduce(group, turned, TT_SUM, .work = &work);
    CHECK(is_error(status, TT_ERR_UNSUPPORTED, "tt_tensor_all_reduce: f32 (4, 3) on \"cpu\" is not contiguous"));
    CHECK(tt_tensor_broadcast(group, tt_requires_grad_(tt_ones(TT_SHAPE(2), TT_F32), true), 0) == TT_OK);
}

/* What comes from other ranks stands where a record's values stood. */
static void overwritten(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    for (int plain = 0; plain < 2; plain++) {
        tt_tensor *x = numbered(rank, plain, TT_F32),
                  *w = tt_requires_grad_(tt_ones(TT_SHAPE(ROWS, COLUMNS), TT_F32), true);
        tt_tensor *y = tt_sum(tt_mul(x, w));
        CHECK(tt_tensor_broadcast(group, x, 0) == TT_OK);
        CHECK(is_error(tt_backward(y), TT_ERR_STATE, "tt_mul"));
    }
}

static void backward_sees_what_was_overwritten(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, overwritten, NULL), 0);
}

static void works_and_leaves(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, asynchronous, NULL), 0);
}

static void wrong(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_tensor *x = numbered(rank, true, TT_F32), *flat = tt_zeros(TT_SHAPE(24), TT_F32);
    tt_status status = tt_tensor_all_gather(group, x, flat);
    CHECK(is_error(status, TT_ERR_SHAPE,
                   "expected a tensor of 2 times f32 (4, 3), (2 * D, ...) or (2, D, ...), got f32 (24)"));
    status = tt_tensor_reduce_scatter(group, tt_zeros(TT_SHAPE(8, 3), TT_F64), x, TT_SUM);
    CHECK(is_error(status, TT_ERR_DTYPE, "expected tensors of one type, got f32 (4, 3) and f64 (8, 3)"));
    status = tt_tensor_all_to_all(group, tt_zeros(TT_SHAPE(3, 4), TT_F32), x);
    CHECK(is_error(status, TT_ERR_SHAPE, "multiple of 2, got f32 (3, 4) and f32 (4, 3)"));
    status = tt_tensor_broadcast(group, tt_add(x, flat), 0);
    CHECK(is_error(status, TT_ERR_SHAPE, "tt_add")); /* the error of what made it NULL */
    status = tt_tensor_all_reduce(group, x, TT_SUM, .timeout_ms = 1000 * 60, .factor = 2);
    CHECK(status == TT_OK);
    tt_tensor *unlike = tt_zeros(TT_SHAPE(rank + 1), TT_F32);
    status = tt_tensor_all_reduce(group, unlike, TT_SUM);
    CHECK(status == TT_ERR_MISMATCH && strstr(tt_last_error(), "tt_tensor_all_reduce of f32 (") &&
          strstr(tt_last_error(), "test_tensor_collectives.c:"));
}

/* What repeats elements in memory can be sent, and receives nothing. */
static void repeated(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    static const char why[] = "f32 (4, 3) repeats elements in memory; tt_clone() it first";
    tt_tensor *row = tt_full(TT_SHAPE(3), TT_F32, rank), *x = tt_expand(row, TT_SHAPE(4, 3));
    tt_tensor *parts = tt_zeros(TT_SHAPE(8, 3), TT_F32), *all = tt_expand(row, TT_SHAPE(8, 3));
    CHECK(is_error(tt_tensor_all_reduce(group, x, TT_SUM), TT_ERR_INVALID, why));
    CHECK(is_error(tt_tensor_reduce(group, x, TT_SUM, 0), TT_ERR_INVALID, why) || rank);
    CHECK(is_error(tt_tensor_broadcast(group, x, 0), TT_ERR_INVALID, why));
    CHECK(is_error(tt_tensor_all_gather(group, x, all), TT_ERR_INVALID, "f32 (8, 3) repeats elements"));
    CHECK(is_error(tt_tensor_scatter(group, parts, x, 0), TT_ERR_INVALID, why));
    CHECK(is_error(tt_tensor_reduce_scatter(group, parts, x, TT_SUM), TT_ERR_INVALID, why));
    CHECK(is_error(tt_tensor_all_to_all(group, parts, all), TT_ERR_INVALID, "f32 (8, 3) repeats elements"));
    CHECK(is_error(tt_tensor_recv(group, x, 1 - rank), TT_ERR_INVALID, why));
    CHECK(tt_tensor_all_gather(group, x, parts) == TT_OK && tt_tensor_f32(parts)[23] == 1);
    CHECK(tt_tensor_f32(row)[0] == (float)rank);
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, wrong, NULL), 0);
    assert_int_equal(run_ranks(2, repeated, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_and_types),
        cmocka_unit_test(works_and_leaves),
        cmocka_unit_test(backward_sees_what_was_overwritten),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
