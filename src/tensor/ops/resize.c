/* Images of another size. */
#include "base/error.h"
#include "tensor/ops/ops.h"

tt_tensor *tt__empty_resized(const char *who, const tt_tensor *x, int64_t H, int64_t W) {
    tt_shape shape = {.ndim = 4, .dim = {x->shape.dim[0], x->shape.dim[1], H, W}};
    int64_t stride[TT_MAX_DIMS];
    tt__shape_dense_strides(&shape, x->stride, stride);
    return tt__tensor_new_on(who, tt__device_of(x), shape, x->dtype, x->contiguous ? NULL : stride);
}

tt_status tt__resize_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__resize *how) {
    tt__kernel_resize run = TT__KERNEL(who, y, resize);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, how) : tt_last_status();
}

tt_status tt__resize_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__resize *how) {
    if (dx->dtype == TT_F16 || dx->dtype == TT_BF16) { /* added up in f32, rounded once */
        tt_tensor *sum = tt__to(who, dx, TT_F32), *from = sum ? tt__to(who, g, TT_F32) : NULL;
        tt_status status = from ? tt__resize_backward_out(who, sum, from, how) : tt_last_status();
        if (!status)
            status = tt__copy_out(who, dx, sum);
        tt__abandon(from);
        tt__abandon(sum);
        return status;
    }
    tt__kernel_resize_backward run = TT__KERNEL(who, dx, resize_backward);
    if (!run || !TT__SAME_DEVICE(who, dx, g))
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dx, 0));
    return run(dx, g, how);
}
