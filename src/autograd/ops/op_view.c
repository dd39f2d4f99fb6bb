/* Views of all elements: view, reshape, flatten, transpose, permute, movedim, squeeze, unsqueeze, expand. */
#include "autograd/ops/op_pointwise.h"
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

/* ---- dimensions of size 1 taken away or added: gradients get x's shape back. */

static const tt__operator squeeze_op = {.name = "tt_squeeze", .backward = same_order_backward};
static const tt__operator squeeze_all_op = {.name = "tt_squeeze_all", .backward = same_order_backward};
static const tt__operator unsqueeze_op = {.name = "tt_unsqueeze", .backward = same_order_backward};

tt_tensor *tt_squeeze(tt_tensor *x, int dim) {
    if (!x || !tt__tensor_check(squeeze_op.name, x))
        return NULL;
    return view_recorded(&squeeze_op, x, tt__squeeze(squeeze_op.name, x, &dim));
}

tt_tensor *tt_squeeze_all(tt_tensor *x) {
    if (!x || !tt__tensor_check(squeeze_all_op.name, x))
        return NULL;
    return view_recorded(&squeeze_all_op, x, tt__squeeze(squeeze_all_op.name, x, NULL));
}

tt_tensor *tt_unsqueeze(tt_tensor *x, int dim) {
    if (!x || !tt__tensor_check(unsqueeze_op.name, x))
        return NULL;
    return view_recorded(&unsqueeze_op, x, tt__unsqueeze(unsqueeze_op.name, x, dim));
}

/* ---- dimensions in another order: gradients go back in the order that undoes it. */

/* State: the order, in dimensions of x from 0 on. */
static tt_status permute_backward(tt_node *node) {
    const tt_shape *order = tt__state(node);
    tt_shape undo = {.ndim = order->ndim};
    for (int k = 0; k < order->ndim; k++)
        undo.dim[order->dim[k]] = k;
    return tt__grad_give(node, 0, tt__permute(node->op->name, tt__grad_of(node, 0), &undo));
}

static const tt__operator permute_op = {.name = "tt_permute", .backward = permute_backward};
static const tt__operator movedim_op = {.name = "tt_movedim", .backward = permute_backward};

static tt_tensor *permuted(const tt__operator *op, tt_tensor *x, tt_shape order) {
    tt_tensor *y = tt__permute(op->name, x, &order);
    for (int k = 0; y && k < order.ndim; k++)
        order.dim[k] = tt__dim_index(order.ndim, (int)order.dim[k]);
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(order));
}

tt_tensor *tt_permute(tt_tensor *x, tt_shape dims) {
    return x && tt__tensor_check(permute_op.name, x) ? permuted(&permute_op, x, dims) : NULL;
}

tt_tensor *tt_movedim(tt_tensor *x, int source, int destination) {
    static const char who[] = "tt_movedim";
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    int from = tt__dim_index(x->shape.ndim, source), to = tt__dim_index(x->shape.ndim, destination);
    if (from < 0 || to < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimensions %d and %d in %s", who, source, destination,
                               TT__DESCRIBE(x));
    tt_shape order = {.ndim = x->shape.ndim};
    for (int k = 0, other = 0; k < order.ndim; k++) {
        other += other == from;
        order.dim[k] = k == to ? from : other++;
    }
    return permuted(&movedim_op, x, order);
}

/* ---- repeated along dimensions by strides of 0: gradients are summed over what was repeated. */

static const char expand_name[] = "tt_expand";

static tt_status expand_backward(tt_node *node) { return tt__broadcast_give(node, 0, tt__grad_of(node, 0), 1); }

static const tt__operator expand_op = {.name = expand_name, .backward = expand_backward};

tt_tensor *tt_expand(tt_tensor *x, tt_shape shape) {
    if (!x || !tt__tensor_check(expand_name, x))
        return NULL;
    return tt__recorded(&expand_op, tt__expand(expand_name, x, shape), TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}
