/* For each place p of index, and q the same with index[p] in dimension `dim`, in row-major order of p:
 *   scatter      y = x, then y[q] = src[p]      dx = g, then dx[q] = 0      dsrc[p] = g[q], beyond index 0
 *   scatter_add  y = x, then y[q] += src[p]     dx = g                      dsrc[p] = g[q], beyond index 0 */
#include "autograd/record.h"

#include "base/error.h"

typedef tt_status (*scatter_out)(const char *who, tt_tensor *y, const tt_tensor *src, int dim, const tt_tensor *index);

static tt_status give_scattered(tt_node *node, const tt_tensor *index, int dim) {
    const char *who = node->op->name;
    tt_tensor *dsrc = tt__grad_dest(node, 1);
    if (!dsrc)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dsrc, 0));
    tt_tensor part = tt__tensor_seen(dsrc, index->shape, dsrc->stride);
    TT__TRY(tt__gather_out(who, &part, tt__grad_of(node, 0), dim, index));
    return tt__grad_give(node, 1, dsrc);
}

/* Write a number to all places of y. */
static tt_status scatter_number(const char *who, tt_tensor *y, double value, int dim, const tt_tensor *index) {
    static const int64_t zero[TT_MAX_DIMS];
    tt_tensor *one = tt__empty_beside(who, y, TT_SCALAR, y->dtype);
    tt_status status = one ? tt__fill_out(who, one, value) : tt_last_status();
    if (!status) {
        tt_tensor src = tt__tensor_seen(one, index->shape, zero);
        status = tt__scatter_out(who, y, &src, dim, index);
    }
    tt__abandon(one);
    return status;
}

/* State: the dimension. */
static tt_status give_scattered_into(tt_node *node, const tt_tensor *index, int dim) {
    const char *who = node->op->name;
    tt_tensor *dx = tt__grad_dest(node, 0);
    if (!dx)
        return tt_last_status();
    TT__TRY(tt__copy_out(who, dx, tt__grad_of(node, 0)));
    TT__TRY(scatter_number(who, dx, 0, dim, index));
    return tt__grad_give(node, 0, dx);
}

static tt_status scatter_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    if (!index)
        return tt_last_status();
    if (node->inputs > 1 && tt__grad_wanted(node, 1))
        TT__TRY(give_scattered(node, index, *dim));
    return tt__grad_wanted(node, 0) ? give_scattered_into(node, index, *dim) : TT_OK;
}

static tt_status scatter_add_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    if (!index)
        return tt_last_status();
    if (tt__grad_wanted(node, 1))
        TT__TRY(give_scattered(node, index, *dim));
    return tt__grad_wanted(node, 0) ? tt__grad_give(node, 0, tt__grad_of(node, 0)) : TT_OK;
}

static const tt__operator scatter_op = {.name = "tt_scatter_dim", .backward = scatter_backward};
static const tt__operator scatter_value_op = {.name = "tt_scatter_value", .backward = scatter_backward};
static const tt__operator scatter_add_op = {.name = "tt_scatter_add", .backward = scatter_add_backward};

/* Return dimension `dim` of x if all fit together; -1, and an error unless one is NULL. */
static int check_scatter(const char *who, const tt_tensor *x, int dim, const tt_tensor *index, const tt_tensor *src) {
    if (!x || !index || !tt__tensor_check(who, x) || !tt__tensor_check(who, index) ||
        (src && !tt__tensor_check(who, src)))
        return -1;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    return d >= 0 && tt__check_places(who, x, d, index, src) ? d : -1;
}

static tt_tensor *scattered(const tt__operator *op, scatter_out run, tt_tensor *x, int dim, tt_tensor *index,
                            tt_tensor *src) {
    int d = src ? check_scatter(op->name, x, dim, index, src) : -1;
    tt_tensor *y = d < 0 ? NULL : tt__clone(op->name, x);
    y = TT__MADE(op->name, y, run(op->name, y, src, d, index));
    return tt__recorded(op, y, TT__INPUTS(x, src), TT__SAVES({index, "index"}), TT__STATE(d));
}

tt_tensor *tt_scatter_dim(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src) {
    return scattered(&scatter_op, tt__scatter_out, x, dim, index, src);
}

tt_tensor *tt_scatter_add(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src) {
    return scattered(&scatter_add_op, tt__scatter_add_out, x, dim, index, src);
}

tt_tensor *tt_scatter_value(tt_tensor *x, int dim, tt_tensor *index, double value) {
    const char *who = scatter_value_op.name;
    int d = check_scatter(who, x, dim, index, NULL);
    tt_tensor *y = d < 0 ? NULL : tt__clone(who, x);
    y = TT__MADE(who, y, scatter_number(who, y, value, d, index));
    return tt__recorded(&scatter_value_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}
