/* y = a + b    da = g   db = g        y = a - b    da = g   db = -g        (summed over what was repeated) */
#include "autograd/autocast.h"
#include "autograd/ops/pointwise/broadcast.h"

#include "base/error.h"

static tt_status give_both(tt_node *node, double b_factor) {
    tt_tensor *g = tt__grad_of(node, 0);
    if (tt__grad_wanted(node, 0))
        TT__TRY(tt__broadcast_give(node, 0, g, 1));
    return tt__grad_wanted(node, 1) ? tt__broadcast_give(node, 1, g, b_factor) : TT_OK;
}

static tt_status add_backward(tt_node *node) { return give_both(node, 1); }

static tt_status sub_backward(tt_node *node) { return give_both(node, -1); }

static const tt__operator add_op = {.name = "tt_add", .backward = add_backward};
static const tt__operator sub_op = {.name = "tt_sub", .backward = sub_backward};

tt_tensor *tt_add(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__AUTOCAST(add_op.name, &a, &b))
        return NULL;
    tt_tensor *y = tt__binary_forward(add_op.name, tt__add_out, a, b);
    return tt__recorded(&add_op, y, TT__INPUTS(a, b), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__AUTOCAST(sub_op.name, &a, &b))
        return NULL;
    tt_tensor *y = tt__binary_forward(sub_op.name, tt__sub_out, a, b);
    return tt__recorded(&sub_op, y, TT__INPUTS(a, b), TT__NO_SAVES, TT__NO_STATE);
}
