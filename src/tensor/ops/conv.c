/* Convolutions: operands are brought to one memory format, and the kernel runs. */
#include "base/error.h"
#include "tensor/ops/staged.h"

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
