/* Softmax and losses, by way of contiguous operands, and checks of targets. */
#include "base/error.h"
#include "base/text/format.h"
#include "tensor/ops/staged.h"

#include <inttypes.h>

/* ---- softmax */

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

/* ---- losses */

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

tt_status tt__nll_rows_out(const char *who, tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                           const tt_tensor *w, const tt__nll *call) {
    tt__operands o = TT__OPERANDS(who, nll_rows, loss, x, t, w);
    return TT__RUN(o, nll_rows, o.y, share, o.in[0], o.in[1], o.in[2], call);
}

tt_status tt__nll_rows_backward_out(const char *who, tt_tensor *dx, const tt_tensor *t, const tt_tensor *w,
                                    const tt_tensor *g, const tt__nll *call) {
    tt__operands o = TT__OPERANDS(who, nll_rows_backward, dx, t, w, g);
    return TT__RUN(o, nll_rows_backward, o.y, o.in[0], o.in[1], o.in[2], call);
}

/* ---- targets */

/* Check the targets that are not `ignore`, in a copy that has class 0 in place of `ignore`. */
static tt_status check_others(const char *who, const tt_tensor *target, int64_t V, int64_t ignore, const char *text) {
    tt_tensor *number = tt__empty_beside(who, target, TT_SCALAR, target->dtype);
    tt_tensor *mask = number ? tt__empty_beside(who, target, target->shape, TT_BOOL) : NULL;
    tt_tensor *others = mask ? tt__empty_beside(who, target, target->shape, target->dtype) : NULL;
    tt_status status = others ? tt__fill_out(who, number, (double)ignore) : tt_last_status();
    if (!status)
        status = tt__compare_out(who, mask, target, number, TT__EQ);
    if (!status)
        status = tt__masked_fill_out(who, others, target, mask, true, 0);
    if (!status)
        status = tt__check_within(who, others, 0, V - 1, 0, text);
    tt__abandon(others);
    tt__abandon(mask);
    tt__abandon(number);
    return status;
}

tt_status tt__check_classes(const char *who, const tt_tensor *target, int64_t V, int64_t ignore, bool *ignored) {
    int64_t index = -1, value = 0;
    char text[160];
    tt__format(text, sizeof text, "%s: expected targets in 0..%" PRId64 ", got target", who, V - 1);
    *ignored = ignore >= 0 && ignore < V;
    if (tt__checks_later(target))
        return tt__check_within(who, target, 0, V - 1, ignore, text);
    TT__TRY(tt__find_outside_out(who, target, 0, V - 1, &index, &value));
    if (index < 0)
        return TT_OK;
    *ignored = true;
    return value == ignore ? check_others(who, target, V, ignore, text)
                           : tt__check_within(who, target, 0, V - 1, 0, text);
}
