/* sum: y = sum of x    dx = g everywhere           mean: y = sum of x / n    dx = g / n everywhere */
#include "autograd/record.h"

#include "base/error.h"

/* Spread a scalar over x's shape, by strides of 0. */
static tt_status spread_scalar(const char *who, tt_tensor *dx, const tt_tensor *g, double factor) {
    const int64_t zero[TT_MAX_DIMS] = {0};
    tt_tensor wide = tt__tensor_seen(g, dx->shape, zero);
    return factor == 1 ? tt__copy_out(who, dx, &wide) : tt__scale_out(who, dx, &wide, factor);
}

/* State: 1, or 1/n for the mean. */
static tt_status sum_backward(tt_node *node) {
    const double *factor = tt__state(node);
    TT__GIVE(node, 0, dx, spread_scalar(node->op->name, dx, tt__grad_of(node, 0), *factor));
    return TT_OK;
}

static const tt__operator sum_op = {.name = "tt_sum", .backward = sum_backward};
static const tt__operator mean_op = {.name = "tt_mean", .backward = sum_backward};

static tt_tensor *sum_recorded(const tt__operator *op, tt_tensor *x, double factor) {
    if (!TT__CHECK_FLOATS(op->name, {"x", x}))
        return NULL;
    tt_tensor *y = tt__empty_beside(op->name, x, TT_SCALAR, x->dtype);
    y = TT__MADE(op->name, y, tt__sum_to_out(op->name, y, x, factor));
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(factor));
}

tt_tensor *tt_sum(tt_tensor *x) { return x ? sum_recorded(&sum_op, x, 1) : NULL; }

/* The mean of no elements is 0/0: NaN, as in PyTorch. */
tt_tensor *tt_mean(tt_tensor *x) { return x ? sum_recorded(&mean_op, x, 1.0 / (double)x->numel) : NULL; }
