#include "tensor/ops/ops.h"

#include "base/error.h"

#include <inttypes.h>

tt_status tt__sum_to_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor) {
    tt__kernel_sum run = TT__KERNEL(who, y, sum);
    if (!run || !TT__SAME_DEVICE(who, y, x))
        return tt_last_status();
    int64_t stride[TT_MAX_DIMS];
    tt__shape_broadcast_strides(&y->shape, y->stride, &x->shape, stride);
    if (x->numel == 0) /* a sum of no terms; with a mean's factor, infinity, it is NaN */
        return tt__fill_out(who, y, 0 * factor);
    tt_tensor wide = tt__tensor_seen(y, x->shape, stride);
    return run(&wide, x, factor);
}

tt_status tt__argmax_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim) {
    tt__kernel_argmax run = TT__KERNEL(who, x, argmax);
    return run && TT__SAME_DEVICE(who, y, x) ? run(x, dim, y) : tt_last_status();
}

tt_status tt__find_outside_out(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t *index,
                               int64_t *value) {
    tt__kernel_find_outside run = TT__KERNEL(who, x, find_outside);
    return run ? run(x, low, high, index, value) : tt_last_status();
}

/* ---- elements in a range */

bool tt__checks_later(const tt_tensor *x) {
    const tt__kernels *kernels = tt__device_of(x)->kernels[x->dtype];
    return kernels && kernels->expect_within;
}

tt_status tt__check_within(const char *who, const tt_tensor *x, int64_t low, int64_t high, int64_t but,
                           const char *text) {
    int64_t index = -1, value = 0;
    if (tt__checks_later(x))
        return tt__device_of(x)->kernels[x->dtype]->expect_within(x, low, high, but, text);
    TT__TRY(tt__find_outside_out(who, x, low, high, &index, &value));
    if (index < 0)
        return TT_OK;
    tt__tensor_fail(TT_ERR_INVALID, "%s[%" PRId64 "] = %" PRId64, text, index, value);
    return TT_ERR_INVALID;
}
