/* Sort, argsort, topk: the first k of n along one dimension, y[p] = x[indices[p]]
 * dx[indices[p]] = g[p], else 0 */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

/* Saved: indices. State: the dimension. */
static tt_status sort_backward(tt_node *node) {
    const char *who = node->op->name;
    const int *dim = tt__state(node);
    const tt_tensor *indices = tt__saved(node, 0);
    tt_tensor *dx = indices ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    if (dx->shape.ndim == 0) {
        TT__TRY(tt__copy_out(who, dx, tt__grad_of(node, 0)));
        return tt__grad_give(node, 0, dx);
    }
    TT__TRY(tt__fill_out(who, dx, 0));
    TT__TRY(tt__scatter_out(who, dx, tt__grad_of(node, 0), *dim, indices));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator sort_op = {.name = "tt_sort", .backward = sort_backward};
static const tt__operator topk_op = {.name = "tt_topk", .backward = sort_backward};
static const tt__operator argsort_op = {.name = "tt_argsort", .backward = sort_backward};

/* Return the dimension to sort along; a scalar's is 0 or -1. -1 and an error: x has no such dimension. */
static int sorted_dim(const char *who, const tt_tensor *x, int dim) {
    int d = x->shape.ndim == 0 ? tt__dim_index(1, dim) : tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    return d;
}

/* Make both results, of k entries along d. */
static tt_status sort_into(const tt__operator *op, tt_tensor **values, tt_tensor **indices, tt_tensor *x, int64_t k,
                           int d, bool descending) {
    const char *who = op->name;
    tt_shape shape = x->shape;
    if (shape.ndim)
        shape.dim[d] = k;
    tt_tensor *places = tt__make_places(who, x, shape), *y = NULL;
    if (places)
        y = tt__empty_beside(who, x, shape, x->dtype);
    y = TT__MADE(who, y, tt__sort_out(who, y, places, x, d, descending));
    y = tt__recorded(op, y, TT__INPUTS(x), TT__SAVES({places, "indices"}), TT__STATE(d));
    if (!y) {
        tt__abandon(places);
        return tt_last_status();
    }
    *values = y;
    *indices = places;
    return TT_OK;
}

static tt_status check_sorted(const char *who, tt_tensor **values, tt_tensor **indices, const tt_tensor *x) {
    if (!x)
        return tt__tensor_first_error(who);
    if (!tt__tensor_check(who, x))
        return TT_ERR_STATE;
    return values && indices ? TT_OK : tt__fail(TT_ERR_INVALID, "%s: `values` or `indices` is NULL", who);
}

tt_status tt_sort_with(const tt_sort_args *args, size_t size) {
    tt_sort_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(check_sorted(sort_op.name, a.values, a.indices, a.x));
    int d = sorted_dim(sort_op.name, a.x, a.dim);
    if (d < 0)
        return TT_ERR_SHAPE;
    return sort_into(&sort_op, a.values, a.indices, a.x, a.x->shape.dim[d], d, a.descending);
}

tt_status tt_topk_with(const tt_topk_args *args, size_t size) {
    tt_topk_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(check_sorted(topk_op.name, a.values, a.indices, a.x));
    int d = sorted_dim(topk_op.name, a.x, a.dim);
    if (d < 0)
        return TT_ERR_SHAPE;
    int64_t n = a.x->shape.ndim ? a.x->shape.dim[d] : 1;
    if (a.k < 0 || a.k > n || (a.x->shape.ndim == 0 && a.k != 1))
        return tt__fail(TT_ERR_INVALID, "tt_topk: expected k in 0..%" PRId64 " (dimension %d of %s), got %" PRId64, n,
                        d, TT__DESCRIBE(a.x), a.k);
    return sort_into(&topk_op, a.values, a.indices, a.x, a.k, d, !a.smallest);
}

tt_tensor *tt_argsort_with(const tt_argsort_args *args, size_t size) {
    tt_argsort_args a;
    TT__ARGS_COPY(a, args, size);
    tt_tensor *values = NULL, *indices = NULL;
    int d = a.x && tt__tensor_check(argsort_op.name, a.x) ? sorted_dim(argsort_op.name, a.x, a.dim) : -1;
    if (d < 0 || sort_into(&argsort_op, &values, &indices, a.x, a.x->shape.dim[d], d, a.descending))
        return NULL;
    tt__abandon(values);
    return indices;
}
