/* logits x (B,V)  target t (B)  ->  mean over b of log sum[b] + max[b] - x[b][t[b]]
 *   with max[b] = max of x[b],  sum[b] = sum of exp(x[b] - max[b])
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) * g / B
 *
 * Backward finds max and sum in one array (B,2). With options it is log_softmax and the negative log likelihood. */
#include "autograd/autocast.h"
#include "autograd/ops/loss/loss_reduction.h"
#include "base/args.h"
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

/* The mean of all rows. */
static tt_tensor *cross_entropy_mean(tt_tensor *logits, tt_tensor *target) {
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

static tt_tensor *cross_entropy_of(const tt_cross_entropy_args *o, tt__nll call) {
    tt_tensor *log_prob = tt_log_softmax(o->logits, 1);
    tt_tensor *loss = log_prob ? tt__nll_recorded(log_prob, o->target, o->weight, call, o->reduction) : NULL;
    tt__abandon(log_prob);
    return loss;
}

/* logits (B,V). */
static tt_tensor *cross_entropy_of_rows(const tt_cross_entropy_args *o) {
    tt__nll call = {o->ignore_index.given ? o->ignore_index.value : -100, o->label_smoothing};
    bool ignored = false;
    if (!tt__check_reduction(who, o->reduction, false) ||
        !tt__check_targets(who, "logits", o->logits, o->target, o->weight, call.ignore, &ignored))
        return NULL;
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected label_smoothing in 0..1, got %g", who, o->label_smoothing);
    bool plain = !ignored && !o->weight && o->label_smoothing == 0 && o->reduction == TT_REDUCTION_MEAN;
    return plain ? cross_entropy_mean(o->logits, o->target) : cross_entropy_of(o, call);
}

tt_tensor *tt_cross_entropy_with(const tt_cross_entropy_args *args, size_t size) {
    tt_cross_entropy_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.logits || !o.target || !TT__AUTOCAST(who, &o.logits, &o.weight) || !tt__tensor_check(who, o.logits))
        return NULL;
    if (o.logits->shape.ndim <= 2)
        return cross_entropy_of_rows(&o);
    tt_cross_entropy_args rows = o;
    if (!tt__class_rows(who, "logits", o.logits, o.target, &rows.logits, &rows.target))
        return NULL;
    tt_tensor *loss = tt__class_losses(cross_entropy_of_rows(&rows), o.target, o.reduction);
    tt__abandon(rows.logits);
    tt__abandon(rows.target);
    return loss;
}
