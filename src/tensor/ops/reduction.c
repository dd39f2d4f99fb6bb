/* Operations that reduce dimensions: sums, norms, extremes, any and all. */
#include "base/args.h"
#include "base/error.h"
#include "tensor/ops/ops.h"

tt_status tt__reduction_of(const char *who, tt__reduction *r, const tt_tensor *x, const tt_dims *dims, bool keepdim) {
    *r = (tt__reduction){.keepdim = keepdim, .count = 1};
    if (dims->ndim < 0 || dims->ndim > TT_MAX_DIMS)
        return tt__fail(TT_ERR_INVALID, "%s: expected at most %d dimensions, got %d", who, TT_MAX_DIMS, dims->ndim);
    for (int i = 0; i < dims->ndim; i++) {
        int d = tt__dim_index(x->shape.ndim, dims->dim[i]);
        if (d < 0)
            return tt__fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dims->dim[i], TT__DESCRIBE(x));
        if (r->dims >> d & 1)
            return tt__fail(TT_ERR_SHAPE, "%s: dimension %d of %s comes twice", who, dims->dim[i], TT__DESCRIBE(x));
        r->dims |= 1U << d;
    }
    for (int d = 0; d < x->shape.ndim; d++) {
        r->dims |= dims->ndim ? 0 : 1U << d;
        r->count *= r->dims >> d & 1 ? x->shape.dim[d] : 1;
    }
    return TT_OK;
}

tt_tensor *tt__reduction_result(const char *who, const tt_tensor *x, const tt__reduction *r, tt_dtype dtype) {
    tt_shape shape = {.ndim = 0};
    for (int d = 0; d < x->shape.ndim; d++)
        if (!(r->dims >> d & 1))
            shape.dim[shape.ndim++] = x->shape.dim[d];
        else if (r->keepdim)
            shape.dim[shape.ndim++] = 1;
    return tt__empty_beside(who, x, shape, dtype);
}

tt_tensor *tt__index_like(const char *who, const tt_tensor *y) { return tt__empty_beside(who, y, y->shape, TT_I64); }

tt_tensor tt__reduction_spread(const tt_tensor *y, const tt__reduction *r, const tt_shape *shape) {
    int64_t stride[TT_MAX_DIMS];
    for (int d = 0, k = 0; d < shape->ndim; d++) {
        bool reduced = r->dims >> d & 1;
        stride[d] = reduced ? 0 : y->stride[k];
        k += !reduced || r->keepdim;
    }
    return tt__tensor_seen(y, *shape, stride);
}

/* ---- y is spread over x's shape */

tt_status tt__sum_spread_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor) {
    tt__kernel_sum run = TT__KERNEL(who, y, sum);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, factor) : tt_last_status();
}

tt_status tt__sum_to_out(const char *who, tt_tensor *y, const tt_tensor *x, double factor) {
    tt__kernel_sum run = TT__KERNEL(who, y, sum);
    if (!run || !TT__SAME_DEVICE(who, y, x))
        return tt_last_status();
    int64_t stride[TT_MAX_DIMS];
    tt__shape_broadcast_strides(&y->shape, y->stride, &x->shape, stride);
    if (x->numel == 0) /* a sum of no terms; with a mean's factor, infinity, it is NaN */
        return tt__fill_out(who, y, 0 * factor);
    tt_tensor wide = tt__tensor_seen(y, x->shape, stride);
    return run(&wide, x, factor);
}

tt_status tt__var_out(const char *who, tt_tensor *y, const tt_tensor *x, double correction) {
    tt__kernel_var run = TT__KERNEL(who, y, var);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, correction) : tt_last_status();
}

tt_status tt__norm_out(const char *who, tt_tensor *y, const tt_tensor *x, double p) {
    tt__kernel_norm run = TT__KERNEL(who, y, norm);
    return run && TT__SAME_DEVICE(who, y, x) ? run(y, x, p) : tt_last_status();
}

tt_status tt__norm_backward_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                                const tt_tensor *g, double p) {
    tt__kernel_norm_backward run = TT__KERNEL(who, dx, norm_backward);
    return run && TT__SAME_DEVICE(who, dx, x, y, g) ? run(dx, x, y, g, p) : tt_last_status();
}

/* ---- largest and smallest */

tt_status tt__extreme_out(const char *who, tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest) {
    tt__kernel_extreme run = TT__KERNEL(who, y, extreme);
    return run && TT__SAME_DEVICE(who, y, index, x) ? run(y, index, x, dim, largest) : tt_last_status();
}

tt_status tt__extreme_backward_out(const char *who, tt_tensor *dx, const tt_tensor *index, const tt_tensor *g,
                                   int dim) {
    tt__kernel_extreme_backward run = TT__KERNEL(who, dx, extreme_backward);
    if (!run || !TT__SAME_DEVICE(who, dx, index, g))
        return tt_last_status();
    tt_tensor *rows = tt__contiguous_begin(who, g);
    tt_status status = rows ? run(dx, index, rows, dim) : tt_last_status();
    tt__contiguous_done(rows, g);
    return status;
}

tt_status tt__share_equal_out(const char *who, tt_tensor *dx, const tt_tensor *x, const tt_tensor *y,
                              const tt_tensor *g, bool nan_equals) {
    tt__kernel_share_equal run = TT__KERNEL(who, dx, share_equal);
    return run && TT__SAME_DEVICE(who, dx, x, y, g) ? run(dx, x, y, g, nan_equals) : tt_last_status();
}

/* ---- tt_any, tt_all, tt_argmax */

static tt_status any_out(const char *who, tt_tensor *y, const tt_tensor *x, bool all) {
    tt__kernel_any run = TT__KERNEL(who, x, any);
    return run && TT__SAME_DEVICE(who, y, x) ? run(x, all, y) : tt_last_status();
}

static tt_tensor *any_of(const char *who, const tt_any_args *args, size_t size, bool all) {
    tt_any_args o;
    tt__reduction r;
    TT__ARGS_COPY(o, args, size);
    if (!o.x || !tt__tensor_check(who, o.x))
        return NULL;
    if (tt__reduction_of(who, &r, o.x, &o.dim, o.keepdim))
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    tt_tensor *y = tt__reduction_result(who, o.x, &r, TT_BOOL);
    if (!y)
        return NULL;
    tt_tensor wide = tt__reduction_spread(y, &r, &o.x->shape);
    tt_status status = o.x->numel ? any_out(who, &wide, o.x, all) : tt__fill_out(who, y, all);
    return status ? tt__abandon(y) : y;
}

tt_tensor *tt_any_with(const tt_any_args *args, size_t size) { return any_of("tt_any", args, size, false); }

tt_tensor *tt_all_with(const tt_any_args *args, size_t size) { return any_of("tt_all", args, size, true); }

static tt_status argmax_out(const char *who, tt_tensor *y, const tt_tensor *x, int dim) {
    tt__kernel_argmax run = TT__KERNEL(who, x, argmax);
    return run && TT__SAME_DEVICE(who, y, x) ? run(x, dim, y) : tt_last_status();
}

tt_tensor *tt_argmax(tt_tensor *x, int dim) {
    static const char who[] = "tt_argmax";
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0 || x->shape.dim[d] == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d with elements in %s", who, dim, TT__DESCRIBE(x));
    tt_shape shape = {.ndim = x->shape.ndim - 1};
    for (int k = 0; k < shape.ndim; k++)
        shape.dim[k] = x->shape.dim[k < d ? k : k + 1];
    tt_tensor *y = tt__empty_beside(who, x, shape, TT_I64);
    return y && argmax_out(who, y, x, d) ? tt__abandon(y) : y;
}
