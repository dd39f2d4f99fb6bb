/* logits x (B,V)  target t (B)  ->  mean over b of log sum[b] + max[b] - x[b][t[b]]
 *   with max[b] = max of x[b],  sum[b] = sum of exp(x[b] - max[b])
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) * g / B
 *
 * Backward finds max and sum in one array (B,2). */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_cross_entropy";

/* Saved: x, t, stats. */
static tt_status cross_entropy_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *t = x ? tt__saved(node, 1) : NULL, *stats = t ? tt__saved(node, 2) : NULL;
    if (!stats)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__cross_entropy_backward_out(who, dx, x, t, stats, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator cross_entropy_op = {.name = who, .backward = cross_entropy_backward};

tt_tensor *tt_cross_entropy(tt_tensor *logits, tt_tensor *target) {
    if (!logits || !target || !tt__check_targets(who, "logits", logits, target))
        return NULL;
    tt_tensor *loss = tt__empty_beside(who, logits, TT_SCALAR, logits->dtype);
    tt_tensor *stats = loss ? tt__empty_beside(who, logits, TT_SHAPE(logits->shape.dim[0], 2), logits->dtype) : NULL;
    if (!stats)
        return tt__abandon(loss);
    loss = tt__made(who, loss, tt__cross_entropy_out(who, loss, stats, logits, target));
    loss = tt__recorded(&cross_entropy_op, loss, TT__INPUTS(logits),
                        TT__SAVES({logits, "logits"}, {target, "target"}, {stats, "sums"}), TT__NO_STATE);
    tt__abandon(stats);
    return loss;
}
