/* Attention: attention.cu. */
#include "tensor/cuda/cuda_kernels_attention.h"
#include "tensor/cuda/cuda_ops.h"

static tt__cuda_matrix attention_matrix(const tt_tensor *x) {
    return x ? (tt__cuda_matrix){x->data, x->stride[0], x->stride[1]} : (tt__cuda_matrix){0};
}

static tt__cuda_attention cuda_attention_of(const tt__attention *in, const tt_tensor *stats) {
    return (tt__cuda_attention){.q = attention_matrix(in->q),
                                .k = attention_matrix(in->k),
                                .v = attention_matrix(in->v),
                                .mask = attention_matrix(in->mask),
                                .stats = attention_matrix(stats),
                                .T = in->q->shape.dim[0],
                                .S = in->k->shape.dim[0],
                                .D = in->q->shape.dim[1],
                                .Dv = in->v->shape.dim[1],
                                .scale = in->scale,
                                .causal = in->causal};
}

static tt_status cuda_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in) {
    tt__cuda_attention a = cuda_attention_of(in, stats);
    a.y = attention_matrix(y);
    TT__CUDA_ENQUEUE(y, "attention", tt__cuda_attention_run(stream, y->dtype, &a));
}

static tt_status cuda_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                         const tt_tensor *g, const tt__attention *in) {
    tt__cuda_state *state = tt__cuda_of(dq);
    tt__cuda_attention a = cuda_attention_of(in, stats);
    a.g = attention_matrix(g);
    a.dq = attention_matrix(dq);
    a.dk = attention_matrix(dk);
    a.dv = attention_matrix(dv);
    a.mean = tt__cuda_scratch(state, (size_t)a.T * tt__cuda_element_size[stats->dtype]);
    if (!a.mean)
        return tt__cuda_host->last_status();
    tt_status status =
        tt__cuda_done(tt__cuda_attention_backward(state->stream, dq->dtype, &a), dq, "attention_backward");
    tt__cuda_scratch_free(state, a.mean);
    return status;
}

void tt__cuda_attention_ops(tt__cuda_tables *t) {
    t->floats.attention = cuda_attention;
    t->floats.attention_backward = cuda_attention_backward;
}
