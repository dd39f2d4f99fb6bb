#include "autograd/sparse_grad.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/ops.h"

#include <stdlib.h>
#include <string.h>

static const char rows_who[] = "tt_backward";

tt_tensor *tt_sparse_grad_indices(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->rows : NULL;
}

tt_tensor *tt_sparse_grad_values(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->values : NULL;
}

tt_tensor *tt__grad_values(const tt_tensor *x) {
    tt_tensor *grad = tt_grad(x);
    return grad ? grad : tt_sparse_grad_values(x);
}

void tt__leaf_drop_rows(tt__leaf *leaf) {
    tt__tensor_disown(leaf->rows);
    tt__tensor_disown(leaf->values);
    leaf->rows = leaf->values = NULL;
}

/* ---- coalescing */

static int compare_rows(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sort n numbers, and keep each once. Returns how many these are. */
static int64_t sort_unique(int64_t *row, int64_t n) {
    int64_t kept = 0;
    qsort(row, (size_t)n, sizeof *row, compare_rows);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || row[kept - 1] != row[i])
            row[kept++] = row[i];
    return kept;
}

static int64_t place_of(const int64_t *row, int64_t n, int64_t wanted) {
    const int64_t *found = n ? bsearch(&wanted, row, (size_t)n, sizeof *row, compare_rows) : NULL;
    return found ? found - row : -1;
}

static void leave_out(int64_t *row, int64_t *n, int64_t skipped) {
    const int64_t at = place_of(row, *n, skipped);
    if (at < 0)
        return;
    memmove(row + at, row + at + 1, (size_t)(*n - at - 1) * sizeof *row);
    --*n;
}

/* Sum into `n` rows, and one more that takes what is left out. */
static tt_status sum_rows(const char *who, const tt_tensor *index, const tt_tensor *g, const int64_t *row, int64_t n,
                          tt_tensor **values) {
    const int64_t *from = index->data;
    tt_tensor *places = tt__tensor_new(who, index->shape, TT_I64);
    tt_tensor *sums = places ? tt__tensor_new(who, TT_SHAPE(n + 1, g->shape.dim[1]), g->dtype) : NULL;
    if (!sums)
        return tt_last_status();
    int64_t *to = places->data;
    for (int64_t i = 0; i < index->numel; i++) {
        const int64_t at = place_of(row, n, from[i]);
        to[i] = at < 0 ? n : at;
    }
    TT__TRY(tt__fill_out(who, sums, 0));
    TT__TRY(tt__index_add_out(who, sums, g, 0, places));
    *values = tt__narrow(who, sums, 0, 0, n);
    return *values ? TT_OK : tt_last_status();
}

tt_status tt__rows_coalesce(const char *who, const tt_tensor *index, const tt_tensor *g, int64_t skipped,
                            tt_tensor **rows, tt_tensor **values) {
    int64_t n = index->numel;
    int64_t *row = malloc((size_t)(n + 1) * sizeof *row);
    if (!row)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the numbers of %lld rows", who, (long long)n);
    if (n)
        memcpy(row, index->data, (size_t)n * sizeof *row);
    n = sort_unique(row, n);
    leave_out(row, &n, skipped);
    tt_tensor *numbers = tt__tensor_new(who, TT_SHAPE(n), TT_I64);
    tt_status status = numbers ? sum_rows(who, index, g, row, n, values) : tt_last_status();
    if (!status && n)
        memcpy(numbers->data, row, (size_t)n * sizeof *row);
    free(row);
    *rows = numbers;
    return status;
}

/* ---- adding to a leaf */

tt_status tt__leaf_refuse_both(const tt__leaf *leaf) {
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "tt_backward: %s gets a gradient of the whole and a sparse one, which are not added up: leave "
                    ".sparse out where a weight is used otherwise, too, or tt_zero_grad() it in between",
                    TT__DESCRIBE(leaf->tensor));
}

/* Add two such gradients: what both have is a + b. */
static tt_status add_rows(const tt__leaf *leaf, const tt_tensor *rows, const tt_tensor *values, tt_tensor **all_rows,
                          tt_tensor **sums) {
    const int64_t had = leaf->rows->numel, more = rows->numel;
    tt_tensor *both = tt__tensor_new(rows_who, TT_SHAPE(had + more), TT_I64);
    tt_tensor *parts =
        both ? tt__tensor_new(rows_who, TT_SHAPE(had + more, values->shape.dim[1]), values->dtype) : NULL;
    if (!parts)
        return tt_last_status();
    const size_t cut = (size_t)leaf->values->numel * tt_dtype_size(values->dtype);
    if (had) {
        memcpy(both->data, leaf->rows->data, (size_t)had * sizeof(int64_t));
        memcpy(parts->data, leaf->values->data, cut);
    }
    if (more) {
        memcpy((int64_t *)both->data + had, rows->data, (size_t)more * sizeof(int64_t));
        memcpy((char *)parts->data + cut, values->data, (size_t)values->numel * tt_dtype_size(values->dtype));
    }
    return tt__rows_coalesce(rows_who, both, parts, -1, all_rows, sums);
}

static tt_status add_rows_locked(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    if (leaf->placed || leaf->part)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_backward: %s gets a sparse gradient, and its gradient lies in the memory of a wrapper "
                        "(tt_ddp()), or is sharded, which are for gradients of the whole: leave .sparse out",
                        TT__DESCRIBE(leaf->tensor));
    if (leaf->defined || leaf->lender)
        return tt__leaf_refuse_both(leaf);
    if (leaf->rows)
        TT__TRY(add_rows(leaf, rows, values, &rows, &values));
    TT__TRY(tt__tensor_adopt(rows, "a leaf"));
    tt_status status = tt__tensor_adopt(values, "a leaf");
    if (status) {
        tt__tensor_disown(rows);
        return status;
    }
    tt__leaf_drop_rows(leaf);
    leaf->rows = rows;
    leaf->values = values;
    return TT_OK;
}

tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    pthread_mutex_lock(&leaf->lock);
    tt_status status = add_rows_locked(leaf, rows, values);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

/* ---- those that take none */

tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x) {
    if (!x->sparse_grad || !x->requires_grad)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: parameter \"%s\" is given sparse gradients, which stay in one process: make its embedding "
                    "without .sparse",
                    who, name);
}
