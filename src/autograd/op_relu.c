/* y = max(x, 0); NaN stays NaN.   dx = g where y > 0 */
#include "autograd/ops.h"
#include "tensor/cpu/kernels.h"

static void forward_f64(int64_t n, const double *x, double *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void backward_f64(int64_t n, const double *y, const double *g, tt__grad_to to) {
    double *dx = to.data;
    for (int64_t i = 0; i < n; i++)
        dx[i] = (to.accumulate ? dx[i] : 0) + (y[i] <= 0 ? 0 : g[i]);
}

static tt_status relu_backward(tt__node *node) {
    const tt_tensor *y = node->output, *g = node->grad;
    tt__grad_to to = tt__grad_begin(node, 0);
    if (!to.data)
        return TT_OK;
    if (y->dtype == TT_F32)
        tt__elementwise()->relu_backward(y->numel, y->data, g->data, to.data, to.accumulate);
    else
        backward_f64(y->numel, y->data, g->data, to);
    return TT_OK;
}

tt_tensor *tt_relu(tt_tensor *x) {
    if (!x || !TT__CHECK_FLOATS("tt_relu", {"x", x}))
        return NULL;
    tt_tensor *in = tt__ops_contiguous("tt_relu", x);
    tt_tensor *y = in ? tt__tensor_new("tt_relu", x->shape, x->dtype) : NULL;
    if (y && x->dtype == TT_F32)
        tt__elementwise()->relu(x->numel, in->data, y->data);
    else if (y)
        forward_f64(x->numel, in->data, y->data);
    tt__ops_done(in, x);
    if (y && TT__WANTS_GRAD(x) && !TT__RECORD("tt_relu", relu_backward, y, x))
        return NULL;
    return y;
}
