#include "autograd/ops/loss/loss_reduction.h"

#include "autograd/ops/pointwise/op_binary.h"
#include "base/error.h"

bool tt__check_reduction(const char *who, tt_reduction reduction, bool batchmean) {
    if ((int)reduction >= TT_REDUCTION_MEAN &&
        (reduction <= TT_REDUCTION_NONE || (batchmean && reduction == TT_REDUCTION_BATCHMEAN)))
        return true;
    tt__tensor_fail(TT_ERR_INVALID, "%s: expected a reduction TT_REDUCTION_MEAN, _SUM%s or _NONE, got %d", who,
                    batchmean ? ", _BATCHMEAN" : "", (int)reduction);
    return false;
}

/* The sum, divided by the size of the first dimension. */
static tt_tensor *batch_mean(tt_tensor *each) {
    tt_tensor *sum = tt_sum(each), *mean = tt_scale(sum, 1.0 / (double)(each->shape.ndim ? each->shape.dim[0] : 1));
    tt__abandon(sum);
    return mean;
}

tt_tensor *tt__loss_reduced(tt_tensor *each, tt_reduction reduction) {
    if (!each || reduction == TT_REDUCTION_NONE)
        return each;
    tt_tensor *loss = reduction == TT_REDUCTION_MEAN  ? tt_mean(each)
                      : reduction == TT_REDUCTION_SUM ? tt_sum(each)
                                                      : batch_mean(each);
    tt__abandon(each);
    return loss;
}

tt_tensor *tt__pair_loss(const tt__operator *op, tt_tensor *input, tt_tensor *target, tt__binary call,
                         tt_reduction reduction) {
    if (!TT__CHECK_FLOATS(op->name, {"input", input}, {"target", target}))
        return NULL;
    if (!tt__shape_equal(&input->shape, &target->shape))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected input and target of one shape, got input %s, target %s",
                               op->name, TT__DESCRIBE(input), TT__DESCRIBE(target));
    return tt__loss_reduced(tt__binary_recorded(op, input, target, call), reduction);
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

bool tt__class_rows(const char *who, const char *name, tt_tensor *x, tt_tensor *target, tt_tensor **rows,
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

tt_tensor *tt__class_losses(tt_tensor *each, const tt_tensor *target, tt_reduction reduction) {
    if (!each || reduction != TT_REDUCTION_NONE)
        return each;
    tt_tensor *shaped = tt_reshape(each, target->shape);
    tt__abandon(each);
    return shaped;
}
