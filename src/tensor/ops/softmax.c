#include "tensor/shape/contiguous.h"

tt_status tt__log_softmax_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    if (y->numel == 0)
        return TT_OK;
    tt__operands o = TT__OPERANDS(who, log_softmax, y, x);
    return TT__RUN(o, log_softmax, o.y, o.in[0]);
}

tt_status tt__log_softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    if (dx->numel == 0)
        return TT_OK;
    tt__operands o = TT__OPERANDS(who, log_softmax_backward, dx, y, g);
    return TT__RUN(o, log_softmax_backward, o.y, o.in[0], o.in[1]);
}

tt_status tt__softmax_out(const char *who, tt_tensor *y, const tt_tensor *x) {
    if (y->numel == 0)
        return TT_OK;
    tt__operands o = TT__OPERANDS(who, softmax, y, x);
    return TT__RUN(o, softmax, o.y, o.in[0]);
}

tt_status tt__softmax_backward_out(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    if (dx->numel == 0)
        return TT_OK;
    tt__operands o = TT__OPERANDS(who, softmax_backward, dx, y, g);
    return TT__RUN(o, softmax_backward, o.y, o.in[0], o.in[1]);
}
