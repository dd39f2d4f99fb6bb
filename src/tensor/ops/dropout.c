#include "tensor/ops/ops.h"

tt_status tt__dropout_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    tt__kernel_dropout run = TT__KERNEL(who, y, dropout);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, call) : tt_last_status();
}
