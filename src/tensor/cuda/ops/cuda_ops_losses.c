/* Softmax (cuda_softmax.cu), losses of rows of classes and the mean squared error (cuda_losses.cu). */
#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/ops/cuda_ops.h"

static int64_t row_count(const tt_tensor *x) { return x->numel ? x->numel / tt__row_length(x) : 0; }

static tt_status cuda_log_softmax(tt_tensor *y, const tt_tensor *x) {
    TT__CUDA_ENQUEUE(y, "log_softmax",
                     tt__cuda_log_softmax(stream, y->dtype, y->data, x->data, row_count(x), tt__row_length(x)));
}

static tt_status cuda_log_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    TT__CUDA_ENQUEUE(
        dx, "log_softmax_backward",
        tt__cuda_log_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), tt__row_length(y)));
}

static tt_status cuda_softmax(tt_tensor *y, const tt_tensor *x) {
    TT__CUDA_ENQUEUE(y, "softmax",
                     tt__cuda_softmax(stream, y->dtype, y->data, x->data, row_count(x), tt__row_length(x)));
}

static tt_status cuda_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    TT__CUDA_ENQUEUE(
        dx, "softmax_backward",
        tt__cuda_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), tt__row_length(y)));
}

/* ---- losses */

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

/* x: (R,V), the logarithms or their gradient. */
static tt__cuda_nll cuda_nll_of(const tt_tensor *x, const tt_tensor *t) {
    return (tt__cuda_nll){.t = t->data, .R = x->shape.dim[0], .V = x->shape.dim[1]};
}

static tt_status cuda_nll_loss(tt_tensor *loss, const tt_tensor *x, const tt_tensor *t) {
    tt__cuda_nll c = cuda_nll_of(x, t);
    c.loss = loss->data;
    c.x = x->data;
    TT__CUDA_ENQUEUE(x, "nll_loss", tt__cuda_nll_loss(stream, x->dtype, &c));
}

static tt_status cuda_nll_loss_backward(tt_tensor *dx, const tt_tensor *t, const tt_tensor *g) {
    tt__cuda_nll c = cuda_nll_of(dx, t);
    c.dx = dx->data;
    c.g = g->data;
    tt__cuda_state *state = tt__cuda_of(dx);
    c.scratch = tt__cuda_scratch(state, sizeof *c.scratch);
    if (!c.scratch)
        return tt__cuda_host->last_status();
    tt_status status =
        tt__cuda_done(tt__cuda_nll_loss_backward(tt__cuda_stream(state), dx->dtype, &c), dx, "nll_loss_backward");
    tt__cuda_scratch_free(state, c.scratch);
    return status;
}

static tt_status cuda_nll_rows(tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                               const tt_tensor *w, const tt__nll *call) {
    tt__cuda_nll c = cuda_nll_of(x, t);
    c.loss = loss->data;
    c.share = share->data;
    c.x = x->data;
    c.w = w ? w->data : NULL;
    c.call = *call;
    TT__CUDA_ENQUEUE(x, "nll_rows", tt__cuda_nll_rows(stream, x->dtype, &c));
}

static tt_status cuda_nll_rows_backward(tt_tensor *dx, const tt_tensor *t, const tt_tensor *w, const tt_tensor *g,
                                        const tt__nll *call) {
    tt__cuda_nll c = cuda_nll_of(dx, t);
    c.dx = dx->data;
    c.w = w ? w->data : NULL;
    c.g = g->data;
    c.call = *call;
    TT__CUDA_ENQUEUE(dx, "nll_rows_backward", tt__cuda_nll_rows_backward(stream, dx->dtype, &c));
}

static tt_status cuda_mse_loss(tt_tensor *loss, const tt_tensor *a, const tt_tensor *b) {
    tt__cuda_state *state = tt__cuda_of(a);
    tt__cuda_mse c = {
        .loss = loss->data, .a = a->data, .b = b->data, .n = a->numel, .parts = tt__cuda_sum_parts(1, a->numel)};
    c.scratch = tt__cuda_scratch(state, (size_t)c.parts * sizeof *c.scratch);
    if (!c.scratch)
        return tt__cuda_host->last_status();
    tt_status status = tt__cuda_done(tt__cuda_mse_loss(tt__cuda_stream(state), a->dtype, &c), a, "mse_loss");
    tt__cuda_scratch_free(state, c.scratch);
    return status;
}

static tt_status cuda_mse_loss_backward(tt_tensor *da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g) {
    const tt__cuda_mse c = {.da = da->data, .a = a->data, .b = b->data, .g = g->data, .n = a->numel};
    TT__CUDA_ENQUEUE(da, "mse_loss_backward", tt__cuda_mse_loss_backward(stream, da->dtype, &c));
}

void tt__cuda_losses_ops(tt__cuda_tables *t) {
    t->floats.nll_loss = cuda_nll_loss;
    t->floats.nll_loss_backward = cuda_nll_loss_backward;
    t->floats.nll_rows = cuda_nll_rows;
    t->floats.nll_rows_backward = cuda_nll_rows_backward;
    t->floats.mse_loss = cuda_mse_loss;
    t->floats.mse_loss_backward = cuda_mse_loss_backward;
    t->floats.softmax = cuda_softmax;
    t->floats.softmax_backward = cuda_softmax_backward;
    t->floats.log_softmax = cuda_log_softmax;
    t->floats.log_softmax_backward = cuda_log_softmax_backward;
    t->floats.cross_entropy = cuda_cross_entropy;
    t->floats.cross_entropy_backward = cuda_cross_entropy_backward;
}
