/* Operators that change their first input. The call's node then comes on top of the input's history, so gradients flow
 * through the call to what the input was computed from.
 *
 * A view has a history of its own, which such a call could not change. So the storage of x must never have had views if
 * the call is recorded. Backward of an older call that needs the old values fails, by the storage's version
 * (tensor/core/tensor.h). */
#include "autograd/ops/op_pointwise.h"
#include "autograd/record.h"
#include "base/error.h"

/* A call that changes inputs[0]. */
typedef struct tt__in_place {
    const tt__operator *op;
    tt_tensor *x;
    tt_node *node; /* NULL: nothing is recorded */
} tt__in_place;

/* May a call that changes x be recorded? Else why not. */
static const char *why_not_recorded(const tt_tensor *x) {
    if (x->history && x->history->is_leaf)
        return "is a leaf that requires a gradient; change it inside tt_no_grad_begin()";
    if (x->owner == TT__OWNER_HOLDER || x->owner == TT__OWNER_LENDER)
        return "belongs to something else, which would keep this record; tt_clone() it first";
    if (atomic_load_explicit(&x->storage->viewed, memory_order_relaxed))
        return "shares its storage with views, whose records would not know; tt_clone() it first";
    return NULL;
}

static bool may_change(const char *who, const tt_tensor *x, bool recorded) {
    tt_status writable = tt__tensor_check_writable(who, x);
    if (writable) {
        tt__made(who, NULL, writable);
        return false;
    }
    const char *why = recorded ? why_not_recorded(x) : NULL;
    if (why)
        tt__tensor_fail(TT_ERR_STATE, "%s: x %s %s", who, TT__DESCRIBE(x), why);
    return !why;
}

/* Begin a call: check that x may be changed; if the call is to be recorded, make a node and save tensors as they are.
 * False, and an error: TT_ERR_STATE: x is a leaf that requires a gradient, belongs to something, or has views;
 * TT_ERR_INVALID: x repeats elements; TT_ERR_MEMORY. */
static bool in_place_begin(tt__in_place *call, const tt__operator *op, int n, tt_tensor *const *inputs, int saves,
                           const tt__to_save *save, const void *state, size_t state_bytes) {
    bool recorded = tt__wants_grad(n, inputs);
    *call = (tt__in_place){.op = op, .x = inputs[0]};
    if (!may_change(op->name, inputs[0], recorded))
        return false;
    if (!recorded)
        return true;
    call->node = tt__node_new(op, n, inputs, 1, saves + 1, state, state_bytes);
    tt_status status = call->node ? TT_OK : tt_last_status();
    for (int i = 0; i < saves && !status; i++)
        status = tt__node_save(call->node, save[i].x, save[i].name);
    if (status)
        tt__made(op->name, NULL, status);
    if (status && call->node)
        tt__node_spend(call->node);
    if (status)
        tt__node_unref(call->node);
    return !status;
}

/* Put the node on top of x's history. */
static void attach_node(tt_tensor *x, tt_node *node) {
    tt__history *before = x->history;
    tt__node_made(node, 0, x);
    if (before)
        before->release(before);
}

/* End a call that has written x with this status. `save_result`: backward needs it as number `saves`. Returns x; NULL
 * on failure. */
static tt_tensor *in_place_end(tt__in_place *call, tt_status status, bool save_result) {
    tt__storage_touch(call->x->storage);
    if (!status && call->node && save_result)
        status = tt__node_save(call->node, call->x, "its result");
    if (!status && call->node)
        attach_node(call->x, call->node);
    else if (call->node)
        tt__node_spend(call->node);
    tt__node_unref(call->node);
    return status ? tt__made(call->op->name, NULL, status) : call->x;
}

/* ---- the operators
 * add_: x += b   sub_: x -= b   mul_: x *= b   div_: x /= b   (b is repeated to x's shape)
 * scale_: x *= number   relu_: x = max(x, 0)   fill_: x = number   zero_: x = 0
 * Gradients are those of the operators without the underscore; mul_ and div_ copy what they overwrite if b's gradient
 * needs it. fill_ and zero_ pass no gradient on. */

/* ---- with a number */

static tt_status scale_in_place_backward(tt_node *node) {
    const double *factor = tt__state(node);
    TT__GIVE_OVER(node, 0, dx, tt__scale_out(node->op->name, dx, tt__grad_of(node, 0), *factor));
    return TT_OK;
}

static const tt__operator scale_in_place_op = {.name = "tt_scale_", .backward = scale_in_place_backward};

tt_tensor *tt_scale_(tt_tensor *x, double factor) {
    tt__in_place call;
    if (!x || !TT__CHECK_FLOATS(scale_in_place_op.name, {"x", x}) ||
        !in_place_begin(&call, &scale_in_place_op, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(factor)))
        return NULL;
    return in_place_end(&call, tt__scale_out(scale_in_place_op.name, x, x, factor), false);
}

static tt_status relu_in_place_backward(tt_node *node) {
    const tt_tensor *y = tt__saved(node, 0);
    if (!y)
        return tt_last_status();
    TT__GIVE_OVER(node, 0, dx, tt__relu_backward_out(node->op->name, dx, y, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator relu_in_place_op = {.name = "tt_relu_", .backward = relu_in_place_backward};

tt_tensor *tt_relu_(tt_tensor *x) {
    tt__in_place call;
    if (!x || !TT__CHECK_FLOATS(relu_in_place_op.name, {"x", x}) ||
        !in_place_begin(&call, &relu_in_place_op, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE))
        return NULL;
    return in_place_end(&call, tt__relu_out(relu_in_place_op.name, x, x), true);
}

static tt_status fill_in_place_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__fill_out(node->op->name, dx, 0));
    return TT_OK;
}

static const tt__operator fill_in_place_op = {.name = "tt_fill_", .backward = fill_in_place_backward};
static const tt__operator zero_in_place_op = {.name = "tt_zero_", .backward = fill_in_place_backward};

static tt_tensor *filled_in_place(const tt__operator *op, tt_tensor *x, double value) {
    tt__in_place call;
    if (!x || !tt__tensor_check(op->name, x))
        return NULL;
    if (!tt__dtype_holds(x->dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", op->name, value, TT__DESCRIBE(x));
    if (!in_place_begin(&call, op, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE))
        return NULL;
    return in_place_end(&call, tt__fill_out(op->name, x, value), false);
}

tt_tensor *tt_fill_(tt_tensor *x, double value) { return filled_in_place(&fill_in_place_op, x, value); }

tt_tensor *tt_zero_(tt_tensor *x) { return filled_in_place(&zero_in_place_op, x, 0); }

/* ---- with a tensor. State of mul_ and div_: the formula. Saved there: x as it was, if b wants a gradient, and b. */

static tt_status give_sum(tt_node *node, double b_factor) {
    tt_tensor *g = tt__grad_of(node, 0);
    if (tt__grad_wanted(node, 1))
        TT__TRY(tt__broadcast_give(node, 1, g, b_factor));
    return tt__grad_wanted(node, 0) ? tt__grad_give(node, 0, g) : TT_OK;
}

static tt_status add_in_place_backward(tt_node *node) { return give_sum(node, 1); }

static tt_status sub_in_place_backward(tt_node *node) { return give_sum(node, -1); }

static const tt__operator add_in_place_op = {.name = "tt_add_", .backward = add_in_place_backward};
static const tt__operator sub_in_place_op = {.name = "tt_sub_", .backward = sub_in_place_backward};
static const tt__operator mul_in_place_op = {.name = "tt_mul_", .backward = tt__binary_backward};
static const tt__operator div_in_place_op = {.name = "tt_div_", .backward = tt__binary_backward};

static bool check_in_place(const char *who, const tt_tensor *x, const tt_tensor *b) {
    tt_shape shape;
    if (!x || !b || !TT__CHECK_FLOATS(who, {"x", x}, {"b", b}))
        return false;
    if (tt__shape_broadcast(&x->shape, &b->shape, &shape) && tt__shape_equal(&shape, &x->shape))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected b that broadcasts to x %s, got b %s", who, TT__DESCRIBE(x),
                    TT__DESCRIBE(b));
    return false;
}

/* Return b, or a copy of it if b would change with x; tt__contiguous_done() frees the copy. */
static tt_tensor *apart_from(const char *who, const tt_tensor *x, tt_tensor *b) {
    return b->storage == x->storage ? tt__clone(who, b) : b;
}

static tt_tensor *sum_in_place(const tt__operator *op, tt__binary_out run, tt_tensor *x, tt_tensor *b) {
    tt__in_place call;
    if (!x || !b || !TT__AUTOCAST(op->name, &x, &b) || !check_in_place(op->name, x, b))
        return NULL;
    tt_tensor *other = apart_from(op->name, x, b);
    bool begun = other && in_place_begin(&call, op, TT__INPUTS(x, b), TT__NO_SAVES, TT__NO_STATE);
    tt_tensor *y = begun ? in_place_end(&call, run(op->name, x, x, other), false) : NULL;
    tt__contiguous_done(other, b);
    return y;
}

/* x is saved only if b wants a gradient. The gradient of x needs b alone, so otherwise b is saved in x's place. */
static tt_tensor *formula_in_place(const tt__operator *op, tt_tensor *x, tt_tensor *b, tt__binary formula) {
    tt__in_place call;
    if (!x || !b || !TT__AUTOCAST(op->name, &x, &b) || !check_in_place(op->name, x, b))
        return NULL;
    tt_tensor *other = apart_from(op->name, x, b);
    tt_tensor *before = other && b->requires_grad && tt__is_recording() ? tt__clone(op->name, x) : other;
    bool begun = before && in_place_begin(&call, op, TT__INPUTS(x, b), TT__SAVES({before, "x"}, {other, "b"}),
                                          TT__STATE(formula));
    tt_tensor *y = begun ? in_place_end(&call, tt__binary_op_out(op->name, x, x, other, &formula), false) : NULL;
    tt__contiguous_done(before, other);
    tt__contiguous_done(other, b);
    return y;
}

tt_tensor *tt_add_(tt_tensor *x, tt_tensor *b) { return sum_in_place(&add_in_place_op, tt__add_out, x, b); }

tt_tensor *tt_sub_(tt_tensor *x, tt_tensor *b) { return sum_in_place(&sub_in_place_op, tt__sub_out, x, b); }

tt_tensor *tt_mul_(tt_tensor *x, tt_tensor *b) {
    return formula_in_place(&mul_in_place_op, x, b, (tt__binary){.op = TT__MUL});
}

tt_tensor *tt_div_(tt_tensor *x, tt_tensor *b) {
    return formula_in_place(&div_in_place_op, x, b, (tt__binary){.op = TT__DIV});
}
