/* Views and reshapes without history: other shape and strides over the same storage. */
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <string.h>

/* Replace a size of -1 by the one that makes the element count numel. */
static bool infer_size(int64_t numel, tt_shape *shape) {
    int unknown = -1;
    tt_shape rest = *shape;
    for (int d = 0; d < shape->ndim && d < TT_MAX_DIMS; d++) {
        if (shape->dim[d] != -1)
            continue;
        if (unknown >= 0)
            return false;
        unknown = d;
        rest.dim[d] = 1;
    }
    int64_t known = tt__shape_numel(&rest);
    if (unknown < 0)
        return known == numel;
    if (known <= 0 || numel % known)
        return false;
    shape->dim[unknown] = numel / known;
    return true;
}

/* Find strides by which `shape` visits x's elements in row-major order, if there are any. x's dimensions are joined
 * into groups that one stride crosses; each group must be a product of consecutive new sizes. */
static bool view_strides(const tt_tensor *x, const tt_shape *shape, int64_t *stride) {
    if (x->contiguous) {
        tt__shape_strides(shape, stride);
        return true;
    }
    int to = shape->ndim - 1;
    int64_t group = 1, made = 1, step = 1;
    bool open = false;
    for (int d = x->shape.ndim - 1; d >= 0; d--) {
        if (!open) {
            step = x->stride[d];
            open = true;
        }
        group *= x->shape.dim[d];
        if (d > 0 && (x->shape.dim[d - 1] == 1 || x->stride[d - 1] == group * step))
            continue;
        for (; to >= 0 && (made < group || shape->dim[to] == 1); to--) {
            stride[to] = made * step;
            made *= shape->dim[to];
        }
        if (made != group)
            return false;
        group = made = 1;
        open = false;
    }
    for (; to >= 0; to--) /* leading ones of a scalar */
        stride[to] = 1;
    return true;
}

static bool shape_fits(const char *who, const tt_tensor *x, tt_shape *shape) {
    tt_shape asked = *shape;
    if (infer_size(x->numel, shape))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected a shape of %" PRId64 " elements to match %s, got %s", who, x->numel,
                    TT__DESCRIBE(x), TT__SHAPE_TEXT(&asked));
    return false;
}

tt_tensor *tt__view(const char *who, const tt_tensor *x, tt_shape shape) {
    int64_t stride[TT_MAX_DIMS];
    if (!shape_fits(who, x, &shape))
        return NULL;
    if (!view_strides(x, &shape, stride))
        return tt__tensor_fail(TT_ERR_SHAPE,
                               "%s: the layout of %s does not allow the shape %s without a copy; use tt_reshape()", who,
                               TT__DESCRIBE(x), TT__SHAPE_TEXT(&shape));
    return tt__tensor_alias(who, x, shape, stride, 0);
}

tt_tensor *tt__reshape(const char *who, const tt_tensor *x, tt_shape shape) {
    int64_t stride[TT_MAX_DIMS];
    if (!shape_fits(who, x, &shape))
        return NULL;
    if (view_strides(x, &shape, stride))
        return tt__tensor_alias(who, x, shape, stride, 0);
    tt_tensor *copy = tt__clone_contiguous(who, x);
    tt_tensor *y = NULL;
    if (copy) {
        tt__shape_strides(&shape, stride);
        y = tt__tensor_alias(who, copy, shape, stride, 0);
    }
    tt__abandon(copy);
    return y;
}

tt_tensor *tt__transpose(const char *who, const tt_tensor *x, int a, int b) {
    int i = tt__dim_index(x->shape.ndim, a), j = tt__dim_index(x->shape.ndim, b);
    if (i < 0 || j < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimensions %d and %d in %s", who, a, b, TT__DESCRIBE(x));
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    memcpy(stride, x->stride, sizeof stride);
    shape.dim[i] = x->shape.dim[j];
    shape.dim[j] = x->shape.dim[i];
    stride[i] = x->stride[j];
    stride[j] = x->stride[i];
    return tt__tensor_alias(who, x, shape, stride, 0);
}

tt_tensor *tt__narrow(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t length) {
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    if (start < 0 || length < 0 || start > x->shape.dim[d] || length > x->shape.dim[d] - start)
        return tt__tensor_fail(TT_ERR_SHAPE,
                               "%s: expected a range inside dimension %d of %s, got %" PRId64 " entries from %" PRId64,
                               who, d, TT__DESCRIBE(x), length, start);
    tt_shape shape = x->shape;
    shape.dim[d] = length;
    return tt__tensor_alias(who, x, shape, x->stride, start * x->stride[d]);
}
