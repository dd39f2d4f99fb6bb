#include "autograd/ops/pointwise/broadcast.h"

#include "base/error.h"

/* Make the result, in the order of memory of the input that has y's shape. */
static tt_tensor *broadcast_result(const char *who, tt_shape shape, const tt_tensor *a, const tt_tensor *b) {
    if (tt__shape_equal(&a->shape, &shape))
        return tt__empty_like(who, a);
    return tt__shape_equal(&b->shape, &shape) ? tt__empty_like(who, b) : tt__empty_beside(who, a, shape, a->dtype);
}

tt_tensor *tt__broadcast_forward(const char *who, const tt_tensor *a, const tt_tensor *b) {
    tt_shape shape;
    if (!a || !b || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (!tt__shape_broadcast(&a->shape, &b->shape, &shape))
        return tt__tensor_fail(
            TT_ERR_SHAPE, "%s: expected shapes that broadcast (equal, or 1, counted from the last), got a %s, b %s",
            who, TT__DESCRIBE(a), TT__DESCRIBE(b));
    return broadcast_result(who, shape, a, b);
}

tt_tensor *tt__binary_forward(const char *who, tt__binary_out run, tt_tensor *a, tt_tensor *b) {
    tt_tensor *y = tt__broadcast_forward(who, a, b);
    return TT__MADE(who, y, run(who, y, a, b));
}

tt_status tt__broadcast_give(tt_node *node, int i, tt_tensor *g, double factor) {
    const char *who = node->op->name;
    if (!tt__shape_equal(&node->edge[i].shape, &g->shape))
        TT__GIVE(node, i, d, tt__sum_to_out(who, d, g, factor));
    else if (factor == 1)
        return tt__grad_give(node, i, g);
    else
        TT__GIVE(node, i, d, tt__scale_out(who, d, g, factor));
    return TT_OK;
}
