/* Dimensions in another order: gradients go back in the order that undoes it. */
#include "autograd/record.h"

#include "base/error.h"

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
