/* Pooling: operands are brought to one memory format, and the kernel runs. */
#include "base/error.h"
#include "tensor/ops/staged.h"

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
