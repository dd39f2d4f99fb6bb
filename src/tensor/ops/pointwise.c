#include "tensor/ops/ops.h"

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
    tt_tensor wide_x = tt__spread(x, y), wide_z = tt__spread(z, y);
    return run(y, &wide_x, &wide_z, call);
}

tt_status tt__binary_backward_out(const char *who, tt_tensor *d, const tt_tensor *x, const tt_tensor *z,
                                  const tt_tensor *g, const tt__binary *call, int input) {
    tt__kernel_binary_backward run = TT__KERNEL(who, d, binary_backward);
    if (!run || !TT__SAME_DEVICE(who, d, x, z, g))
        return tt_last_status();
    if (tt__shape_equal(&x->shape, &d->shape) && tt__shape_equal(&z->shape, &d->shape))
        return run(d, x, z, g, call, input);
    tt_tensor wide_x = tt__spread(x, d), wide_z = tt__spread(z, d);
    return run(d, &wide_x, &wide_z, g, call, input);
}
