/* sum: y = sum of x    dx = g everywhere           mean: y = sum of x / n    dx = g / n everywhere */
#include "autograd/ops.h"
#include "tensor/cpu/kernels.h"

static double sum_f64(int64_t n, const double *x) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static void fill_f32(int64_t n, float value, tt__grad_to to) {
    float *dx = to.data;
    for (int64_t i = 0; i < n; i++)
        dx[i] = (to.accumulate ? dx[i] : 0) + value;
}

static void fill_f64(int64_t n, double value, tt__grad_to to) {
    double *dx = to.data;
    for (int64_t i = 0; i < n; i++)
        dx[i] = (to.accumulate ? dx[i] : 0) + value;
}

/* node->factor: 1, or 1/n for the mean. */
static tt_status sum_backward(tt__node *node) {
    int64_t n = node->input[0]->numel;
    tt__grad_to to = tt__grad_begin(node, 0);
    if (to.data && node->grad->dtype == TT_F32)
        fill_f32(n, (float)(*(float *)node->grad->data * node->factor), to);
    else if (to.data)
        fill_f64(n, *(double *)node->grad->data * node->factor, to);
    return TT_OK;
}

static tt_tensor *reduced(const char *who, tt_tensor *x, double factor) {
    if (!TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    tt_tensor *in = tt__ops_contiguous(who, x);
    tt_tensor *y = in ? tt__tensor_new(who, TT_SCALAR, x->dtype) : NULL;
    if (y && x->dtype == TT_F32)
        *(float *)y->data = (float)(tt__reduce()->sum(x->numel, in->data) * factor);
    else if (y)
        *(double *)y->data = sum_f64(x->numel, in->data) * factor;
    tt__ops_done(in, x);
    if (!y || !TT__WANTS_GRAD(x))
        return y;
    tt__node *node = tt__record(who, sum_backward, y, 1, &x);
    if (!node)
        return NULL;
    node->factor = factor;
    return y;
}

tt_tensor *tt_sum(tt_tensor *x) { return x ? reduced("tt_sum", x, 1) : NULL; }

/* Of no elements: 0/0, NaN as in PyTorch. */
tt_tensor *tt_mean(tt_tensor *x) { return x ? reduced("tt_mean", x, 1.0 / (double)x->numel) : NULL; }
