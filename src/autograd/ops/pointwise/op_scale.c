/* y = x * factor    dx = g * factor */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_scale";

static tt_status scale_backward(tt_node *node) {
    const double *factor = tt__state(node);
    TT__GIVE_OVER(node, 0, dx, tt__scale_out(who, dx, tt__grad_of(node, 0), *factor));
    return TT_OK;
}

static const tt__operator scale_op = {.name = who, .backward = scale_backward};

tt_tensor *tt_scale(tt_tensor *x, double factor) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    tt_tensor *y = tt__empty_like(who, x);
    y = TT__MADE(who, y, tt__scale_out(who, y, x, factor));
    return tt__recorded(&scale_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(factor));
}
