/* Rows along one dimension:
 *   softmax:      y[i] = exp x[i] / sum exp x         dx[i] = y[i] * (g[i] - sum of g * y)
 *   log_softmax:  y[i] = x[i] - log sum exp x         dx[i] = g[i] - exp(y[i]) * sum of g
 * Along another dimension than the last one, x is seen with the two exchanged. */
#include "autograd/record.h"

#include "base/error.h"

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

typedef tt_status (*softmax_out)(const char *who, tt_tensor *y, const tt_tensor *x);
typedef tt_status (*softmax_backward_out)(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

/* State: the dimension. Saved: y. */
static tt_status softmax_give(tt_node *node, softmax_backward_out run) {
    const int *d = tt__state(node);
    const tt_tensor *y = tt__saved(node, 0);
    tt_tensor *dx = y ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    tt_tensor to = rows_along(dx, *d), from = rows_along(y, *d), g = rows_along(tt__grad_of(node, 0), *d);
    TT__TRY(run(node->op->name, &to, &from, &g));
    return tt__grad_give(node, 0, dx);
}

static tt_status softmax_backward(tt_node *node) { return softmax_give(node, tt__softmax_backward_out); }

static tt_status log_softmax_backward(tt_node *node) { return softmax_give(node, tt__log_softmax_backward_out); }

static tt_tensor *softmax_recorded(const tt__operator *op, softmax_out run, tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(op->name, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", op->name, dim, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(op->name, x);
    if (!y)
        return NULL;
    tt_tensor to = rows_along(y, d), from = rows_along(x, d);
    y = tt__made(op->name, y, run(op->name, &to, &from));
    return tt__recorded(op, y, TT__INPUTS(x), TT__SAVES({y, "its result"}), TT__STATE(d));
}

static const tt__operator softmax_op = {.name = "tt_softmax", .backward = softmax_backward};
static const tt__operator log_softmax_op = {.name = "tt_log_softmax", .backward = log_softmax_backward};

tt_tensor *tt_softmax(tt_tensor *x, int dim) { return softmax_recorded(&softmax_op, tt__softmax_out, x, dim); }

tt_tensor *tt_log_softmax(tt_tensor *x, int dim) {
    return softmax_recorded(&log_softmax_op, tt__log_softmax_out, x, dim);
}
