/* Attention: by cuDNN if it supports the call, else by cuda_attention.cu. */
#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/libraries/cuda_dnn.h"
#include "tensor/cuda/ops/cuda_ops.h"

/* The first matrix of a batch. */
static tt__cuda_matrix attention_matrix(const tt_tensor *x) {
    if (!x)
        return (tt__cuda_matrix){0};
    const int64_t *stride = x->stride + x->shape.ndim - 2;
    return (tt__cuda_matrix){x->data, stride[0], stride[1]};
}

/* Bytes from one matrix to the next, along each dimension of the batch from the innermost on. */
static void batch_steps(int64_t *step, const tt_tensor *x) {
    for (int d = 0, k = x ? x->shape.ndim - 3 : -1; k >= 0; d++, k--)
        step[d] = x->stride[k] * (int64_t)tt__cuda_element_size[x->dtype];
}

static tt__cuda_attention_batch attention_batch_of(const tt__attention *in, const tt_tensor *stats) {
    tt__cuda_attention_batch b = {.n = 1, .ndim = in->q->shape.ndim - 2};
    for (int d = 0; d < b.ndim; d++) {
        b.dim[d] = in->q->shape.dim[b.ndim - 1 - d];
        b.n *= b.dim[d];
    }
    batch_steps(b.q, in->q);
    batch_steps(b.k, in->k);
    batch_steps(b.v, in->v);
    batch_steps(b.mask, in->mask);
    batch_steps(b.stats, stats);
    return b;
}

static tt__cuda_attention cuda_attention_of(const tt__attention *in, const tt_tensor *stats) {
    const int rows = in->q->shape.ndim - 2, columns = rows + 1;
    return (tt__cuda_attention){.q = attention_matrix(in->q),
                                .k = attention_matrix(in->k),
                                .v = attention_matrix(in->v),
                                .mask = attention_matrix(in->mask),
                                .stats = attention_matrix(stats),
                                .T = in->q->shape.dim[rows],
                                .S = in->k->shape.dim[rows],
                                .D = in->q->shape.dim[columns],
                                .Dv = in->v->shape.dim[columns],
                                .scale = in->scale,
                                .causal = in->causal};
}

/* ---- by cuDNN ---- */

static void dnn_matrix(tt__dnn_attention *call, int m, const tt_tensor *x) {
    int64_t *step = call->heads.step[m], inner = x->shape.dim[x->shape.ndim - 1];
    call->matrix[m] = x->data;
    for (int d = 2, k = x->shape.ndim - 2; d >= 0; d--, k--) {
        const int64_t size = k >= 0 ? x->shape.dim[k] : 1;
        step[d] = size > 1 ? x->stride[k] : inner; /* with a size of 1 the stride means nothing */
        inner = step[d] * size;
    }
}

static tt__dnn_attention dnn_attention_of(const tt__attention *in, const tt_tensor *o, const tt_tensor *stats) {
    const int n = in->q->shape.ndim;
    const int64_t *q = in->q->shape.dim, *v = in->v->shape.dim;
    tt__dnn_attention call = {.dtype = in->q->dtype, .scale = (float)in->scale, .stats = stats->data};
    call.heads = (tt__dnn_heads){.B = n > 3 ? q[0] : 1,
                                 .H = n > 2 ? q[n - 3] : 1,
                                 .T = q[n - 2],
                                 .S = v[n - 2],
                                 .D = q[n - 1],
                                 .Dv = v[n - 1],
                                 .causal = in->causal};
    dnn_matrix(&call, TT__DNN_Q, in->q);
    dnn_matrix(&call, TT__DNN_K, in->k);
    dnn_matrix(&call, TT__DNN_V, in->v);
    dnn_matrix(&call, TT__DNN_O, o);
    return call;
}

static bool dnn_may_attend(const tt__attention *in) {
    return (in->q->dtype == TT_F16 || in->q->dtype == TT_BF16) && !in->mask && in->q->shape.ndim <= 4;
}

/* TT_ERR_UNSUPPORTED, without a recorded error: use our own kernels. */
static tt_status attention_by_dnn(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    if (!dnn_may_attend(in))
        return TT_ERR_UNSUPPORTED;
    const tt__dnn_attention call = dnn_attention_of(in, y, stats);
    return tt__dnn_attend(tt__cuda_of(y), &call);
}

static tt_status attention_backward_by_dnn(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                           const tt_tensor *g, const tt__attention *in) {
    if (!in->y || !dnn_may_attend(in))
        return TT_ERR_UNSUPPORTED;
    tt__dnn_attention call = dnn_attention_of(in, in->y, stats);
    call.backward = true;
    dnn_matrix(&call, TT__DNN_G, g);
    dnn_matrix(&call, TT__DNN_DQ, dq);
    dnn_matrix(&call, TT__DNN_DK, dk);
    dnn_matrix(&call, TT__DNN_DV, dv);
    return tt__dnn_attend(tt__cuda_of(dq), &call);
}

/* ---- */

static tt_status cuda_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    tt_status by_dnn = attention_by_dnn(y, stats, in);
    if (by_dnn != TT_ERR_UNSUPPORTED)
        return by_dnn;
    tt__cuda_attention a = cuda_attention_of(in, stats);
    tt__cuda_attention_batch b = attention_batch_of(in, stats);
    a.y = attention_matrix(y);
    batch_steps(b.y, y);
    TT__CUDA_ENQUEUE(y, "attention", tt__cuda_attention_run(stream, y->dtype, &a, &b));
}

static tt_status cuda_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                         const tt_tensor *g, const tt__attention *in) {
    tt__cuda_state *state = tt__cuda_of(dq);
    tt_status status = attention_backward_by_dnn(dq, dk, dv, stats, g, in);
    if (status != TT_ERR_UNSUPPORTED)
        return status;
    tt__cuda_attention a = cuda_attention_of(in, stats);
    tt__cuda_attention_batch b = attention_batch_of(in, stats);
    a.g = attention_matrix(g);
    a.dq = attention_matrix(dq);
    a.dk = attention_matrix(dk);
    a.dv = attention_matrix(dv);
    batch_steps(b.g, g);
    batch_steps(b.dq, dq);
    batch_steps(b.dk, dk);
    batch_steps(b.dv, dv);
    a.mean = tt__cuda_scratch(state, (size_t)(b.n * a.T) * tt__cuda_element_size[stats->dtype]);
    if (!a.mean)
        return tt__cuda_host->last_status();
    status =
        tt__cuda_done(tt__cuda_attention_backward(tt__cuda_stream(state), dq->dtype, &a, &b), dq, "attention_backward");
    tt__cuda_scratch_free(state, a.mean);
    return status;
}

void tt__cuda_attention_ops(tt__cuda_tables *t) {
    t->floats.attention = t->floats.attention_batch = cuda_attention;
    t->floats.attention_backward = t->floats.attention_batch_backward = cuda_attention_backward;
}
