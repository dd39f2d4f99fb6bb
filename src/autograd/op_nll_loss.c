/* x (B,V) log probabilities  target t (B)  ->  mean over b of -x[b][t[b]].    dx[b][t[b]] = -g / B, else 0 */
#include "autograd/ops.h"
#include "autograd/target.h"

#include <string.h>

static const char who[] = "tt_nll_loss";

/* Element (b, t[b]) of x and of a contiguous array. */
static const void *picked(const tt_tensor *x, const tt_tensor *t, int64_t b) {
    int64_t v = ((const int64_t *)t->data)[b * t->stride[0]];
    return (const char *)x->data + (size_t)(b * x->stride[0] + v * x->stride[1]) * tt_dtype_size(x->dtype);
}

static tt_status nll_loss_backward(tt__node *node) {
    const tt_tensor *x = node->input[0], *t = node->input[1];
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    tt__grad_to to = tt__grad_begin(node, 0);
    if (!to.data)
        return TT_OK;
    if (!to.accumulate)
        memset(to.data, 0, (size_t)x->numel * tt_dtype_size(x->dtype));
    for (int64_t b = 0; b < B; b++) {
        int64_t at = b * V + ((const int64_t *)t->data)[b * t->stride[0]];
        if (x->dtype == TT_F32)
            ((float *)to.data)[at] -= *(float *)node->grad->data / (float)B;
        else
            ((double *)to.data)[at] -= *(double *)node->grad->data / (double)B;
    }
    return TT_OK;
}

static double mean_picked(const tt_tensor *x, const tt_tensor *t) {
    double sum = 0;
    for (int64_t b = 0; b < x->shape.dim[0]; b++)
        sum -= x->dtype == TT_F32 ? (double)*(const float *)picked(x, t, b) : *(const double *)picked(x, t, b);
    return sum / (double)x->shape.dim[0];
}

tt_tensor *tt_nll_loss(tt_tensor *log_prob, tt_tensor *target) {
    if (!log_prob || !target || !tt__check_targets(who, "log_prob", log_prob, target))
        return NULL;
    tt_tensor *loss = tt__tensor_new(who, TT_SCALAR, log_prob->dtype);
    if (!loss)
        return NULL;
    if (loss->dtype == TT_F32)
        *(float *)loss->data = (float)mean_picked(log_prob, target);
    else
        *(double *)loss->data = mean_picked(log_prob, target);
    if (TT__WANTS_GRAD(log_prob) && !TT__RECORD(who, nll_loss_backward, loss, log_prob, target))
        return NULL;
    return loss;
}
