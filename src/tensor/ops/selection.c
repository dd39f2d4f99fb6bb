#include "tensor/ops/ops.h"

/* ---- checks */

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

/* ---- y exists */

tt_status tt__compare_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, tt__comparison op) {
    tt__kernel_compare run = TT__KERNEL(who, a, compare);
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    tt_tensor wide_a = tt__spread(a, y), wide_b = tt__spread(b, y);
    return run(&wide_a, &wide_b, op, y);
}

tt_status tt__where_out(const char *who, tt_tensor *y, const tt_tensor *condition, const tt_tensor *a,
                        const tt_tensor *b) {
    tt__kernel_where run = TT__KERNEL(who, y, where);
    if (!run || !TT__SAME_DEVICE(who, y, condition, a, b))
        return tt_last_status();
    tt_tensor wide_condition = tt__spread(condition, y), wide_a = tt__spread(a, y), wide_b = tt__spread(b, y);
    return run(y, &wide_condition, &wide_a, &wide_b);
}

tt_status tt__masked_fill_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when,
                              double value) {
    tt__kernel_masked_fill run = TT__KERNEL(who, y, masked_fill);
    if (!run || !TT__SAME_DEVICE(who, y, x, mask))
        return tt_last_status();
    tt_tensor wide_x = tt__spread(x, y), wide_mask = tt__spread(mask, y);
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
