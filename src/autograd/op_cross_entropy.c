/* logits x (B,V)  target t (B)  ->  mean over b of log sum[b] + max[b] - x[b][t[b]],  max[b] = max x[b],  sum[b] = sum exp(x[b] - max[b])
 * dx[b][v] = (exp(x[b][v] - max[b]) / sum[b] - [v == t[b]]) * g / B
 * Backward finds max and sum in one array (B,2). */
#include "autograd/ops.h"
#include "autograd/target.h"
#include "tensor/cpu/kernels.h"

#include <math.h>

static const char who[] = "tt_cross_entropy";

static void sum_exp_f64(int64_t n, const double *x, double *s) {
    double max = x[0], sum = 0;
    for (int64_t v = 1; v < n; v++)
        max = x[v] > max ? x[v] : max;
    for (int64_t v = 0; v < n; v++)
        sum += exp(x[v] - max);
    s[0] = max;
    s[1] = sum;
}

/* Fills s (B,2) and returns the mean loss. */
static double forward_f64(int64_t B, int64_t V, const double *x, const int64_t *t, double *s) {
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        sum_exp_f64(V, x + b * V, s + 2 * b);
        sum += log(s[2 * b + 1]) - (x[b * V + t[b]] - s[2 * b]);
    }
    return sum / (double)B;
}

static double forward_f32(int64_t B, int64_t V, const float *x, const int64_t *t, tt__sum_exp *s) {
    double sum = 0;
    for (int64_t b = 0; b < B; b++) {
        s[b] = tt__softmax()->sum_exp(V, x + b * V);
        sum += log((double)s[b].sum) - (double)(x[b * V + t[b]] - s[b].max);
    }
    return sum / (double)B;
}

static void backward_f64(int64_t B, int64_t V, const double *x, const int64_t *t, const double *s, double g,
                         tt__grad_to to) {
    double *dx = to.data;
    for (int64_t b = 0; b < B; b++)
        for (int64_t v = 0; v < V; v++) {
            double d = (exp(x[b * V + v] - s[2 * b]) / s[2 * b + 1] - (v == t[b])) * g / (double)B;
            dx[b * V + v] = (to.accumulate ? dx[b * V + v] : 0) + d;
        }
}

static void backward_f32(int64_t B, int64_t V, const float *x, const int64_t *t, const tt__sum_exp *s, float g,
                         tt__grad_to to) {
    float *dx = to.data, factor = g / (float)B;
    for (int64_t b = 0; b < B; b++) {
        tt__softmax()->exp_scale(V, x + b * V, s[b], factor, dx + b * V, to.accumulate);
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

/* The loss, and in *s what backward needs. */
static tt_tensor *run(const tt_tensor *x, const tt_tensor *t, tt_tensor **s) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    tt_tensor *loss = tt__tensor_new(who, TT_SCALAR, x->dtype);
    *s = loss ? tt__tensor_new(who, TT_SHAPE(B, 2), x->dtype) : NULL;
    if (!*s)
        return tt__abandon(loss);
    if (x->dtype == TT_F32)
        *(float *)loss->data = (float)forward_f32(B, V, x->data, t->data, (*s)->data);
    else
        *(double *)loss->data = forward_f64(B, V, x->data, t->data, (*s)->data);
    return loss;
}

tt_tensor *tt_cross_entropy(tt_tensor *logits, tt_tensor *target) {
    if (!logits || !target || !tt__check_targets(who, "logits", logits, target))
        return NULL;
    tt_tensor *x = tt__ops_contiguous(who, logits);
    tt_tensor *t = x ? tt__ops_contiguous(who, target) : NULL;
    tt_tensor *s = NULL, *loss = t ? run(x, t, &s) : NULL;
    tt__ops_done(t, target);
    tt__ops_done(x, logits);
    if (!loss || !TT__WANTS_GRAD(logits)) {
        tt__abandon(s);
        return loss;
    }
    tt__node *node = TT__RECORD(who, cross_entropy_backward, loss, logits, target);
    if (!node)
        return tt__abandon(s);
    tt__node_save(node, s);
    return loss;
}
