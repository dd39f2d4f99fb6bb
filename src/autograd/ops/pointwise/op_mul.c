/* y = a * b    da = g * b   db = g * a   (summed over what was repeated) */
#include "autograd/autocast.h"
#include "autograd/ops/pointwise/broadcast.h"

#include "base/error.h"

static const char who[] = "tt_mul";

/* d (input i) = g * other. */
static tt_status mul_give(tt_node *node, int i, const tt_tensor *other) {
    tt_tensor *g = tt__grad_of(node, 0);
    if (!other)
        return tt_last_status();
    if (tt__shape_equal(&node->edge[i].shape, &g->shape)) {
        TT__GIVE(node, i, d, tt__mul_out(who, d, g, other));
        return TT_OK;
    }
    tt_tensor *product = tt__empty_like(who, g);
    if (!product || tt__mul_out(who, product, g, other))
        return tt_last_status();
    return tt__broadcast_give(node, i, product, 1);
}

static tt_status mul_backward(tt_node *node) {
    if (tt__grad_wanted(node, 0))
        TT__TRY(mul_give(node, 0, tt__saved(node, 1)));
    return tt__grad_wanted(node, 1) ? mul_give(node, 1, tt__saved(node, 0)) : TT_OK;
}

static const tt__operator mul_op = {.name = who, .backward = mul_backward};

tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__AUTOCAST(who, &a, &b))
        return NULL;
    tt_tensor *y = tt__binary_forward(who, tt__mul_out, a, b);
    bool save_a = y && b->requires_grad, save_b = y && a->requires_grad;
    return tt__recorded(&mul_op, y, TT__INPUTS(a, b), TT__SAVES({save_a ? a : NULL, "a"}, {save_b ? b : NULL, "b"}),
                        TT__NO_STATE);
}
