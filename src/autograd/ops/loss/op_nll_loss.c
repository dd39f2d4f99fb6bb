/* x (B,V) log probabilities  target t (B)  ->  mean over b of -x[b][t[b]].    dx[b][t[b]] = -g / B, else 0
 *
 * With options the loss of each row is recorded (tensor/kernels/kernels.h has its formula), then reduced; the mean
 * is by the classes' weights. */
#include "autograd/autocast.h"
#include "autograd/ops/loss/loss_reduction.h"
#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_nll_loss";

/* ---- the mean of all rows. Saved: t. */

static tt_status nll_loss_backward(tt_node *node) {
    const tt_tensor *t = tt__saved(node, 0);
    if (!t)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__nll_loss_backward_out(who, dx, t, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator nll_loss_op = {.name = who, .backward = nll_loss_backward};

static tt_tensor *nll_mean(tt_tensor *x, tt_tensor *target) {
    tt_tensor *loss = tt__empty_beside(who, x, TT_SCALAR, x->dtype);
    loss = TT__MADE(who, loss, tt__nll_loss_out(who, loss, x, target));
    return tt__recorded(&nll_loss_op, loss, TT__INPUTS(x), TT__SAVES({target, "target"}), TT__NO_STATE);
}

/* ---- row by row, with options. State: them. Saved: t, weight. */

static tt_status nll_rows_backward(tt_node *node) {
    const tt__nll *call = tt__state(node);
    const tt_tensor *t = tt__saved(node, 0), *weight = t ? tt__saved(node, 1) : NULL;
    if (!t || (!weight && node->save[1].tensor))
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__nll_rows_backward_out(who, dx, t, weight, tt__grad_of(node, 0), call));
    return TT_OK;
}

static const tt__operator nll_rows_op = {.name = who, .backward = nll_rows_backward};

/* The sum, divided by that of the rows' weights. */
static tt_tensor *weighted_mean(tt_tensor *each, tt_tensor *share) {
    tt_tensor *sum = tt_sum(each), *weights = tt_sum(share), *mean = tt_div(sum, weights);
    tt__abandon(weights);
    tt__abandon(sum);
    return mean;
}

tt_tensor *tt__nll_recorded(tt_tensor *x, tt_tensor *target, tt_tensor *weight, tt__nll call, tt_reduction reduction) {
    tt_shape rows = TT_SHAPE(x->shape.dim[0]);
    tt_tensor *share = tt__empty_beside(who, x, rows, x->dtype);
    tt_tensor *each = share ? tt__empty_beside(who, x, rows, x->dtype) : NULL;
    each = TT__MADE(who, each, tt__nll_rows_out(who, each, share, x, target, weight, &call));
    each = tt__recorded(&nll_rows_op, each, TT__INPUTS(x), TT__SAVES({target, "target"}, {weight, "weight"}),
                        TT__STATE(call));
    if (each && reduction == TT_REDUCTION_MEAN) {
        tt_tensor *mean = weighted_mean(each, share);
        tt__abandon(each);
        each = mean;
    } else {
        each = tt__loss_reduced(each, reduction);
    }
    tt__abandon(share);
    return each;
}

/* log_prob (B,V). */
static tt_tensor *nll_loss_of_rows(const tt_nll_loss_args *o) {
    tt__nll call = {.ignore = o->ignore_index.given ? o->ignore_index.value : -100};
    bool ignored = false;
    if (!tt__check_reduction(who, o->reduction, false) ||
        !tt__check_targets(who, "log_prob", o->log_prob, o->target, o->weight, call.ignore, &ignored))
        return NULL;
    bool plain = !ignored && !o->weight && o->reduction == TT_REDUCTION_MEAN;
    return plain ? nll_mean(o->log_prob, o->target)
                 : tt__nll_recorded(o->log_prob, o->target, o->weight, call, o->reduction);
}

tt_tensor *tt_nll_loss_with(const tt_nll_loss_args *args, size_t size) {
    tt_nll_loss_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.log_prob || !o.target || !TT__AUTOCAST(who, &o.log_prob, &o.weight) || !tt__tensor_check(who, o.log_prob))
        return NULL;
    if (o.log_prob->shape.ndim <= 2)
        return nll_loss_of_rows(&o);
    tt_nll_loss_args rows = o;
    if (!tt__class_rows(who, "log_prob", o.log_prob, o.target, &rows.log_prob, &rows.target))
        return NULL;
    tt_tensor *loss = tt__class_losses(nll_loss_of_rows(&rows), o.target, o.reduction);
    tt__abandon(rows.log_prob);
    tt__abandon(rows.target);
    return loss;
}
