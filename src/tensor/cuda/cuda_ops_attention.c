/* Attention: attention.cu. */
#include "tensor/cuda/cuda_kernels_attention.h"
#include "tensor/cuda/cuda_ops.h"

/* The first matrix of a batch. */
static tt__cuda_matrix attention_matrix(const tt_tensor *x) {
    if (!x)
        return (tt__cuda_matrix){0};
    const int64_t *stride = x->stride + x->shape.ndim - 2;
    return (tt__cuda_matrix){x->data, stride[0], stride[1]};
}

/* Matrices lie so far apart, from the innermost dimension of the batch on. */
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

static tt_status cuda_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    tt__cuda_attention a = cuda_attention_of(in, stats);
    tt__cuda_attention_batch b = attention_batch_of(in, stats);
    a.y = attention_matrix(y);
    batch_steps(b.y, y);
    TT__CUDA_ENQUEUE(y, "attention", tt__cuda_attention_run(stream, y->dtype, &a, &b));
}

static tt_status cuda_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                         const tt_tensor *g, const tt__attention *in) {
    tt__cuda_state *state = tt__cuda_of(dq);
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
    tt_status status =
        tt__cuda_done(tt__cuda_attention_backward(tt__cuda_stream(state), dq->dtype, &a, &b), dq, "attention_backward");
    tt__cuda_scratch_free(state, a.mean);
    return status;
}

void tt__cuda_attention_ops(tt__cuda_tables *t) {
    t->floats.attention = t->floats.attention_batch = cuda_attention;
    t->floats.attention_backward = t->floats.attention_batch_backward = cuda_attention_backward;
}
