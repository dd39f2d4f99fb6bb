/* x (B,V) log probabilities  target t (B)  ->  mean over b of -x[b][t[b]].    dx[b][t[b]] = -g / B, else 0 */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_nll_loss";

static tt_status nll_loss_backward(tt_node *node) {
    const tt_tensor *t = tt__saved(node, 0);
    if (!t)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__nll_loss_backward_out(who, dx, t, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator nll_loss_op = {.name = who, .backward = nll_loss_backward};

tt_tensor *tt_nll_loss(tt_tensor *log_prob, tt_tensor *target) {
    if (!log_prob || !target || !tt__check_targets(who, "log_prob", log_prob, target))
        return NULL;
    tt_tensor *loss = tt__empty_beside(who, log_prob, TT_SCALAR, log_prob->dtype);
    loss = TT__MADE(who, loss, tt__nll_loss_out(who, loss, log_prob, target));
    return tt__recorded(&nll_loss_op, loss, TT__INPUTS(log_prob), TT__SAVES({target, "target"}), TT__NO_STATE);
}
