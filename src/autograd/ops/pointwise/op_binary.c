/* Operators of two inputs of shapes that broadcast, element by element. What each computes, forward and backward, is a
 * line of tensor/ops/pointwise_formulas.h. add, sub and mul, which need no formula, have files of their own. */
#include "autograd/ops/pointwise/op_binary.h"
#include "autograd/autocast.h"

#include "autograd/ops/pointwise/broadcast.h"
#include "base/error.h"

/* Give input i its gradient, summed over what was repeated. */
static tt_status binary_give(tt_node *node, int i, const tt_tensor *x, const tt_tensor *z) {
    const char *who = node->op->name;
    const tt__binary *call = tt__state(node);
    tt_tensor *g = tt__grad_of(node, 0);
    if (tt__shape_equal(&node->edge[i].shape, &g->shape)) {
        TT__GIVE(node, i, d, tt__binary_backward_out(who, d, x, z, g, call, i));
        return TT_OK;
    }
    tt_tensor *wide = tt__empty_like(who, g);
    if (!wide || tt__binary_backward_out(who, wide, x, z, g, call, i))
        return tt_last_status();
    return tt__broadcast_give(node, i, wide, 1);
}

/* State: the call. Saved: x, z. */
tt_status tt__binary_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *z = x ? tt__saved(node, 1) : NULL;
    if (!z)
        return tt_last_status();
    if (tt__grad_wanted(node, 0))
        TT__TRY(binary_give(node, 0, x, z));
    return tt__grad_wanted(node, 1) ? binary_give(node, 1, x, z) : TT_OK;
}

tt_tensor *tt__binary_recorded(const tt__operator *op, tt_tensor *x, tt_tensor *z, tt__binary call) {
    tt_tensor *y = tt__broadcast_forward(op->name, x, z);
    y = TT__MADE(op->name, y, tt__binary_op_out(op->name, y, x, z, &call));
    return tt__recorded(op, y, TT__INPUTS(x, z), TT__SAVES({x, "a"}, {z, "b"}), TT__STATE(call));
}

/* All that need no more than their line of operators.def. */
#define BINARY(called, formula)                                                                       \
    static const tt__operator called##_op = {.name = "tt_" #called, .backward = tt__binary_backward}; \
    tt_tensor *tt_##called(tt_tensor *a, tt_tensor *b) {                                              \
        return a && b && TT__AUTOCAST(called##_op.name, &a, &b)                                       \
                   ? tt__binary_recorded(&called##_op, a, b, (tt__binary){.op = TT__##formula})       \
                   : NULL;                                                                            \
    }

#include "autograd/operators.def"
