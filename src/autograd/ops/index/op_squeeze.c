/* Dimensions of size 1 taken away or added: gradients get x's shape back. */
#include "autograd/record.h"

#include "base/error.h"

static tt_status squeeze_backward(tt_node *node) {
    return tt__grad_give(node, 0, tt__reshape(node->op->name, tt__grad_of(node, 0), node->edge[0].shape));
}

static const tt__operator squeeze_op = {.name = "tt_squeeze", .backward = squeeze_backward};
static const tt__operator squeeze_all_op = {.name = "tt_squeeze_all", .backward = squeeze_backward};
static const tt__operator unsqueeze_op = {.name = "tt_unsqueeze", .backward = squeeze_backward};

static tt_tensor *squeeze_recorded(const tt__operator *op, tt_tensor *x, tt_tensor *y) {
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_squeeze(tt_tensor *x, int dim) {
    if (!x || !tt__tensor_check(squeeze_op.name, x))
        return NULL;
    return squeeze_recorded(&squeeze_op, x, tt__squeeze(squeeze_op.name, x, &dim));
}

tt_tensor *tt_squeeze_all(tt_tensor *x) {
    if (!x || !tt__tensor_check(squeeze_all_op.name, x))
        return NULL;
    return squeeze_recorded(&squeeze_all_op, x, tt__squeeze(squeeze_all_op.name, x, NULL));
}

tt_tensor *tt_unsqueeze(tt_tensor *x, int dim) {
    if (!x || !tt__tensor_check(unsqueeze_op.name, x))
        return NULL;
    return squeeze_recorded(&unsqueeze_op, x, tt__unsqueeze(unsqueeze_op.name, x, dim));
}
