#include "autograd/loss_reduction.h"

#include "autograd/op_binary.h"
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
