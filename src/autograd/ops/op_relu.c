/* y = max(x, 0); NaN stays NaN.   dx = g where y > 0 */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_relu";

static tt_status relu_backward(tt_node *node) {
    const tt_tensor *y = tt__saved(node, 0);
    if (!y)
        return tt_last_status();
    TT__GIVE_OVER(node, 0, dx, tt__relu_backward_out(who, dx, y, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator relu_op = {.name = who, .backward = relu_backward};

tt_tensor *tt_relu(tt_tensor *x) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    tt_tensor *y = tt__empty_like(who, x);
    y = TT__MADE(who, y, tt__relu_out(who, y, x));
    return tt__recorded(&relu_op, y, TT__INPUTS(x), TT__SAVES({y, "its result"}), TT__NO_STATE);
}
