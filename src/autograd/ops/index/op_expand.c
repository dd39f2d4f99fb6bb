/* Repeated along dimensions by strides of 0: gradients are summed over what was repeated. */
#include "autograd/ops/pointwise/broadcast.h"

#include "base/error.h"

static const char who[] = "tt_expand";

static tt_status expand_backward(tt_node *node) { return tt__broadcast_give(node, 0, tt__grad_of(node, 0), 1); }

static const tt__operator expand_op = {.name = who, .backward = expand_backward};

tt_tensor *tt_expand(tt_tensor *x, tt_shape shape) {
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    return tt__recorded(&expand_op, tt__expand(who, x, shape), TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}
