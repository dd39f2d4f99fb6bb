/* Gradients of some of a matrix's rows: summed by row, and joined. */

#include "base/error.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>
#include <string.h>

static int compare_row_numbers(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sort n numbers and drop repeats. Returns how many are left. */
static int64_t sort_unique(int64_t *row, int64_t n) {
    int64_t kept = 0;
    qsort(row, (size_t)n, sizeof *row, compare_row_numbers);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || row[kept - 1] != row[i])
            row[kept++] = row[i];
    return kept;
}

/* Return where `wanted` is among n ascending numbers; -1: nowhere. */
static int64_t place_of_row(const int64_t *row, int64_t n, int64_t wanted) {
    const int64_t *found = n ? bsearch(&wanted, row, (size_t)n, sizeof *row, compare_row_numbers) : NULL;
    return found ? found - row : -1;
}

static void leave_out(int64_t *row, int64_t *n, int64_t skipped) {
    const int64_t at = place_of_row(row, *n, skipped);
    if (at < 0)
        return;
    memmove(row + at, row + at + 1, (size_t)(*n - at - 1) * sizeof *row);
    --*n;
}

/* Return x, or a copy of it on the device of `other`. NULL: an error. */
static tt_tensor *tensor_beside(const char *who, tt_tensor *x, const tt_tensor *other) {
    return tt__device_of(x) == tt__device_of(other) ? x : tt__to_device(who, x, tt__device_of(other));
}

/* *values (n, C): the sums of rows row[0] to row[n - 1] of g, whose rows have the numbers `from`. Gradients of other
 * rows go into an (n + 1)th, which is cut off. */
static tt_status sum_rows(const char *who, const tt_tensor *from, const tt_tensor *g, const int64_t *row, int64_t n,
                          tt_tensor **values) {
    const int64_t *number = from->data;
    tt_tensor *places = tt__tensor_new(who, from->shape, TT_I64);
    tt_tensor *sums = places ? tt__empty_beside(who, g, TT_SHAPE(n + 1, g->shape.dim[1]), g->dtype) : NULL;
    if (!sums)
        return tt_last_status();
    int64_t *to = places->data;
    for (int64_t i = 0; i < from->numel; i++) {
        const int64_t at = place_of_row(row, n, number[i]);
        to[i] = at < 0 ? n : at;
    }
    const tt_tensor *beside = tensor_beside(who, places, g);
    if (!beside)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, sums, 0));
    TT__TRY(tt__index_add_out(who, sums, g, 0, beside));
    *values = tt__narrow(who, sums, 0, 0, n);
    return *values ? TT_OK : tt_last_status();
}

tt_status tt__rows_coalesce(const char *who, const tt_tensor *index, const tt_tensor *g, int64_t skipped,
                            tt_tensor **rows, tt_tensor **values) {
    int64_t n = index->numel;
    const tt_tensor *here =
        tt__device_is_host(tt__device_of(index)) ? index : tt__to_device(who, index, &tt__cpu_device);
    int64_t *row = here ? malloc((size_t)(n + 1) * sizeof *row) : NULL;
    if (!row)
        return here ? tt__fail(TT_ERR_MEMORY, "%s: no memory for the numbers of %lld rows", who, (long long)n)
                    : tt_last_status();
    if (n)
        memcpy(row, here->data, (size_t)n * sizeof *row);
    n = sort_unique(row, n);
    leave_out(row, &n, skipped);
    tt_tensor *numbers = tt__tensor_new(who, TT_SHAPE(n), TT_I64);
    tt_status status = numbers ? sum_rows(who, here, g, row, n, values) : tt_last_status();
    if (!status && n)
        memcpy(numbers->data, row, (size_t)n * sizeof *row);
    free(row);
    *rows = status ? NULL : tensor_beside(who, numbers, g);
    return *rows ? TT_OK : tt_last_status();
}

/* Copy x (n) or (n, C), contiguous, to rows `begin` and on of y. */
static tt_status put_rows(const char *who, tt_tensor *y, int64_t begin, const tt_tensor *x) {
    tt_tensor *part = tt__narrow(who, y, 0, begin, x->shape.dim[0]);
    tt_status status = part ? tt__copy_out(who, part, x) : tt_last_status();
    tt__abandon(part);
    return status;
}

tt_status tt__rows_add(const char *who, const tt_tensor *had_rows, const tt_tensor *had, tt_tensor **rows,
                       tt_tensor **values) {
    const int64_t before = had_rows->numel, more = (*rows)->numel;
    tt_tensor *both = tt__empty_beside(who, had, TT_SHAPE(before + more), TT_I64);
    tt_tensor *parts = both ? tt__empty_beside(who, had, TT_SHAPE(before + more, had->shape.dim[1]), had->dtype) : NULL;
    if (!parts)
        return tt_last_status();
    TT__TRY(put_rows(who, both, 0, had_rows));
    TT__TRY(put_rows(who, parts, 0, had));
    TT__TRY(put_rows(who, both, before, *rows));
    TT__TRY(put_rows(who, parts, before, *values));
    return tt__rows_coalesce(who, both, parts, -1, rows, values);
}
