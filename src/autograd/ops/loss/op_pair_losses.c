/* Losses of an input and a target of one shape, element by element, then reduced. What each computes, forward and
 * backward, is a line of tensor/ops/pointwise_formulas.h. */
#include "autograd/autocast.h"
#include "autograd/ops/loss/loss_reduction.h"
#include "autograd/ops/pointwise/op_binary.h"
#include "autograd/ops/pointwise/op_unary.h"
#include "base/args.h"
#include "base/error.h"

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
    return tt__pair_loss(&l1_loss_op, o.input, o.target, (tt__binary){.op = TT__ABS_LOSS}, o.reduction);
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
    return tt__pair_loss(&smooth_l1_loss_op, o.input, o.target, call, o.reduction);
}

tt_tensor *tt_kl_div_with(const tt_kl_div_args *args, size_t size) {
    tt_kl_div_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.input || !o.target || !TT__AUTOCAST(kl_div_op.name, &o.input, &o.target) ||
        !tt__check_reduction(kl_div_op.name, o.reduction, true))
        return NULL;
    tt__binary call = {.op = o.log_target ? TT__KL_DIV_LOG : TT__KL_DIV};
    return tt__pair_loss(&kl_div_op, o.input, o.target, call, o.reduction);
}

/* ---- logits */

/* (1 - target) x - (1 + (pos_weight - 1) target) log sigmoid(x), in steps. */
static tt_tensor *with_pos_weight(const tt_binary_cross_entropy_with_logits_args *o) {
    const tt__operator *op = &binary_cross_entropy_with_logits_op;
    tt_tensor *rest = tt__pair_loss(op, o->input, o->target, (tt__binary){.op = TT__LOGIT_REST}, TT_REDUCTION_NONE);
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
                          : tt__pair_loss(op, o.input, o.target, (tt__binary){.op = TT__LOGIT_LOSS}, TT_REDUCTION_NONE);
    if (each && o.weight)
        each = with_weight(each, o.weight);
    return tt__loss_reduced(each, o.reduction);
}
