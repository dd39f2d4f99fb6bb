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

tt_tensor tt__spread(const tt_tensor *x, const tt_tensor *y) {
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
    tt_tensor wide_a = tt__spread(a, y), wide_b = tt__spread(b, y);
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
