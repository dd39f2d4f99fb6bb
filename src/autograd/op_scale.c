/* y = x * factor    dx = g * factor */
#include "autograd/ops.h"

static tt_status scale_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    if (to.data)
        tt__ops_scale(node->grad->dtype, node->grad->numel, node->grad->data, node->factor, to);
    return TT_OK;
}

tt_tensor *tt_scale(tt_tensor *x, double factor) {
    if (!x || !TT__CHECK_FLOATS("tt_scale", {"x", x}))
        return NULL;
    tt_tensor *in = tt__ops_contiguous("tt_scale", x);
    tt_tensor *y = in ? tt__tensor_new("tt_scale", x->shape, x->dtype) : NULL;
    if (y)
        tt__ops_scale(x->dtype, x->numel, in->data, factor, (tt__grad_to){.data = y->data});
    tt__ops_done(in, x);
    if (!y || !TT__WANTS_GRAD(x))
        return y;
    tt__node *node = TT__RECORD("tt_scale", scale_backward, y, x);
    if (!node)
        return NULL;
    node->factor = factor;
    return y;
}
