/* Operations on images: convolutions, pooling, resizing. Operands are brought to one memory format, and the kernel
 * runs. */
#include "base/error.h"
#include "tensor/ops/staged.h"

/* ---- convolutions */

tt_status tt__conv2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                         const tt__conv *conv) {
    tt__kernel_conv2d run = TT__KERNEL(who, y, conv2d);
    if (!run || !TT__SAME_DEVICE(who, y, x, w, bias))
        return tt_last_status();
    if (y->numel == 0)
        return TT_OK;
    tt_memory_format format = tt__common_format(y, x);
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_image(&s, x, format), *weight = tt__stage_plain(&s, w);
    const tt_tensor *shift = tt__stage_plain(&s, bias);
    tt_tensor *out = tt__stage_result(&s, y, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, in, weight, shift, conv));
}

tt_status tt__conv2d_backward_data_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                       const tt__conv *conv) {
    tt__kernel_conv2d_backward_data run = TT__KERNEL(who, dx, conv2d_backward_data);
    if (!run || !TT__SAME_DEVICE(who, dx, g, w))
        return tt_last_status();
    if (dx->numel == 0)
        return TT_OK;
    tt_memory_format format = tt__common_format(dx, g);
    tt__staged s = {.who = who};
    const tt_tensor *from = tt__stage_image(&s, g, format), *weight = tt__stage_plain(&s, w);
    tt_tensor *to = tt__stage_result(&s, dx, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(to, from, weight, conv));
}

tt_status tt__conv2d_backward_weight_out(const char *who, tt_tensor *dw, tt_tensor *db, const tt_tensor *x,
                                         const tt_tensor *g, const tt__conv *conv) {
    tt__kernel_conv2d_backward_weight run = TT__KERNEL(who, dw, conv2d_backward_weight);
    if (!run || !TT__SAME_DEVICE(who, dw, db, x, g))
        return tt_last_status();
    if (g->numel == 0) { /* sums of no terms */
        TT__TRY(tt__fill_out(who, dw, 0));
        return db ? tt__fill_out(who, db, 0) : TT_OK;
    }
    tt_memory_format format = tt__common_format(x, g);
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_image(&s, x, format), *from = tt__stage_image(&s, g, format);
    tt_tensor *to = tt__stage_result(&s, dw, TT_CONTIGUOUS), *shift = tt__stage_result(&s, db, TT_CONTIGUOUS);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(to, shift, in, from, conv));
}

/* ---- pooling */

tt_tensor *tt__pool_places_beside(const char *who, const tt_tensor *x, tt_shape shape, tt_memory_format format) {
    return tt__empty_in_format(who, x, shape, TT_I32, format);
}

tt_status tt__max_pool2d_out(const char *who, tt_tensor *y, tt_tensor *at, const tt_tensor *x,
                             const tt__pooling *pool) {
    tt__kernel_max_pool2d run = TT__KERNEL(who, y, max_pool2d);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(y, x);
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_image(&s, x, format);
    tt_tensor *out = tt__stage_result(&s, y, format), *places = tt__stage_result(&s, at, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, places, in, pool));
}

tt_status tt__max_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                      const tt__pooling *pool) {
    tt__kernel_max_pool2d_backward run = TT__KERNEL(who, dx, max_pool2d_backward);
    if (!run || !TT__SAME_DEVICE(who, dx, g, at) || dx->numel == 0)
        return run && dx->numel == 0 ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(dx, at);
    tt__staged s = {.who = who};
    const tt_tensor *from = tt__stage_image(&s, g, format), *places = tt__stage_image(&s, at, format);
    tt_tensor *to = tt__stage_result(&s, dx, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(to, from, places, pool));
}

tt_status tt__avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__pooling *pool) {
    tt__kernel_avg_pool2d run = TT__KERNEL(who, y, avg_pool2d);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(y, x);
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_image(&s, x, format);
    tt_tensor *out = tt__stage_result(&s, y, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, in, pool));
}

tt_status tt__avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool) {
    tt__kernel_avg_pool2d_backward run = TT__KERNEL(who, dx, avg_pool2d_backward);
    if (!run || !TT__SAME_DEVICE(who, dx, g) || dx->numel == 0)
        return run && dx->numel == 0 ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(dx, g);
    tt__staged s = {.who = who};
    const tt_tensor *from = tt__stage_image(&s, g, format);
    tt_tensor *to = tt__stage_result(&s, dx, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(to, from, pool));
}

tt_status tt__adaptive_avg_pool2d_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    tt__kernel_adaptive_avg_pool2d run = TT__KERNEL(who, y, adaptive_avg_pool2d);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(y, x);
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_image(&s, x, format);
    tt_tensor *out = tt__stage_result(&s, y, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(out, in));
}

tt_status tt__adaptive_avg_pool2d_backward_out(const char *who, tt_tensor *dx, const tt_tensor *g) {
    tt__kernel_adaptive_avg_pool2d_backward run = TT__KERNEL(who, dx, adaptive_avg_pool2d_backward);
    if (!run || !TT__SAME_DEVICE(who, dx, g) || dx->numel == 0)
        return run && dx->numel == 0 ? TT_OK : tt_last_status();
    tt_memory_format format = tt__common_format(dx, g);
    tt__staged s = {.who = who};
    const tt_tensor *from = tt__stage_image(&s, g, format);
    tt_tensor *to = tt__stage_result(&s, dx, format);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(to, from));
}

/* ---- resizing, of any layout */

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
