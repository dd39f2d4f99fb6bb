/* Reductions (cuda_reduce.cu, cuda_reduction.cu), and checks of a range (cuda_index.cu). */
#include "tensor/cuda/cuda_kernels.h"
#include "tensor/cuda/ops/cuda_ops.h"

#include <math.h>
#include <string.h>

/* y's dimensions in which it does not repeat. */
static tt_tensor unrepeated(const tt_tensor *y) { return tt__cuda_dims_of(y, y, false); }

static tt_status cuda_sum(tt_tensor *y, const tt_tensor *x, double factor) {
    const tt_tensor to = unrepeated(y), from = tt__cuda_dims_of(x, y, false), terms = tt__cuda_dims_of(x, y, true);
    tt__cuda_sum sum = {
        .outer = TT__CUDA_WALK(&to, &from), .inner = TT__CUDA_WALK(&terms), .factor = factor, .parts = 1};
    sum.parts = tt__cuda_sum_parts(sum.outer.n, sum.inner.n);
    tt__cuda_state *state = tt__cuda_of(y);
    tt_status status = tt__cuda_enter(state);
    if (!status && sum.parts > 1) {
        sum.scratch = tt__cuda_scratch(state, (size_t)(sum.outer.n * sum.parts) * sizeof *sum.scratch);
        status = sum.scratch ? TT_OK : tt__cuda_host->last_status();
    }
    if (!status)
        status = tt__cuda_done(tt__cuda_sum_run(tt__cuda_stream(state), y->dtype, &sum), y, "sum");
    tt__cuda_scratch_free(state, sum.scratch);
    return status;
}

static tt_status cuda_expect_within(const tt_tensor *x, int64_t low, int64_t high, int64_t but, const char *text) {
    const tt_tensor *const tensors[] = {x};
    const tt__iter it = tt__cuda_host->iter_row_major(1, tensors);
    const tt__walk w = tt__cuda_walk_of(&it, tensors);
    tt__cuda_fault told = {.set = false};
    strncpy(told.text, text, sizeof told.text - 1);
    TT__CUDA_ENQUEUE(x, "expect_within",
                     tt__cuda_expect_within(stream, x->dtype, &w, low, high, but, &told, tt__cuda_of(x)->fault));
}

/* y has x's shape, and strides of 0 along what is reduced. */
static tt__cuda_reduction reduction_to(const tt_tensor *y, const tt_tensor *x) {
    const tt_tensor to = tt__cuda_dims_of(y, y, false), from = tt__cuda_dims_of(x, y, false);
    const tt_tensor terms = tt__cuda_dims_of(x, y, true);
    tt__cuda_reduction r = {.outer = TT__CUDA_WALK(&to, &from), .inner = TT__CUDA_WALK(&terms)};
    r.parts = tt__cuda_sum_parts(r.outer.n, r.inner.n);
    return r;
}

static tt__cuda_reduction reduction_back(const tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                                         const tt_tensor *g) {
    const tt_tensor to = tt__cuda_dims_of(y, y, false), from = tt__cuda_dims_of(x, y, false);
    const tt_tensor gradient = tt__cuda_dims_of(g, y, false), result = tt__cuda_dims_of(dx, y, false);
    const tt_tensor terms = tt__cuda_dims_of(x, y, true), results = tt__cuda_dims_of(dx, y, true);
    tt__cuda_reduction r = {.outer = TT__CUDA_WALK(&to, &from, &result, &gradient),
                            .inner = TT__CUDA_WALK(&terms, &results)};
    r.parts = tt__cuda_sum_parts(r.outer.n, r.inner.n);
    return r;
}

/* Get memory for parts, and with `each` for a number of each result. */
static tt_status reduction_scratch(tt__cuda_reduction *r, const tt_tensor *x, bool each) {
    const int64_t parts = r->outer.n * r->parts;
    r->scratch = tt__cuda_scratch(tt__cuda_of(x), (size_t)(parts + (each ? r->outer.n : 0)) * sizeof *r->scratch);
    if (!r->scratch)
        return tt__cuda_host->last_status();
    r->each = each ? r->scratch + parts : NULL;
    return TT_OK;
}

static tt_status reduction_done(const tt__cuda_reduction *r, cudaError_t error, const tt_tensor *x, const char *name) {
    tt__cuda_scratch_free(tt__cuda_of(x), r->scratch);
    return tt__cuda_done(error, x, name);
}

static tt_status cuda_var(tt_tensor *y, const tt_tensor *x, double correction) {
    tt__cuda_reduction r = reduction_to(y, x);
    tt_status status = r.outer.n ? reduction_scratch(&r, x, true) : TT_OK;
    if (status || !r.outer.n)
        return status;
    return reduction_done(&r, tt__cuda_var(tt__cuda_stream(tt__cuda_of(x)), x->dtype, &r, correction), x, "var");
}

static tt_status cuda_norm(tt_tensor *y, const tt_tensor *x, double p) {
    tt__cuda_reduction r = reduction_to(y, x);
    tt_status status = r.outer.n ? reduction_scratch(&r, x, false) : TT_OK;
    if (status || !r.outer.n)
        return status;
    return reduction_done(&r, tt__cuda_vector_norm(tt__cuda_stream(tt__cuda_of(x)), x->dtype, &r, p), x, "norm");
}

static tt_status cuda_any(const tt_tensor *x, bool all, tt_tensor *y) {
    tt__cuda_reduction r = reduction_to(y, x);
    tt_status status = r.outer.n ? reduction_scratch(&r, x, false) : TT_OK;
    if (status || !r.outer.n)
        return status;
    return reduction_done(&r, tt__cuda_any(tt__cuda_stream(tt__cuda_of(x)), x->dtype, &r, all), x, "any");
}

static tt_status cuda_norm_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                    double p) {
    tt__cuda_reduction r = reduction_back(dx, x, y, g);
    tt_status status = dx->numel ? reduction_scratch(&r, x, isinf(p)) : TT_OK;
    if (status || !dx->numel)
        return status;
    return reduction_done(&r, tt__cuda_vector_norm_backward(tt__cuda_stream(tt__cuda_of(x)), x->dtype, &r, p), x,
                          "norm_backward");
}

static tt_status cuda_share_equal(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                  bool nan_equals) {
    tt__cuda_reduction r = reduction_back(dx, x, y, g);
    tt_status status = dx->numel ? reduction_scratch(&r, x, true) : TT_OK;
    if (status || !dx->numel)
        return status;
    return reduction_done(&r, tt__cuda_share_equal(tt__cuda_stream(tt__cuda_of(x)), x->dtype, &r, nan_equals), x,
                          "share_equal");
}

/* ---- lines ---- */

/* x without dimension `dim`. */
static tt_tensor without_dim(const tt_tensor *x, int dim) {
    tt_tensor lines = *x;
    lines.shape.ndim = 0;
    lines.numel = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        if (d == dim)
            continue;
        lines.shape.dim[lines.shape.ndim] = x->shape.dim[d];
        lines.stride[lines.shape.ndim++] = x->stride[d];
        lines.numel *= x->shape.dim[d];
    }
    return lines;
}

/* y, contiguous, in the shape of `lines`. */
static tt_tensor result_shaped_as(const tt_tensor *y, const tt_tensor *lines) {
    tt_tensor shaped = *y;
    int64_t stride = 1;
    shaped.shape = lines->shape;
    for (int d = lines->shape.ndim - 1; d >= 0; d--) {
        shaped.stride[d] = stride;
        stride *= lines->shape.dim[d];
    }
    return shaped;
}

/* Lines of y or its gradient and of index, which are contiguous, and of x or its gradient. */
static tt__cuda_extreme_lines lines_of(const tt_tensor *y, const tt_tensor *index, const tt_tensor *x, int dim) {
    const tt_tensor lines = without_dim(x, dim), values = result_shaped_as(y, &lines),
                    indices = result_shaped_as(index, &lines);
    return (tt__cuda_extreme_lines){
        .lines = TT__CUDA_WALK(&values, &indices, &lines), .n = x->shape.dim[dim], .step = x->stride[dim]};
}

static tt_status cuda_extreme(tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest) {
    const tt__cuda_extreme_lines l = lines_of(y, index, x, dim);
    TT__CUDA_ENQUEUE(x, "extreme", tt__cuda_extreme(stream, x->dtype, &l, largest));
}

static tt_status cuda_argmax(const tt_tensor *x, int dim, tt_tensor *y) {
    tt_tensor no_values = *y;
    no_values.data = NULL;
    const tt__cuda_extreme_lines l = lines_of(&no_values, y, x, dim);
    TT__CUDA_ENQUEUE(x, "argmax", tt__cuda_extreme(stream, x->dtype, &l, true));
}

static tt_status cuda_extreme_backward(tt_tensor *dx, const tt_tensor *index, const tt_tensor *g, int dim) {
    const tt__cuda_extreme_lines l = lines_of(g, index, dx, dim);
    TT__CUDA_ENQUEUE(dx, "extreme_backward", tt__cuda_extreme_backward(stream, dx->dtype, &l));
}

void tt__cuda_reduction_ops(tt__cuda_tables *t) {
    t->floats.var = cuda_var;
    t->floats.norm = cuda_norm;
    t->floats.norm_backward = cuda_norm_backward;
    t->floats.share_equal = cuda_share_equal;
    t->floats.any = t->integers.any = t->booleans.any = cuda_any;
    t->floats.extreme = t->integers.extreme = t->booleans.extreme = cuda_extreme;
    t->floats.argmax = t->integers.argmax = t->booleans.argmax = cuda_argmax;
    t->floats.extreme_backward = cuda_extreme_backward;
    t->floats.sum = cuda_sum;
    t->integers.expect_within = cuda_expect_within;
}
