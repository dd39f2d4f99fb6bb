/* Operations that go element by element: arithmetic, formulas, dropout, comparisons, choices. */
#include "tensor/ops/ops.h"

bool tt__same_device(const char *who, int n, const tt_tensor *const *tensors) {
    const tt_tensor *first = NULL;
    for (int i = 0; i < n; i++) {
        const tt_tensor *x = tensors[i];
        if (!x)
            continue;
        first = first ? first : x;
        if (tt__device_of(x) == tt__device_of(first))
            continue;
        tt__tensor_fail(TT_ERR_INVALID,
                        "%s: expected tensors on one device, got %s on %s and %s on %s; tt_to_device() moves", who,
                        TT__DESCRIBE(first), tt__device_of(first)->name, TT__DESCRIBE(x), tt__device_of(x)->name);
        return false;
    }
    return true;
}

/* View x as it is repeated to y's shape: its strides are 0 there. */
static tt_tensor spread_to(const tt_tensor *x, const tt_tensor *y) {
    int64_t stride[TT_MAX_DIMS];
    tt__shape_broadcast_strides(&x->shape, x->stride, &y->shape, stride);
    return tt__tensor_seen(x, y->shape, stride);
}

static tt_status broadcast_binary(const char *who, tt__kernel_add run, tt_tensor *y, const tt_tensor *a,
                                  const tt_tensor *b) {
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    if (tt__shape_equal(&a->shape, &y->shape) && tt__shape_equal(&b->shape, &y->shape))
        return run(y, a, b);
    tt_tensor wide_a = spread_to(a, y), wide_b = spread_to(b, y);
    return run(y, &wide_a, &wide_b);
}

tt_status tt__add_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return broadcast_binary(who, TT__KERNEL(who, y, add), y, a, b);
}

tt_status tt__sub_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return broadcast_binary(who, TT__KERNEL(who, y, sub), y, a, b);
}

tt_status tt__mul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    return broadcast_binary(who, TT__KERNEL(who, y, mul), y, a, b);
}

tt_status tt__scale_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor) {
    tt__kernel_scale run = TT__KERNEL(who, y, scale);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, factor) : tt_last_status();
}

tt_status tt__relu_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    tt__kernel_relu run = TT__KERNEL(who, y, relu);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x) : tt_last_status();
}

tt_status tt__relu_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    tt__kernel_relu_backward run = TT__KERNEL(who, dx, relu_backward);
    return run && TT__SAME_DEVICE(who, dx, y, g) ? run(dx, y, g) : tt_last_status();
}

/* ---- formulas, dropout */

tt_status tt__unary_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    tt__kernel_unary run = TT__KERNEL(who, y, unary);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, call) : tt_last_status();
}

tt_status tt__unary_backward_out(const char *who, tt_tensor *dx, const tt_tensor *v, const tt_tensor *g,
                                 const tt__unary *call) {
    tt__kernel_unary_backward run = TT__KERNEL(who, dx, unary_backward);
    return run && TT__SAME_DEVICE(who, dx, v, g) ? run(dx, v, g, call) : tt_last_status();
}

tt_status tt__binary_op_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *z,
                            const tt__binary *call) {
    tt__kernel_binary run = TT__KERNEL(who, y, binary);
    if (!run || !TT__SAME_DEVICE(who, y, x, z))
        return tt_last_status();
    if (tt__shape_equal(&x->shape, &y->shape) && tt__shape_equal(&z->shape, &y->shape))
        return run(y, x, z, call);
    tt_tensor wide_x = spread_to(x, y), wide_z = spread_to(z, y);
    return run(y, &wide_x, &wide_z, call);
}

tt_status tt__binary_backward_out(const char *who, tt_tensor *d, const tt_tensor *x, const tt_tensor *z,
                                  const tt_tensor *g, const tt__binary *call, int input) {
    tt__kernel_binary_backward run = TT__KERNEL(who, d, binary_backward);
    if (!run || !TT__SAME_DEVICE(who, d, x, z, g))
        return tt_last_status();
    if (tt__shape_equal(&x->shape, &d->shape) && tt__shape_equal(&z->shape, &d->shape))
        return run(d, x, z, g, call, input);
    tt_tensor wide_x = spread_to(x, d), wide_z = spread_to(z, d);
    return run(d, &wide_x, &wide_z, g, call, input);
}

tt_status tt__dropout_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    tt__kernel_dropout run = TT__KERNEL(who, y, dropout);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, call) : tt_last_status();
}

/* ---- comparisons and choices: checks */

bool tt__check_mask(const char *who, const char *name, const tt_tensor *mask, const tt_tensor *x) {
    if (!tt__tensor_check(who, mask))
        return false;
    if (mask->dtype != TT_BOOL) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected %s bool, got %s %s", who, name, name, TT__DESCRIBE(mask));
        return false;
    }
    return TT__SAME_DEVICE(who, x, mask);
}

bool tt__check_alike(const char *who, const tt_tensor *a, const tt_tensor *b) {
    if (!tt__tensor_check(who, a) || !tt__tensor_check(who, b))
        return false;
    if (a->dtype != b->dtype) {
        tt__tensor_fail(TT_ERR_DTYPE, "%s: expected one dtype, got a %s, b %s", who, TT__DESCRIBE(a), TT__DESCRIBE(b));
        return false;
    }
    return TT__SAME_DEVICE(who, a, b);
}

/* ---- results into a y that exists */

tt_status tt__compare_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, tt__comparison op) {
    tt__kernel_compare run = TT__KERNEL(who, a, compare);
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    tt_tensor wide_a = spread_to(a, y), wide_b = spread_to(b, y);
    return run(&wide_a, &wide_b, op, y);
}

tt_status tt__where_out(const char *who, tt_tensor *y, const tt_tensor *condition, const tt_tensor *a,
                        const tt_tensor *b) {
    tt__kernel_where run = TT__KERNEL(who, y, where);
    if (!run || !TT__SAME_DEVICE(who, y, condition, a, b))
        return tt_last_status();
    tt_tensor wide_condition = spread_to(condition, y), wide_a = spread_to(a, y), wide_b = spread_to(b, y);
    return run(y, &wide_condition, &wide_a, &wide_b);
}

tt_status tt__masked_fill_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when,
                              double value) {
    tt__kernel_masked_fill run = TT__KERNEL(who, y, masked_fill);
    if (!run || !TT__SAME_DEVICE(who, y, x, mask))
        return tt_last_status();
    tt_tensor wide_x = spread_to(x, y), wide_mask = spread_to(mask, y);
    return run(y, &wide_x, &wide_mask, when, value);
}

/* ---- comparisons */

static tt_tensor *compared(const char *who, const tt_tensor *a, const tt_tensor *b, tt__comparison op) {
    tt_shape shape;
    if (!a || !b || !tt__check_alike(who, a, b))
        return NULL;
    if (!tt__shape_broadcast(&a->shape, &b->shape, &shape))
        return tt__tensor_fail(
            TT_ERR_SHAPE, "%s: expected shapes that broadcast (equal, or 1, counted from the last), got a %s, b %s",
            who, TT__DESCRIBE(a), TT__DESCRIBE(b));
    tt_tensor *y = tt__empty_beside(who, a, shape, TT_BOOL);
    return y && tt__compare_out(who, y, a, b, op) ? tt__abandon(y) : y;
}

static tt_tensor *compared_to_number(const char *who, const tt_tensor *x, double number, tt__comparison op) {
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (!tt__dtype_holds(x->dtype, number))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, number, TT__DESCRIBE(x));
    tt_tensor *b = tt__empty_beside(who, x, TT_SCALAR, x->dtype);
    tt_tensor *y = b && !tt__fill_out(who, b, number) ? compared(who, x, b, op) : NULL;
    tt__abandon(b);
    return y;
}

#define COMPARISON(name, op)                                                                       \
    tt_tensor *tt_##name(tt_tensor *a, tt_tensor *b) { return compared("tt_" #name, a, b, (op)); } \
    tt_tensor *tt_##name##_scalar(tt_tensor *x, double number) {                                   \
        return compared_to_number("tt_" #name "_scalar", x, number, (op));                         \
    }

COMPARISON(eq, TT__EQ)
COMPARISON(ne, TT__NE)
COMPARISON(lt, TT__LT)
COMPARISON(le, TT__LE)
COMPARISON(gt, TT__GT)
COMPARISON(ge, TT__GE)
