/* Operators of two inputs of shapes that broadcast, element by element: add, sub, mul, and those that operators.def
 * makes of a formula. */
#include "autograd/ops/op_pointwise.h"

#include "autograd/record.h"
#include "base/error.h"

/* Make the result, in the order of memory of the input that has y's shape. */
static tt_tensor *broadcast_result(const char *who, tt_shape shape, const tt_tensor *a, const tt_tensor *b) {
    if (tt__shape_equal(&a->shape, &shape))
        return tt__empty_like(who, a);
    return tt__shape_equal(&b->shape, &shape) ? tt__empty_like(who, b) : tt__empty_beside(who, a, shape, a->dtype);
}

/* Make the result of a and b, floats of shapes that broadcast; NULL and an error if they are not. Its values are not
 * set. */
static tt_tensor *broadcast_forward(const char *who, const tt_tensor *a, const tt_tensor *b) {
    tt_shape shape;
    if (!a || !b || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (!tt__shape_broadcast(&a->shape, &b->shape, &shape))
        return tt__tensor_fail(
            TT_ERR_SHAPE, "%s: expected shapes that broadcast (equal, or 1, counted from the last), got a %s, b %s",
            who, TT__DESCRIBE(a), TT__DESCRIBE(b));
    return broadcast_result(who, shape, a, b);
}

/* y = a op b, not recorded; NULL and an error if the arguments don't fit. */
static tt_tensor *binary_forward(const char *who, tt__binary_out run, tt_tensor *a, tt_tensor *b) {
    tt_tensor *y = broadcast_forward(who, a, b);
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

/* ---- y = a + b    da = g   db = g        y = a - b    da = g   db = -g        (summed over what was repeated) */

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
    tt_tensor *y = binary_forward(add_op.name, tt__add_out, a, b);
    return tt__recorded(&add_op, y, TT__INPUTS(a, b), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_sub(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__AUTOCAST(sub_op.name, &a, &b))
        return NULL;
    tt_tensor *y = binary_forward(sub_op.name, tt__sub_out, a, b);
    return tt__recorded(&sub_op, y, TT__INPUTS(a, b), TT__NO_SAVES, TT__NO_STATE);
}

/* ---- y = a * b    da = g * b   db = g * a   (summed over what was repeated) */

static const char mul_name[] = "tt_mul";

/* d (input i) = g * other. */
static tt_status mul_give(tt_node *node, int i, const tt_tensor *other) {
    tt_tensor *g = tt__grad_of(node, 0);
    if (!other)
        return tt_last_status();
    if (tt__shape_equal(&node->edge[i].shape, &g->shape)) {
        TT__GIVE(node, i, d, tt__mul_out(mul_name, d, g, other));
        return TT_OK;
    }
    tt_tensor *product = tt__empty_like(mul_name, g);
    if (!product || tt__mul_out(mul_name, product, g, other))
        return tt_last_status();
    return tt__broadcast_give(node, i, product, 1);
}

static tt_status mul_backward(tt_node *node) {
    if (tt__grad_wanted(node, 0))
        TT__TRY(mul_give(node, 0, tt__saved(node, 1)));
    return tt__grad_wanted(node, 1) ? mul_give(node, 1, tt__saved(node, 0)) : TT_OK;
}

static const tt__operator mul_op = {.name = mul_name, .backward = mul_backward};

tt_tensor *tt_mul(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__AUTOCAST(mul_name, &a, &b))
        return NULL;
    tt_tensor *y = binary_forward(mul_name, tt__mul_out, a, b);
    bool save_a = y && b->requires_grad, save_b = y && a->requires_grad;
    return tt__recorded(&mul_op, y, TT__INPUTS(a, b), TT__SAVES({save_a ? a : NULL, "a"}, {save_b ? b : NULL, "b"}),
                        TT__NO_STATE);
}

/* ---- of a formula: what each computes, forward and backward, is a line of tensor/ops/pointwise_formulas.h */

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
    tt_tensor *y = broadcast_forward(op->name, x, z);
    y = TT__MADE(op->name, y, tt__binary_op_out(op->name, y, x, z, &call));
    return tt__recorded(op, y, TT__INPUTS(x, z), TT__SAVES({x, "a"}, {z, "b"}), TT__STATE(call));
}

/* Operators for which their line of operators.def is enough. */
#define BINARY(called, formula)                                                                       \
    static const tt__operator called##_op = {.name = "tt_" #called, .backward = tt__binary_backward}; \
    tt_tensor *tt_##called(tt_tensor *a, tt_tensor *b) {                                              \
        return a && b && TT__AUTOCAST(called##_op.name, &a, &b)                                       \
                   ? tt__binary_recorded(&called##_op, a, b, (tt__binary){.op = TT__##formula})       \
                   : NULL;                                                                            \
    }

#include "autograd/operators.def"
