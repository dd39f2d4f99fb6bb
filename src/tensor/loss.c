#include "tensor/contiguous.h"

tt_status tt__cross_entropy_out(const char *who, tt_tensor *loss, tt_tensor *stats, const tt_tensor *x,
                                const tt_tensor *t) {
    tt__kernel_cross_entropy run = TT__KERNEL(who, loss, cross_entropy);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, loss, x, t, stats);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, stats, o.in[0], o.in[1]));
}

tt_status tt__cross_entropy_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                         const tt_tensor *stats, const tt_tensor *g) {
    tt__kernel_cross_entropy_backward run = TT__KERNEL(who, dx, cross_entropy_backward);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, dx, x, t, stats, g);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1], o.in[2], o.in[3]));
}

tt_status tt__nll_loss_out(const char *who, tt_tensor *loss, const tt_tensor *x, const tt_tensor *t) {
    tt__kernel_nll_loss run = TT__KERNEL(who, loss, nll_loss);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, loss, x, t);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1]));
}

tt_status tt__nll_loss_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *g) {
    tt__kernel_nll_loss_backward run = TT__KERNEL(who, dx, nll_loss_backward);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, dx, t, g);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1]));
}

tt_status tt__mse_loss_out(const char *who, tt_tensor *loss, const tt_tensor *a, const tt_tensor *b) {
    tt__kernel_mse_loss run = TT__KERNEL(who, loss, mse_loss);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, loss, a, b);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1]));
}

tt_status tt__mse_loss_backward_out(const char *who, tt_tensor *da, const tt_tensor *a, const tt_tensor *b,
                                    const tt_tensor *g) {
    tt__kernel_mse_loss_backward run = TT__KERNEL(who, da, mse_loss_backward);
    if (!run)
        return tt_last_status();
    tt__operands o = TT__OPERANDS(who, da, a, b, g);
    return tt__operands_end(&o, o.status ? o.status : run(o.y, o.in[0], o.in[1], o.in[2]));
}
