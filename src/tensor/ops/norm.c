/* Normalisation: operands are brought to a layout in which channels, or rows, have one stride. */
#include "base/error.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/staged.h"

#include <float.h>

tt_tensor *tt__norm_stats_beside(const char *who, const tt_tensor *x, int64_t count) {
    return tt__empty_beside(who, x, TT_SHAPE(count), TT_F64);
}

double tt__dtype_epsilon(tt_dtype dtype) { return dtype == TT_F64 ? DBL_EPSILON : (double)FLT_EPSILON; }

/* Zero the gradients, which nothing contributes to. */
static tt_status fill_zeros(const char *who, tt_tensor *dw, tt_tensor *db) {
    if (dw)
        TT__TRY(tt__fill_out(who, dw, 0));
    return db ? tt__fill_out(who, db, 0) : TT_OK;
}

/* ---- batches */

static tt_memory_format batch_format(const tt_tensor *x) {
    return tt__is_channels_last(x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS;
}

static const tt_tensor *stage_batch(tt__staged *s, const tt_tensor *x, tt_memory_format format) {
    return x && x->shape.ndim == 4 ? tt__stage_image(s, x, format) : tt__stage_plain(s, x);
}

/* View x, (N,C,...) as stage_batch() gave it, as (A,C,B). */
static tt_tensor as_batch(const tt_tensor *x, tt_memory_format format) {
    int64_t N = x->shape.dim[0], C = x->shape.dim[1], rest = x->numel / (N * C);
    bool last = x->shape.ndim == 4 && format == TT_CHANNELS_LAST;
    tt_shape shape = {.ndim = 3, .dim = {last ? N * rest : N, C, last ? 1 : rest}};
    int64_t stride[3];
    tt__shape_strides(&shape, stride);
    return tt__tensor_seen(x, shape, stride);
}

tt_status tt__batch_norm_stats_out(const char *who, const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd) {
    tt__kernel_batch_norm_stats run = TT__KERNEL(who, x, batch_norm_stats);
    if (!run)
        return tt_last_status();
    tt__staged s = {.who = who};
    tt_memory_format format = batch_format(x);
    const tt_tensor *in = stage_batch(&s, x, format);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    tt_tensor seen = as_batch(in, format);
    return tt__staged_end(&s, run(&seen, eps, mean, rstd));
}

tt_status tt__batch_norm_given_out(const char *who, const tt_tensor *m, const tt_tensor *var, double eps,
                                   tt_tensor *mean, tt_tensor *rstd) {
    tt__kernel_batch_norm_given run = TT__KERNEL(who, m, batch_norm_given);
    if (!run)
        return tt_last_status();
    tt__staged s = {.who = who};
    const tt_tensor *plain_m = tt__stage_plain(&s, m), *plain_var = tt__stage_plain(&s, var);
    return tt__staged_end(&s, s.failed ? tt_last_status() : run(plain_m, plain_var, eps, mean, rstd));
}

tt_status tt__batch_norm_running_(const char *who, tt_tensor *m, tt_tensor *var, const tt_tensor *mean,
                                  const tt_tensor *rstd, double eps, double momentum, int64_t count) {
    tt__kernel_batch_norm_running run = TT__KERNEL(who, m, batch_norm_running);
    if (!run)
        return tt_last_status();
    tt_status status = run(m, var, mean, rstd, eps, momentum, count);
    tt__storage_touch(m->storage);
    tt__storage_touch(var->storage);
    return status;
}

tt_status tt__batch_norm_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mean,
                             const tt_tensor *rstd, const tt_tensor *weight, const tt_tensor *bias) {
    tt__kernel_batch_norm run = TT__KERNEL(who, y, batch_norm);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt__staged s = {.who = who};
    tt_memory_format format = batch_format(x);
    const tt_tensor *in = stage_batch(&s, x, format), *scale = tt__stage_plain(&s, weight);
    const tt_tensor *shift = tt__stage_plain(&s, bias);
    tt_tensor *out = tt__stage_result(&s, y, format);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    tt_tensor from = as_batch(in, format), to = as_batch(out, format);
    return tt__staged_end(&s, run(&to, &from, mean, rstd, scale, shift));
}

tt_status tt__batch_norm_backward_out(const char *who, const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw,
                                      tt_tensor *db) {
    tt__kernel_batch_norm_backward run = TT__KERNEL(who, n->g, batch_norm_backward);
    if (!run || !TT__SAME_DEVICE(who, n->g, n->x))
        return tt_last_status();
    if (n->x->numel == 0)
        return fill_zeros(who, dw, db);
    tt__staged s = {.who = who};
    tt_memory_format format = batch_format(n->x);
    const tt_tensor *g = stage_batch(&s, n->g, format), *x = stage_batch(&s, n->x, format);
    const tt_tensor *weight = tt__stage_plain(&s, n->weight);
    tt_tensor *to = tt__stage_result(&s, dx, format), *scale = tt__stage_result(&s, dw, TT_CONTIGUOUS);
    tt_tensor *shift = tt__stage_result(&s, db, TT_CONTIGUOUS);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    tt_tensor seen_g = as_batch(g, format), seen_x = as_batch(x, format);
    tt_tensor seen_dx = as_batch(to ? to : x, format);
    tt__normed call = {&seen_g, &seen_x, n->mean, n->rstd, weight};
    return tt__staged_end(&s, run(&call, fixed, to ? &seen_dx : NULL, scale, shift));
}

tt_status tt__batch_norm_give_out(const char *who, const tt__normed *n, const tt_tensor *sums, int64_t count,
                                  tt_tensor *dx) {
    tt__kernel_batch_norm_give run = TT__KERNEL(who, n->g, batch_norm_give);
    if (!run || !TT__SAME_DEVICE(who, n->g, n->x))
        return tt_last_status();
    if (n->x->numel == 0)
        return TT_OK;
    tt__staged s = {.who = who};
    tt_memory_format format = batch_format(n->x);
    const tt_tensor *g = stage_batch(&s, n->g, format), *x = stage_batch(&s, n->x, format);
    const tt_tensor *weight = tt__stage_plain(&s, n->weight);
    tt_tensor *to = tt__stage_result(&s, dx, format);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    tt_tensor seen_g = as_batch(g, format), seen_x = as_batch(x, format), seen_dx = as_batch(to, format);
    tt__normed call = {&seen_g, &seen_x, n->mean, n->rstd, weight};
    return tt__staged_end(&s, run(&call, sums, count, &seen_dx));
}

/* ---- rows */

static tt_tensor as_norm_rows(const tt_tensor *x, int64_t rows) {
    int64_t n = x->numel / rows;
    return tt__tensor_seen(x, (tt_shape){.ndim = 2, .dim = {rows, n}}, (const int64_t[]){n, 1});
}

tt_status tt__row_norm_out(const char *who, tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                           const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm) {
    tt__kernel_row_norm run = TT__KERNEL(who, y, row_norm);
    if (!run || y->numel == 0)
        return run ? TT_OK : tt_last_status();
    tt__staged s = {.who = who};
    const tt_tensor *in = tt__stage_plain(&s, x), *scale = tt__stage_plain(&s, weight);
    const tt_tensor *shift = tt__stage_plain(&s, bias);
    tt_tensor *out = tt__stage_result(&s, y, TT_CONTIGUOUS);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    tt_tensor from = as_norm_rows(in, mean->numel), to = as_norm_rows(out, mean->numel);
    return tt__staged_end(&s, run(&to, mean, rstd, &from, scale, shift, norm));
}

tt_status tt__row_norm_backward_out(const char *who, const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx,
                                    tt_tensor *dw, tt_tensor *db) {
    tt__kernel_row_norm_backward run = TT__KERNEL(who, n->g, row_norm_backward);
    if (!run || !TT__SAME_DEVICE(who, n->g, n->x))
        return tt_last_status();
    if (n->x->numel == 0)
        return fill_zeros(who, dw, db);
    tt__staged s = {.who = who};
    const tt_tensor *g = tt__stage_plain(&s, n->g), *x = tt__stage_plain(&s, n->x);
    const tt_tensor *weight = tt__stage_plain(&s, n->weight);
    tt_tensor *to = tt__stage_result(&s, dx, TT_CONTIGUOUS), *scale = tt__stage_result(&s, dw, TT_CONTIGUOUS);
    tt_tensor *shift = tt__stage_result(&s, db, TT_CONTIGUOUS);
    if (s.failed)
        return tt__staged_end(&s, tt_last_status());
    int64_t rows = n->mean->numel;
    tt_tensor seen_g = as_norm_rows(g, rows), seen_x = as_norm_rows(x, rows), seen_dx = as_norm_rows(to ? to : x, rows);
    tt__normed call = {&seen_g, &seen_x, n->mean, n->rstd, weight};
    return tt__staged_end(&s, run(&call, norm, to ? &seen_dx : NULL, scale, shift));
}
