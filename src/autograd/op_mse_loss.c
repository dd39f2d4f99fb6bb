/* a (n)  b (n)  ->  mean of (a - b)^2.    da = 2/n (a - b) g     db = -da */
#include "autograd/ops.h"
#include "tensor/cpu/kernels.h"

static const char who[] = "tt_mse_loss";

static double forward_f64(int64_t n, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum / (double)n;
}

static void backward_f64(int64_t n, const double *a, const double *b, double factor, tt__grad_to to) {
    double *d = to.data;
    for (int64_t i = 0; i < n; i++)
        d[i] = (to.accumulate ? d[i] : 0) + (a[i] - b[i]) * factor;
}

/* da from (a, b), db from (b, a): the same formula. */
static void give(tt__node *node, int input, const tt_tensor *a, const tt_tensor *b) {
    tt__grad_to to = tt__grad_begin(node, input);
    if (!to.data)
        return;
    double norm = 2.0 / (double)a->numel;
    if (a->dtype == TT_F32)
        tt__elementwise()->diff(a->numel, a->data, b->data, (float)norm * *(float *)node->grad->data, to.data,
                                to.accumulate);
    else
        backward_f64(a->numel, a->data, b->data, norm * *(double *)node->grad->data, to);
}

static tt_status mse_loss_backward(tt__node *node) {
    tt_tensor *a = tt__ops_contiguous(who, node->input[0]);
    tt_tensor *b = a ? tt__ops_contiguous(who, node->input[1]) : NULL;
    tt_status status = b ? TT_OK : tt_last_status();
    if (b) {
        give(node, 0, a, b);
        give(node, 1, b, a);
    }
    tt__ops_done(b, node->input[1]);
    tt__ops_done(a, node->input[0]);
    return status;
}

static tt_tensor *run(const tt_tensor *a, const tt_tensor *b) {
    tt_tensor *loss = tt__tensor_new(who, TT_SCALAR, a->dtype);
    if (loss && a->dtype == TT_F32)
        *(float *)loss->data = (float)(tt__reduce()->sum_square_diff(a->numel, a->data, b->data) / (double)a->numel);
    else if (loss)
        *(double *)loss->data = forward_f64(a->numel, a->data, b->data);
    return loss;
}

tt_tensor *tt_mse_loss(tt_tensor *input, tt_tensor *target) {
    if (!input || !target || !TT__CHECK_FLOATS(who, {"input", input}, {"target", target}))
        return NULL;
    if (!tt__shape_equal(&input->shape, &target->shape) || input->numel == 0)
        return tt__tensor_fail(TT_ERR_SHAPE,
                               "%s: expected input and target of one shape, not empty, got input %s, target %s", who,
                               TT__DESCRIBE(input), TT__DESCRIBE(target));
    tt_tensor *a = tt__ops_contiguous(who, input);
    tt_tensor *b = a ? tt__ops_contiguous(who, target) : NULL;
    tt_tensor *loss = b ? run(a, b) : NULL;
    tt__ops_done(b, target);
    tt__ops_done(a, input);
    if (loss && TT__WANTS_GRAD(input, target) && !TT__RECORD(who, mse_loss_backward, loss, input, target))
        return NULL;
    return loss;
}
