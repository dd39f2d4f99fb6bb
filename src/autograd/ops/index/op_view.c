/* View, reshape, flatten, transpose, narrow: the elements stay, so gradients go back the way the elements came. */
#include "autograd/record.h"

#include "base/error.h"

/* ---- same elements in the same row-major order: view, reshape, flatten */

static tt_status same_order_backward(tt_node *node) {
    return tt__grad_give(node, 0, tt__reshape(node->op->name, tt__grad_of(node, 0), node->edge[0].shape));
}

static const tt__operator view_op = {.name = "tt_view", .backward = same_order_backward};
static const tt__operator reshape_op = {.name = "tt_reshape", .backward = same_order_backward};
static const tt__operator flatten_op = {.name = "tt_flatten", .backward = same_order_backward};

static tt_tensor *view_recorded(const tt__operator *op, tt_tensor *x, tt_tensor *y) {
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_view(tt_tensor *x, tt_shape shape) {
    return x && tt__tensor_check("tt_view", x) ? view_recorded(&view_op, x, tt__view("tt_view", x, shape)) : NULL;
}

tt_tensor *tt_reshape(tt_tensor *x, tt_shape shape) {
    return x && tt__tensor_check("tt_reshape", x) ? view_recorded(&reshape_op, x, tt__reshape("tt_reshape", x, shape))
                                                  : NULL;
}

tt_tensor *tt_flatten(tt_tensor *x, int start_dim) {
    if (!x || !tt__tensor_check("tt_flatten", x))
        return NULL;
    int from = x->shape.ndim == 0 && (start_dim == 0 || start_dim == -1) ? 0 : tt__dim_index(x->shape.ndim, start_dim);
    if (from < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "tt_flatten: no dimension %d in %s", start_dim, TT__DESCRIBE(x));
    tt_shape shape = {.ndim = from + 1};
    int64_t joined = 1;
    for (int d = 0; d < from; d++)
        shape.dim[d] = x->shape.dim[d];
    for (int d = from; d < x->shape.ndim; d++)
        joined *= x->shape.dim[d];
    shape.dim[from] = joined;
    return view_recorded(&flatten_op, x, tt__reshape("tt_flatten", x, shape));
}

/* ---- two dimensions exchanged */

static tt_status transpose_backward(tt_node *node) {
    const int *dim = tt__state(node);
    return tt__grad_give(node, 0, tt__transpose("tt_transpose", tt__grad_of(node, 0), dim[0], dim[1]));
}

static const tt__operator transpose_op = {.name = "tt_transpose", .backward = transpose_backward};

tt_tensor *tt_transpose(tt_tensor *x, int a, int b) {
    if (!x || !tt__tensor_check("tt_transpose", x))
        return NULL;
    const int dims[] = {a, b};
    tt_tensor *y = tt__transpose("tt_transpose", x, a, b);
    return tt__recorded(&transpose_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(dims));
}

/* ---- a range of one dimension; outside of it the gradient is zero */

typedef struct range {
    int dim;
    int64_t start, length;
} range;

static tt_status narrow_backward(tt_node *node) {
    static const char who[] = "tt_narrow";
    const range *r = tt__state(node);
    tt_tensor *dx = tt__grad_dest(node, 0);
    tt_tensor *part = dx ? tt__narrow(who, dx, r->dim, r->start, r->length) : NULL;
    if (!part)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dx, 0));
    TT__TRY(tt__copy_out(who, part, tt__grad_of(node, 0)));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator narrow_op = {.name = "tt_narrow", .backward = narrow_backward};

tt_tensor *tt_narrow(tt_tensor *x, int dim, int64_t start, int64_t length) {
    if (!x || !tt__tensor_check("tt_narrow", x))
        return NULL;
    const range r = {dim, start, length};
    tt_tensor *y = tt__narrow("tt_narrow", x, dim, start, length);
    return tt__recorded(&narrow_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(r));
}
