/* Normalisation: cuda_norm.cu. */
#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/ops/cuda_ops.h"

static void *norm_data(const tt_tensor *x) { return x ? x->data : NULL; }

/* ---- sums: room for them ---- */

typedef cudaError_t (*norm_sums_fn)(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                    const tt__cuda_norm_room *room);

/* The caller gives room->part back, even after a failure. */
static tt_status norm_sum_up(const tt_tensor *x, const char *kernel, norm_sums_fn run, const tt__cuda_norm *n,
                             tt__cuda_norm_room *room) {
    tt__cuda_state *state = tt__cuda_of(x);
    tt_status status = tt__cuda_enter(state);
    if (status)
        return status;
    size_t weights = (size_t)tt__cuda_norm_weights(n);
    room->parts = tt__cuda_norm_parts(n);
    room->part = tt__cuda_scratch(state, 2 * weights * (size_t)(room->parts + 1) * sizeof *room->part);
    if (!room->part)
        return tt__cuda_host->last_status();
    room->total = room->part + 2 * weights * (size_t)room->parts;
    return tt__cuda_done(run(tt__cuda_stream(state), x->dtype, n, room), x, kernel);
}

/* ---- batches (A,C,B) ---- */

static tt__cuda_norm batch_as_rows(const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd) {
    const int64_t *dim = x->shape.dim;
    return (tt__cuda_norm){.x = x->data,
                           .mean = mean->data,
                           .rstd = rstd->data,
                           .R = dim[0] * dim[1],
                           .n = dim[2],
                           .groups = dim[1],
                           .share = dim[2],
                           .by_channel = true};
}

static tt_status cuda_batch_norm_stats(const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd) {
    tt__cuda_norm n = batch_as_rows(x, mean, rstd);
    tt__cuda_norm_room room = {.part = NULL};
    n.eps = eps;
    tt_status status = norm_sum_up(x, "batch_norm_stats", tt__cuda_norm_stats, &n, &room);
    tt__cuda_scratch_free(tt__cuda_of(x), room.part);
    return status;
}

static tt_status cuda_batch_norm_given(const tt_tensor *m, const tt_tensor *var, double eps, tt_tensor *mean,
                                       tt_tensor *rstd) {
    const tt__cuda_norm_running r = {
        .m = m->data, .var = var->data, .mean = mean->data, .rstd = rstd->data, .C = m->numel, .eps = eps};
    TT__CUDA_ENQUEUE(m, "batch_norm_given", tt__cuda_norm_given(stream, m->dtype, &r));
}

static tt_status cuda_batch_norm_running(tt_tensor *m, tt_tensor *var, const tt_tensor *mean, const tt_tensor *rstd,
                                         double eps, double momentum, int64_t count) {
    const tt__cuda_norm_running r = {.m = m->data,
                                     .var = var->data,
                                     .mean = mean->data,
                                     .rstd = rstd->data,
                                     .C = m->numel,
                                     .count = count,
                                     .eps = eps,
                                     .momentum = momentum};
    TT__CUDA_ENQUEUE(m, "batch_norm_running", tt__cuda_norm_move(stream, m->dtype, &r));
}

static tt_status cuda_batch_norm(tt_tensor *y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                 const tt_tensor *weight, const tt_tensor *bias) {
    tt__cuda_norm n = batch_as_rows(x, mean, rstd);
    n.y = y->data;
    n.weight = norm_data(weight);
    n.bias = norm_data(bias);
    TT__CUDA_ENQUEUE(y, "batch_norm", tt__cuda_norm_channels(stream, y->dtype, &n));
}

static tt__cuda_norm batch_backward(const tt__normed *call, tt_tensor *dx) {
    tt__cuda_norm n = batch_as_rows(call->x, call->mean, call->rstd);
    n.g = call->g->data;
    n.weight = norm_data(call->weight);
    n.y = norm_data(dx);
    return n;
}

static tt_status batch_norm_dx(const tt__normed *call, const tt__cuda_norm *n, const double *sums, int64_t count) {
    TT__CUDA_ENQUEUE(call->g, "batch_norm_give",
                     tt__cuda_norm_channels_backward(stream, call->g->dtype, n, sums, count));
}

static tt_status cuda_batch_norm_backward(const tt__normed *call, bool fixed, tt_tensor *dx, tt_tensor *dw,
                                          tt_tensor *db) {
    tt__cuda_norm n = batch_backward(call, dx);
    tt__cuda_norm_room room = {.part = NULL};
    n.fixed = fixed;
    n.dw = norm_data(dw);
    n.db = norm_data(db);
    tt_status status = TT_OK;
    if (dw || db || !fixed)
        status = norm_sum_up(call->g, "batch_norm_backward", tt__cuda_norm_gradients, &n, &room);
    if (!status && dx)
        status = batch_norm_dx(call, &n, room.total, tt__cuda_norm_terms(&n));
    tt__cuda_scratch_free(tt__cuda_of(call->g), room.part);
    return status;
}

static tt_status cuda_batch_norm_give(const tt__normed *call, const tt_tensor *sums, int64_t count, tt_tensor *dx) {
    const tt__cuda_norm n = batch_backward(call, dx);
    return batch_norm_dx(call, &n, sums->data, count);
}

/* ---- rows (R,n) ---- */

static tt__cuda_norm norm_rows_of(const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                  const tt_tensor *weight, const tt__row_norm *norm) {
    return (tt__cuda_norm){.x = x->data,
                           .mean = mean->data,
                           .rstd = rstd->data,
                           .weight = norm_data(weight),
                           .R = x->shape.dim[0],
                           .n = x->shape.dim[1],
                           .groups = norm->groups,
                           .share = norm->share,
                           .no_mean = norm->no_mean,
                           .eps = norm->eps};
}

static tt_status cuda_row_norm(tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                               const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm) {
    tt__cuda_norm n = norm_rows_of(x, mean, rstd, weight, norm);
    n.y = y->data;
    n.bias = norm_data(bias);
    TT__CUDA_ENQUEUE(y, "row_norm", tt__cuda_norm_rows(stream, y->dtype, &n));
}

static tt_status row_norm_dx(const tt_tensor *g, const tt__cuda_norm *n) {
    TT__CUDA_ENQUEUE(g, "row_norm_backward", tt__cuda_norm_rows_backward(stream, g->dtype, n));
}

static tt_status cuda_row_norm_backward(const tt__normed *call, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw,
                                        tt_tensor *db) {
    tt__cuda_norm n = norm_rows_of(call->x, call->mean, call->rstd, call->weight, norm);
    tt__cuda_norm_room room = {.part = NULL};
    n.g = call->g->data;
    n.y = norm_data(dx);
    n.dw = norm_data(dw);
    n.db = norm_data(db);
    tt_status status = TT_OK;
    if (dw || db)
        status = norm_sum_up(call->g, "row_norm_backward", tt__cuda_norm_gradients, &n, &room);
    if (!status && dx)
        status = row_norm_dx(call->g, &n);
    tt__cuda_scratch_free(tt__cuda_of(call->g), room.part);
    return status;
}

void tt__cuda_norm_ops(tt__cuda_tables *t) {
    t->floats.batch_norm_stats = cuda_batch_norm_stats;
    t->floats.batch_norm_given = cuda_batch_norm_given;
    t->floats.batch_norm_running = cuda_batch_norm_running;
    t->floats.batch_norm = cuda_batch_norm;
    t->floats.batch_norm_backward = cuda_batch_norm_backward;
    t->floats.batch_norm_give = cuda_batch_norm_give;
    t->floats.row_norm = cuda_row_norm;
    t->floats.row_norm_backward = cuda_row_norm_backward;
}
