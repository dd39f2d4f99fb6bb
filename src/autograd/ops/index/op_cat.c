/* Cat, stack: inputs joined in one tensor; each gets its part of the gradient. */
#include "autograd/autocast.h"
#include "autograd/record.h"

#include "base/error.h"

#include <inttypes.h>

/* State: the dimension. */
static tt_status cat_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *g = tt__grad_of(node, 0);
    int64_t at = 0;
    for (int i = 0; i < node->inputs; i++) {
        int64_t length = node->edge[i].shape.dim[*dim];
        if (tt__grad_wanted(node, i))
            TT__TRY(tt__grad_give(node, i, tt__narrow(node->op->name, g, *dim, at, length)));
        at += length;
    }
    return TT_OK;
}

static tt_status stack_backward(tt_node *node) {
    const int *dim = tt__state(node);
    for (int i = 0; i < node->inputs; i++)
        if (tt__grad_wanted(node, i))
            TT__TRY(tt__grad_give(node, i, tt__select(node->op->name, tt__grad_of(node, 0), *dim, i)));
    return TT_OK;
}

static const tt__operator cat_op = {.name = "tt_cat", .backward = cat_backward};
static const tt__operator stack_op = {.name = "tt_stack", .backward = stack_backward};

/* Are there tensors, all of them? An error only where there is no list. */
static bool check_joined_list(const char *who, tt_tensor *const *x, int64_t count) {
    if (!x || count < 1 || count > INT32_MAX) {
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected a list of at least one tensor, got %s of %" PRId64, who,
                        x ? "one" : "NULL", count);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        if (!x[i] || !tt__tensor_check(who, x[i]))
            return false;
    return true;
}

tt_tensor *tt_cat(tt_tensor *const *x, int64_t count, int dim) {
    if (!check_joined_list(cat_op.name, x, count))
        return NULL;
    tt_tensor *const *in = tt__autocast_list(cat_op.name, count, x);
    tt_tensor *y = in ? tt__cat(cat_op.name, (int)count, in, dim) : NULL;
    int d = y ? tt__dim_index(y->shape.ndim, dim) : 0;
    y = tt__recorded(&cat_op, y, (int)count, in, TT__NO_SAVES, TT__STATE(d));
    tt__autocast_list_done(in, x);
    return y;
}

tt_tensor *tt_stack(tt_tensor *const *x, int64_t count, int dim) {
    if (!check_joined_list(stack_op.name, x, count))
        return NULL;
    tt_tensor *const *in = tt__autocast_list(stack_op.name, count, x);
    tt_tensor *y = in ? tt__stack(stack_op.name, (int)count, in, dim) : NULL;
    int d = y ? tt__dim_index(y->shape.ndim, dim) : 0;
    y = tt__recorded(&stack_op, y, (int)count, in, TT__NO_SAVES, TT__STATE(d));
    tt__autocast_list_done(in, x);
    return y;
}
