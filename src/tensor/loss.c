#include "tensor/contiguous.h"

tt_status tt__cross_entropy_out(const char *who, tt_tensor *loss, tt_tensor *stats, const tt_tensor *x,
                                const tt_tensor *t) {
    tt__operands o = TT__OPERANDS(who, cross_entropy, loss, x, t, stats);
    return TT__RUN(o, cross_entropy, o.y, stats, o.in[0], o.in[1]);
}

tt_status tt__cross_entropy_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                         const tt_tensor *stats, const tt_tensor *g) {
    tt__operands o = TT__OPERANDS(who, cross_entropy_backward, dx, x, t, stats, g);
    return TT__RUN(o, cross_entropy_backward, o.y, o.in[0], o.in[1], o.in[2], o.in[3]);
}

tt_status tt__nll_loss_out(const char *who, tt_tensor *loss, const tt_tensor *x, const tt_tensor *t) {
    tt__operands o = TT__OPERANDS(who, nll_loss, loss, x, t);
    return TT__RUN(o, nll_loss, o.y, o.in[0], o.in[1]);
}

tt_status tt__nll_loss_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *g) {
    tt__operands o = TT__OPERANDS(who, nll_loss_backward, dx, t, g);
    return TT__RUN(o, nll_loss_backward, o.y, o.in[0], o.in[1]);
}

tt_status tt__mse_loss_out(const char *who, tt_tensor *loss, const tt_tensor *a, const tt_tensor *b) {
    tt__operands o = TT__OPERANDS(who, mse_loss, loss, a, b);
    return TT__RUN(o, mse_loss, o.y, o.in[0], o.in[1]);
}

tt_status tt__mse_loss_backward_out(const char *who, tt_tensor *da, const tt_tensor *a, const tt_tensor *b,
                                    const tt_tensor *g) {
    tt__operands o = TT__OPERANDS(who, mse_loss_backward, da, a, b, g);
    return TT__RUN(o, mse_loss_backward, o.y, o.in[0], o.in[1], o.in[2]);
}
