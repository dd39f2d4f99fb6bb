/* Losses: nll_loss, cross_entropy, mse_loss, l1_loss, smooth_l1_loss, kl_div, binary_cross_entropy_with_logits. */

#include "autograd/ops/op_pointwise.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"

/* The sum, divided by the size of the first dimension. */
static tt_tensor *batch_mean(tt_tensor *each) {
    tt_tensor *sum = tt_sum(each), *mean = tt_scale(sum, 1.0 / (double)(each->shape.ndim ? each->shape.dim[0] : 1));
    tt__abandon(sum);
    return mean;
}

/* Reduce the recorded losses `each`, and end them; NULL gives NULL. */
static tt_tensor *loss_reduced(tt_tensor *each, tt_reduction reduction) {
    if (!each || reduction == TT_REDUCTION_NONE)
        return each;
    tt_tensor *loss = reduction == TT_REDUCTION_MEAN  ? tt_mean(each)
                      : reduction == TT_REDUCTION_SUM ? tt_sum(each)
                                                      : batch_mean(each);
    tt__abandon(each);
    return loss;
}

static bool check_loss_pair(const char *who, const tt_tensor *input, const tt_tensor *target) {
    if (!TT__CHECK_FLOATS(who, {"input", input}, {"target", target}))
        return false;
    if (tt__shape_equal(&input->shape, &target->shape))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected input and target of one shape, got input %s, target %s", who,
                    TT__DESCRIBE(input), TT__DESCRIBE(target));
    return false;
}

/* The loss that is `call` of input and target, element by element, reduced; both are not NULL. */
static tt_tensor *pair_loss(const tt__operator *op, tt_tensor *input, tt_tensor *target, tt__binary call,
                            tt_reduction reduction) {
    if (!check_loss_pair(op->name, input, target))
        return NULL;
    return loss_reduced(tt__binary_recorded(op, input, target, call), reduction);
}

/* ---- classes along dimension 1 of several */

static bool targets_fit(const tt_tensor *x, const tt_tensor *target) {
    bool fit = target->shape.ndim == x->shape.ndim - 1 && target->shape.dim[0] == x->shape.dim[0];
    for (int d = 1; fit && d < target->shape.ndim; d++)
        fit = target->shape.dim[d] == x->shape.dim[d + 1];
    return fit;
}

/* (B,V,d...) -> (B,V,D) -> (B,D,V) -> (B D,V). */
static tt_tensor *rows_of_classes(tt_tensor *x) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1], D = 1;
    for (int d = 2; d < x->shape.ndim; d++)
        D *= x->shape.dim[d];
    tt_tensor *joined = tt_reshape(x, TT_SHAPE(B, V, D));
    tt_tensor *last = tt_transpose(joined, 1, 2), *rows = tt_reshape(last, TT_SHAPE(B * D, V));
    tt__abandon(last);
    tt__abandon(joined);
    return rows;
}

/* Images and sequences of classes: x, called `name`, (B,V,d...) and target (B,d...) as rows (R,V) and (R), recorded;
 * the caller ends both by tt__abandon(). False, and an error: they don't fit, or there is no memory. */
static bool class_rows(const char *who, const char *name, tt_tensor *x, tt_tensor *target, tt_tensor **rows,
                       tt_tensor **row_targets) {
    *rows = *row_targets = NULL;
    if (!TT__CHECK_FLOATS(who, {name, x}) || !tt__tensor_check(who, target))
        return false;
    if (!targets_fit(x, target)) {
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s (B, V, d...) and target (B, d...), got %s and %s", who, name,
                        TT__DESCRIBE(x), TT__DESCRIBE(target));
        return false;
    }
    *rows = rows_of_classes(x);
    *row_targets = tt_reshape(target, TT_SHAPE(target->numel));
    if (*rows && *row_targets)
        return true;
    tt__abandon(*row_targets);
    tt__abandon(*rows);
    return false;
}

/* Without a reduction, give the losses of rows the targets' shape, and end `each`. */
static tt_tensor *class_losses(tt_tensor *each, const tt_tensor *target, tt_reduction reduction) {
    if (!each || reduction != TT_REDUCTION_NONE)
        return each;
    tt_tensor *shaped = tt_reshape(each, target->shape);
    tt__abandon(each);
    return shaped;
}

/* ---- nll_loss: x (B,V) log probabilities  target t (B)  ->  mean over b of -x[b][t[b]].    dx[b][t[b]] = -g / B, else
 * 0
 *
 * With options the loss of each row is recorded (tensor/kernels/kernels.h has its formula), then reduced; the mean
 * is by the classes' weights. */

static const char nll_loss_name[] = "tt_nll_loss";

/* ---- the mean of all rows. Saved: t. */

static tt_status nll_loss_backward(tt_node *node) {
    const tt_tensor *t = tt__saved(node, 0);
    if (!t)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__nll_loss_backward_out(nll_loss_name, dx, t, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator nll_loss_op = {.name = nll_loss_name, .backward = nll_loss_backward};

static tt_tensor *nll_mean(tt_tensor *x, tt_tensor *target) {
    tt_tensor *loss = tt__empty_beside(nll_loss_name, x, TT_SCALAR, x->dtype);
    loss = TT__MADE(nll_loss_name, loss, tt__nll_loss_out(nll_loss_name, loss, x, target));
    return tt__recorded(&nll_loss_op, loss, TT__INPUTS(x), TT__SAVES({target, "target"}), TT__NO_STATE);
}

/* ---- row by row, with options. State: them. Saved: t, weight. */

static tt_status nll_rows_backward(tt_node *node) {
    const tt__nll *call = tt__state(node);
    const tt_tensor *t = tt__saved(node, 0), *weight = t ? tt__saved(node, 1) : NULL;
    if (!t || (!weight && node->save[1].tensor))
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__nll_rows_backward_out(nll_loss_name, dx, t, weight, tt__grad_of(node, 0), call));
    return TT_OK;
}

static const tt__operator nll_rows_op = {.name = nll_loss_name, .backward = nll_rows_backward};

/* The sum of losses, divided by the sum of the rows' weights. */
static tt_tensor *weighted_mean(tt_tensor *each, tt_tensor *share) {
    tt_tensor *sum = tt_sum(each), *weights = tt_sum(share), *mean = tt_div(sum, weights);
    tt__abandon(weights);
    tt__abandon(sum);
    return mean;
}

/* Negative log likelihood of x (R,V), with options, reduced; arguments are checked. */
static tt_tensor *nll_recorded(tt_tensor *x, tt_tensor *target, tt_tensor *weight, tt__nll call,
                               tt_reduction reduction) {
    tt_shape rows = TT_SHAPE(x->shape.dim[0]);
    tt_tensor *share = tt__empty_beside(nll_loss_name, x, rows, x->dtype);
    tt_tensor *each = share ? tt__empty_beside(nll_loss_name, x, rows, x->dtype) : NULL;
    each = TT__MADE(nll_loss_name, each, tt__nll_rows_out(nll_loss_name, each, share, x, target, weight, &call));
    each = tt__recorded(&nll_rows_op, each, TT__INPUTS(x), TT__SAVES({target, "target"}, {weight, "weight"}),
                        TT__STATE(call));
    if (each && reduction == TT_REDUCTION_MEAN) {
        tt_tensor *mean = weighted_mean(each, share);
        tt__abandon(each);
        each = mean;
    } else {
        each = loss_reduced(each, reduction);
    }
    tt__abandon(share);
    return each;
}

/* log_prob (B,V). */
static tt_tensor *nll_loss_of_rows(const tt_nll_loss_args *o) {
    tt__nll call = {.ignore = o->ignore_index.given ? o->ignore_index.value : -100};
    bool ignored = false;
    if (!tt__check_reduction(nll_loss_name, o->reduction, false) ||
        !tt__check_targets(nll_loss_name, "log_prob", o->log_prob, o->target, o->weight, call.ignore, &ignored))
        return NULL;
    bool plain = !ignored && !o->weight && o->reduction == TT_REDUCTION_MEAN;
    return plain ? nll_mean(o->log_prob, o->target)
                 : nll_recorded(o->log_prob, o->target, o->weight, call, o->reduction);
}

tt_tensor *tt_nll_loss_with(const tt_nll_loss_args *args, size_t size) {
    tt_nll_loss_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.log_prob || !o.target || !TT__AUTOCAST(nll_loss_name, &o.log_prob, &o.weight) ||
        !tt__tensor_check(nll_loss_name, o.log_prob))
        return NULL;
    if (o.log_prob->shape.ndim <= 2)
        return nll_loss_of_rows(&o);
    tt_nll_loss_args rows = o;
    if (!class_rows(nll_loss_name, "log_prob", o.log_prob, o.target, &rows.log_prob, &rows.target))
        return NULL;
    tt_tensor *loss = class_losses(nll_loss_of_rows(&rows), o.target, o.reduction);
    tt__abandon(rows.log_prob);
    tt__abandon(rows.target);
    return loss;
}

/* ---- cross_entropy: logits x (B,V)  target t (B)  ->  mean over b of log sum[b] + max[b] - x[b][t[b]]
 *   with max[b] = max of x[b],  sum[b] = sum of exp(x[b] - max[b])
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) * g / B
 *
 * Backward finds max and sum in one array (B,2). With options it is log_softmax and the negative log likelihood. */

static const char cross_entropy_name[] = "tt_cross_entropy";

/* Saved: x, t, stats. */
static tt_status cross_entropy_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *t = x ? tt__saved(node, 1) : NULL, *stats = t ? tt__saved(node, 2) : NULL;
    if (!stats)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__cross_entropy_backward_out(cross_entropy_name, dx, x, t, stats, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator cross_entropy_op = {.name = cross_entropy_name, .backward = cross_entropy_backward};

/* The mean of all rows. */
static tt_tensor *cross_entropy_mean(tt_tensor *logits, tt_tensor *target) {
    tt_tensor *loss = tt__empty_beside(cross_entropy_name, logits, TT_SCALAR, logits->dtype);
    tt_tensor *stats =
        loss ? tt__empty_beside(cross_entropy_name, logits, TT_SHAPE(logits->shape.dim[0], 2), logits->dtype) : NULL;
    if (!stats)
        return tt__abandon(loss);
    loss = tt__made(cross_entropy_name, loss, tt__cross_entropy_out(cross_entropy_name, loss, stats, logits, target));
    loss = tt__recorded(&cross_entropy_op, loss, TT__INPUTS(logits),
                        TT__SAVES({logits, "logits"}, {target, "target"}, {stats, "sums"}), TT__NO_STATE);
    tt__abandon(stats);
    return loss;
}

static tt_tensor *cross_entropy_of(const tt_cross_entropy_args *o, tt__nll call) {
    tt_tensor *log_prob = tt_log_softmax(o->logits, 1);
    tt_tensor *loss = log_prob ? nll_recorded(log_prob, o->target, o->weight, call, o->reduction) : NULL;
    tt__abandon(log_prob);
    return loss;
}

/* logits (B,V). */
static tt_tensor *cross_entropy_of_rows(const tt_cross_entropy_args *o) {
    tt__nll call = {o->ignore_index.given ? o->ignore_index.value : -100, o->label_smoothing};
    bool ignored = false;
    if (!tt__check_reduction(cross_entropy_name, o->reduction, false) ||
        !tt__check_targets(cross_entropy_name, "logits", o->logits, o->target, o->weight, call.ignore, &ignored))
        return NULL;
    if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected label_smoothing in 0..1, got %g", cross_entropy_name,
                               o->label_smoothing);
    bool plain = !ignored && !o->weight && o->label_smoothing == 0 && o->reduction == TT_REDUCTION_MEAN;
    return plain ? cross_entropy_mean(o->logits, o->target) : cross_entropy_of(o, call);
}

tt_tensor *tt_cross_entropy_with(const tt_cross_entropy_args *args, size_t size) {
    tt_cross_entropy_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.logits || !o.target || !TT__AUTOCAST(cross_entropy_name, &o.logits, &o.weight) ||
        !tt__tensor_check(cross_entropy_name, o.logits))
        return NULL;
    if (o.logits->shape.ndim <= 2)
        return cross_entropy_of_rows(&o);
    tt_cross_entropy_args rows = o;
    if (!class_rows(cross_entropy_name, "logits", o.logits, o.target, &rows.logits, &rows.target))
        return NULL;
    tt_tensor *loss = class_losses(cross_entropy_of_rows(&rows), o.target, o.reduction);
    tt__abandon(rows.logits);
    tt__abandon(rows.target);
    return loss;
}

/* ---- mse_loss: a, b of one shape, n elements  ->  mean of (a - b)^2.    da = (a - b) * 2 / n * g    db = (b - a) * 2
 * / n * g */

static const char mse_loss_name[] = "tt_mse_loss";

static tt_status mse_loss_backward(tt_node *node) {
    const tt_tensor *a = tt__saved(node, 0), *b = a ? tt__saved(node, 1) : NULL, *g = tt__grad_of(node, 0);
    if (!b)
        return tt_last_status();
    if (tt__grad_wanted(node, 0))
        TT__GIVE(node, 0, da, tt__mse_loss_backward_out(mse_loss_name, da, a, b, g));
    if (tt__grad_wanted(node, 1))
        TT__GIVE(node, 1, db, tt__mse_loss_backward_out(mse_loss_name, db, b, a, g));
    return TT_OK;
}

static const tt__operator mse_loss_op = {.name = mse_loss_name, .backward = mse_loss_backward};
static const tt__operator each_op = {.name = mse_loss_name, .backward = tt__binary_backward};

tt_tensor *tt_mse_loss_with(const tt_mse_loss_args *args, size_t size) {
    tt_mse_loss_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.input || !o.target || !TT__AUTOCAST(mse_loss_name, &o.input, &o.target))
        return NULL;
    tt_tensor *input = o.input, *target = o.target;
    if (!tt__check_reduction(mse_loss_name, o.reduction, false))
        return NULL;
    if (o.reduction != TT_REDUCTION_MEAN)
        return pair_loss(&each_op, input, target, (tt__binary){.op = TT__SQUARE_LOSS}, o.reduction);
    if (!check_loss_pair(mse_loss_name, input, target))
        return NULL;
    tt_tensor *loss = tt__empty_beside(mse_loss_name, input, TT_SCALAR, input->dtype);
    loss = TT__MADE(mse_loss_name, loss, tt__mse_loss_out(mse_loss_name, loss, input, target));
    return tt__recorded(&mse_loss_op, loss, TT__INPUTS(input, target), TT__SAVES({input, "input"}, {target, "target"}),
                        TT__NO_STATE);
}

/* ---- losses of an input and a target of one shape, element by element, then reduced. What each computes, forward and
 * backward, is a line of tensor/ops/pointwise_formulas.h. */

#define LOSS_OPERATOR(called) \
    static const tt__operator called##_op = {.name = "tt_" #called, .backward = tt__binary_backward}

LOSS_OPERATOR(l1_loss);
LOSS_OPERATOR(smooth_l1_loss);
LOSS_OPERATOR(kl_div);
LOSS_OPERATOR(binary_cross_entropy_with_logits);
static const tt__operator logit_cost_op = {.name = "tt_binary_cross_entropy_with_logits",
                                           .backward = tt__unary_backward};

tt_tensor *tt_l1_loss_with(const tt_l1_loss_args *args, size_t size) {
    tt_l1_loss_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.input || !o.target || !TT__AUTOCAST(l1_loss_op.name, &o.input, &o.target) ||
        !tt__check_reduction(l1_loss_op.name, o.reduction, false))
        return NULL;
    return pair_loss(&l1_loss_op, o.input, o.target, (tt__binary){.op = TT__ABS_LOSS}, o.reduction);
}

tt_tensor *tt_smooth_l1_loss_with(const tt_smooth_l1_loss_args *args, size_t size) {
    tt_smooth_l1_loss_args o;
    TT__ARGS_COPY(o, args, size);
    const char *who = smooth_l1_loss_op.name;
    if (!o.input || !o.target || !TT__AUTOCAST(who, &o.input, &o.target) ||
        !tt__check_reduction(who, o.reduction, false))
        return NULL;
    if (!(o.beta >= 0))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected beta of at least 0, got %g", who, o.beta);
    tt__binary call = {o.beta > 0 ? TT__SMOOTH_ABS_LOSS : TT__ABS_LOSS, o.beta};
    return pair_loss(&smooth_l1_loss_op, o.input, o.target, call, o.reduction);
}

tt_tensor *tt_kl_div_with(const tt_kl_div_args *args, size_t size) {
    tt_kl_div_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.input || !o.target || !TT__AUTOCAST(kl_div_op.name, &o.input, &o.target) ||
        !tt__check_reduction(kl_div_op.name, o.reduction, true))
        return NULL;
    tt__binary call = {.op = o.log_target ? TT__KL_DIV_LOG : TT__KL_DIV};
    return pair_loss(&kl_div_op, o.input, o.target, call, o.reduction);
}

/* ---- logits */

/* (1 - target) x - (1 + (pos_weight - 1) target) log sigmoid(x), in steps. */
static tt_tensor *with_pos_weight(const tt_binary_cross_entropy_with_logits_args *o) {
    const tt__operator *op = &binary_cross_entropy_with_logits_op;
    tt_tensor *rest = pair_loss(op, o->input, o->target, (tt__binary){.op = TT__LOGIT_REST}, TT_REDUCTION_NONE);
    tt_tensor *cost = rest ? tt__unary_recorded(&logit_cost_op, o->input, (tt__unary){.op = TT__LOGIT_COST}) : NULL;
    tt_tensor *more = tt_add_scalar(o->pos_weight, -1), *extra = tt_mul(more, o->target);
    tt_tensor *share = tt_add_scalar(extra, 1), *weighted = tt_mul(share, cost), *sum = tt_add(rest, weighted);
    tt_tensor *made[] = {rest, cost, more, extra, share, weighted};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        tt__abandon(made[i]);
    return sum;
}

static tt_tensor *with_weight(tt_tensor *each, tt_tensor *weight) {
    tt_tensor *product = tt_mul(each, weight);
    tt__abandon(each);
    return product;
}

/* Do the weights broadcast to the input's shape? Else false, and an error. */
static bool check_logit_weight(const char *name, const tt_tensor *weight, const tt_tensor *input) {
    tt_shape shape;
    if (!weight ||
        (tt__shape_broadcast(&weight->shape, &input->shape, &shape) && tt__shape_equal(&shape, &input->shape)))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s that broadcasts to input %s, got %s %s",
                    binary_cross_entropy_with_logits_op.name, name, TT__DESCRIBE(input), name, TT__DESCRIBE(weight));
    return false;
}

tt_tensor *tt_binary_cross_entropy_with_logits_with(const tt_binary_cross_entropy_with_logits_args *args, size_t size) {
    tt_binary_cross_entropy_with_logits_args o;
    TT__ARGS_COPY(o, args, size);
    const tt__operator *op = &binary_cross_entropy_with_logits_op;
    if (!o.input || !o.target || !TT__AUTOCAST(op->name, &o.input, &o.target, &o.weight, &o.pos_weight) ||
        !tt__check_reduction(op->name, o.reduction, false) ||
        !TT__CHECK_FLOATS(op->name, {"input", o.input}, {"target", o.target}, {"weight", o.weight},
                          {"pos_weight", o.pos_weight}) ||
        !check_logit_weight("weight", o.weight, o.input) || !check_logit_weight("pos_weight", o.pos_weight, o.input))
        return NULL;
    tt_tensor *each = o.pos_weight
                          ? with_pos_weight(&o)
                          : pair_loss(op, o.input, o.target, (tt__binary){.op = TT__LOGIT_LOSS}, TT_REDUCTION_NONE);
    if (each && o.weight)
        each = with_weight(each, o.weight);
    return loss_reduced(each, o.reduction);
}
