/* logits x (B,V)  target t (B)  ->  mean over b of lse[b] - x[b][t[b]],  lse[b] = log sum exp x[b]
 * dx[b][v] = (exp(x[b][v] - lse[b]) - [v == t[b]]) * g / B */
#include "autograd/ops.h"
#include "autograd/target.h"
#include "tensor/cpu/kernels.h"

#include <math.h>

static const char who[] = "tt_cross_entropy";

static double lse_f64(int64_t n, const double *x) {
    double max = x[0], sum = 0;
    for (int64_t v = 1; v < n; v++)
        max = x[v] > max ? x[v] : max;
    for (int64_t v = 0; v < n; v++)
        sum += exp(x[v] - max);
    return max + log(sum);
}

/* Fills lse (B) and returns the mean loss. */
static double forward_f64(int64_t B, int64_t V, const double *x, const int64_t *t, double *lse) {
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        lse[b] = lse_f64(V, x + b * V);
        sum += lse[b] - x[b * V + t[b]];
    }
    return sum / (double)B;
}

static double forward_f32(int64_t B, int64_t V, const float *x, const int64_t *t, float *lse) {
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        lse[b] = tt__softmax()->log_sum_exp(V, x + b * V);
        sum += (double)(lse[b] - x[b * V + t[b]]);
    }
    return sum / (double)B;
}

static void backward_f64(int64_t B, int64_t V, const double *x, const int64_t *t, const double *lse, double g,
                         tt__grad_to to) {
    double *dx = to.data;
    for (int64_t b = 0; b < B; b++)
        for (int64_t v = 0; v < V; v++) {
            double d = (exp(x[b * V + v] - lse[b]) - (v == t[b])) * g / (double)B;
            dx[b * V + v] = (to.accumulate ? dx[b * V + v] : 0) + d;
        }
}

static void backward_f32(int64_t B, int64_t V, const float *x, const int64_t *t, const float *lse, float g,
                         tt__grad_to to) {
    float *dx = to.data, factor = g / (float)B;
    for (int64_t b = 0; b < B; b++) {
        tt__softmax()->exp_scale(V, x + b * V, lse[b], factor, dx + b * V, to.accumulate);
        dx[b * V + t[b]] -= factor;
    }
}

static tt_status cross_entropy_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    tt_tensor *x = to.data ? tt__ops_contiguous(who, node->input[0]) : NULL;
    tt_tensor *t = x ? tt__ops_contiguous(who, node->input[1]) : NULL;
    tt_status status = t || !to.data ? TT_OK : tt_last_status();
    if (t && x->dtype == TT_F32)
        backward_f32(x->shape.dim[0], x->shape.dim[1], x->data, t->data, node->saved->data, *(float *)node->grad->data,
                     to);
    else if (t)
        backward_f64(x->shape.dim[0], x->shape.dim[1], x->data, t->data, node->saved->data, *(double *)node->grad->data,
                     to);
    tt__ops_done(t, node->input[1]);
    tt__ops_done(x, node->input[0]);
    return status;
}

/* The loss, and in *lse what backward needs. */
static tt_tensor *run(const tt_tensor *x, const tt_tensor *t, tt_tensor **lse) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    tt_tensor *loss = tt__tensor_new(who, TT_SCALAR, x->dtype);
    *lse = loss ? tt__tensor_new(who, TT_SHAPE(B), x->dtype) : NULL;
    if (!*lse)
        return tt__abandon(loss);
    if (x->dtype == TT_F32)
        *(float *)loss->data = (float)forward_f32(B, V, x->data, t->data, (*lse)->data);
    else
        *(double *)loss->data = forward_f64(B, V, x->data, t->data, (*lse)->data);
    return loss;
}

tt_tensor *tt_cross_entropy(tt_tensor *logits, tt_tensor *target) {
    if (!logits || !target || !tt__check_targets(who, "logits", logits, target))
        return NULL;
    tt_tensor *x = tt__ops_contiguous(who, logits);
    tt_tensor *t = x ? tt__ops_contiguous(who, target) : NULL;
    tt_tensor *lse = NULL, *loss = t ? run(x, t, &lse) : NULL;
    tt__ops_done(t, target);
    tt__ops_done(x, logits);
    if (!loss || !TT__WANTS_GRAD(logits)) {
        tt__abandon(lse);
        return loss;
    }
    tt__node *node = TT__RECORD(who, cross_entropy_backward, loss, logits, target);
    if (!node)
        return tt__abandon(lse);
    tt__node_save(node, lse);
    return loss;
}
