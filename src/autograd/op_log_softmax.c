/* Rows along one dimension:  y[i] = x[i] - log sum exp x      dx[i] = g[i] - exp(y[i]) * sum of g
 * Along another dimension than the last one, x is seen with the two exchanged. */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_log_softmax";

/* View x with dimension d last. */
static tt_tensor rows_along(const tt_tensor *x, int d) {
    int last = x->shape.ndim - 1;
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    for (int k = 0; k <= last; k++)
        stride[k] = x->stride[k];
    shape.dim[d] = x->shape.dim[last];
    shape.dim[last] = x->shape.dim[d];
    stride[d] = x->stride[last];
    stride[last] = x->stride[d];
    return tt__tensor_seen(x, shape, stride);
}

static tt_status log_softmax_backward(tt_node *node) {
    const int *d = tt__state(node);
    const tt_tensor *y = tt__saved(node, 0);
    tt_tensor *dx = y ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    tt_tensor to = rows_along(dx, *d), from = rows_along(y, *d), g = rows_along(tt__grad_of(node, 0), *d);
    TT__TRY(tt__log_softmax_backward_out(who, &to, &from, &g));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator log_softmax_op = {.name = who, .backward = log_softmax_backward};

tt_tensor *tt_log_softmax(tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(who, x);
    if (!y)
        return NULL;
    tt_tensor to = rows_along(y, d), from = rows_along(x, d);
    y = tt__made(who, y, tt__log_softmax_out(who, &to, &from));
    return tt__recorded(&log_softmax_op, y, TT__INPUTS(x), TT__SAVES({y, "its result"}), TT__STATE(d));
}
