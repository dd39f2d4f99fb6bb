/* Kernels along rows: cuda_softmax.cu, cuda_loss.cu. */
#include "tensor/cuda/ops/cuda_ops.h"

static int64_t row_length(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }
static int64_t row_count(const tt_tensor *x) { return x->numel ? x->numel / row_length(x) : 0; }

static tt_status cuda_log_softmax(tt_tensor *y, const tt_tensor *x) {
    TT__CUDA_ENQUEUE(y, "log_softmax",
                     tt__cuda_log_softmax(stream, y->dtype, y->data, x->data, row_count(x), row_length(x)));
}

static tt_status cuda_log_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    TT__CUDA_ENQUEUE(
        dx, "log_softmax_backward",
        tt__cuda_log_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), row_length(y)));
}

static tt_status cuda_softmax(tt_tensor *y, const tt_tensor *x) {
    TT__CUDA_ENQUEUE(y, "softmax", tt__cuda_softmax(stream, y->dtype, y->data, x->data, row_count(x), row_length(x)));
}

static tt_status cuda_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    TT__CUDA_ENQUEUE(
        dx, "softmax_backward",
        tt__cuda_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), row_length(y)));
}

static tt__cuda_cross_entropy cuda_cross_entropy_of(const tt_tensor *x, const tt_tensor *t, const tt_tensor *stats) {
    return (tt__cuda_cross_entropy){
        .x = x->data, .t = t->data, .stats = stats->data, .B = x->shape.dim[0], .V = x->shape.dim[1]};
}

static tt_status cuda_cross_entropy(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t) {
    tt__cuda_state *state = tt__cuda_of(x);
    tt__cuda_cross_entropy c = cuda_cross_entropy_of(x, t, stats);
    c.loss = loss->data;
    c.rows = tt__cuda_scratch(state, (size_t)c.B * sizeof *c.rows);
    if (!c.rows)
        return tt__cuda_host->last_status();
    tt_status status =
        tt__cuda_done(tt__cuda_cross_entropy_run(tt__cuda_stream(state), x->dtype, &c), x, "cross_entropy");
    tt__cuda_scratch_free(state, c.rows);
    return status;
}

static tt_status cuda_cross_entropy_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                             const tt_tensor *stats, const tt_tensor *g) {
    tt__cuda_cross_entropy c = cuda_cross_entropy_of(x, t, stats);
    tt__cuda_state *state = tt__cuda_of(x);
    c.dx = dx->data;
    c.g = g->data;
    c.rows = tt__cuda_scratch(state, sizeof *c.rows);
    if (!c.rows)
        return tt__cuda_host->last_status();
    tt_status status = tt__cuda_done(tt__cuda_cross_entropy_backward(tt__cuda_stream(state), x->dtype, &c), x,
                                     "cross_entropy_backward");
    tt__cuda_scratch_free(state, c.rows);
    return status;
}

void tt__cuda_rows_ops(tt__cuda_tables *t) {
    t->floats.softmax = cuda_softmax;
    t->floats.softmax_backward = cuda_softmax_backward;
    t->floats.log_softmax = cuda_log_softmax;
    t->floats.log_softmax_backward = cuda_log_softmax_backward;
    t->floats.cross_entropy = cuda_cross_entropy;
    t->floats.cross_entropy_backward = cuda_cross_entropy_backward;
}
