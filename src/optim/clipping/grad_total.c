#include "optim/clipping/grad_total.h"

#include "base/error.h"
#include "optim/clipping/clip_pass.h"
#include "tensor/device/capture.h"
#include "tensor/ops/ops.h"

#include <math.h>

void tt__grad_total_join(tt__grad_total *total, double value) {
    if (!isinf(total->p))
        total->value += value;
    else if (value > total->value || value != value) /* no number is above NaN */
        total->value = value;
}

tt_status tt__grad_total_end(tt__grad_total *total) {
    double value = 0;
    if (!total->far)
        return TT_OK;
    tt_status status = tt__capture_refuse(total->who, NULL);
    if (!status)
        status = tt_item(total->far, &value);
    if (!status)
        tt__grad_total_join(total, value);
    total->far = tt__abandon(total->far);
    return status;
}

tt_tensor *tt__grad_total_far(tt__grad_total *total, const tt_tensor *x) {
    if (total->far && tt__device_of(total->far) == tt__device_of(x))
        return total->far;
    if (tt__grad_total_end(total))
        return NULL;
    tt_tensor *far = tt__empty_beside(total->who, x, TT_SCALAR, TT_F64);
    total->far = far && tt__fill_out(total->who, far, 0) ? tt__abandon(far) : far;
    return total->far;
}

tt_status tt__grad_total_measure(tt__grad_total *total, tt_tensor *x) {
    tt_tensor *flat = tt_contiguous(x);
    if (!flat)
        return tt_last_status();
    if (tt__device_is_host(tt__device_of(x))) {
        tt__grad_total_join(total, tt__clip_term(flat, total->p));
        return TT_OK;
    }
    tt__kernel_grad_measure run = TT__KERNEL(total->who, flat, grad_measure);
    tt_tensor *far = run ? tt__grad_total_far(total, flat) : NULL;
    return far ? run(flat, total->p, far) : tt_last_status();
}
