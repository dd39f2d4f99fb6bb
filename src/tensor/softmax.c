#include "tensor/contiguous.h"

tt_status tt__log_softmax_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    tt__kernel_log_softmax run = TT__KERNEL(who, y, log_softmax);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt__operands o = TT__OPERANDS(who, y, x);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0]));
}

tt_status tt__log_softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    tt__kernel_log_softmax_backward run = TT__KERNEL(who, dx, log_softmax_backward);
    if (!run || dx->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt__operands o = TT__OPERANDS(who, dx, y, g);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1]));
}
