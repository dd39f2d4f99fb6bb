/* a, b of one shape, n elements  ->  mean of (a - b)^2.    da = (a - b) * 2 / n * g    db = (b - a) * 2 / n * g */
#include "autograd/autocast.h"
#include "autograd/ops/loss/loss_reduction.h"
#include "autograd/ops/pointwise/op_binary.h"
#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_mse_loss";

static tt_status mse_loss_backward(tt_node *node) {
    const tt_tensor *a = tt__saved(node, 0), *b = a ? tt__saved(node, 1) : NULL, *g = tt__grad_of(node, 0);
    if (!b)
        return tt_last_status();
    if (tt__grad_wanted(node, 0))
        TT__GIVE(node, 0, da, tt__mse_loss_backward_out(who, da, a, b, g));
    if (tt__grad_wanted(node, 1))
        TT__GIVE(node, 1, db, tt__mse_loss_backward_out(who, db, b, a, g));
    return TT_OK;
}

static const tt__operator mse_loss_op = {.name = who, .backward = mse_loss_backward};
static const tt__operator each_op = {.name = who, .backward = tt__binary_backward};

tt_tensor *tt_mse_loss_with(const tt_mse_loss_args *args, size_t size) {
    tt_mse_loss_args o;
    TT__ARGS_COPY(o, args, size);
    if (!o.input || !o.target || !TT__AUTOCAST(who, &o.input, &o.target))
        return NULL;
    tt_tensor *input = o.input, *target = o.target;
    if (!tt__check_reduction(who, o.reduction, false))
        return NULL;
    if (o.reduction != TT_REDUCTION_MEAN)
        return tt__pair_loss(&each_op, input, target, (tt__binary){.op = TT__SQUARE_LOSS}, o.reduction);
    if (!TT__CHECK_FLOATS(who, {"input", input}, {"target", target}))
        return NULL;
    if (!tt__shape_equal(&input->shape, &target->shape))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected input and target of one shape, got input %s, target %s", who,
                               TT__DESCRIBE(input), TT__DESCRIBE(target));
    tt_tensor *loss = tt__empty_beside(who, input, TT_SCALAR, input->dtype);
    loss = TT__MADE(who, loss, tt__mse_loss_out(who, loss, input, target));
    return tt__recorded(&mse_loss_op, loss, TT__INPUTS(input, target), TT__SAVES({input, "input"}, {target, "target"}),
                        TT__NO_STATE);
}
