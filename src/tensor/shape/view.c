/* Views without history: other shape and strides over the same storage, by reshaping, permuting, repeating, slicing. */
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

/* ---- permute */

/* Read the order of dimensions: each of x's once? */
static bool read_order(const tt_tensor *x, const tt_shape *dims, int *order) {
    unsigned seen = 0;
    if (dims->ndim != x->shape.ndim)
        return false;
    for (int k = 0; k < dims->ndim; k++) {
        bool in_range = dims->dim[k] >= -TT_MAX_DIMS && dims->dim[k] < TT_MAX_DIMS;
        order[k] = in_range ? tt__dim_index(x->shape.ndim, (int)dims->dim[k]) : -1;
        if (order[k] < 0 || (seen & 1u << order[k]))
            return false;
        seen |= 1u << order[k];
    }
    return true;
}

tt_tensor *tt__permute(const char *who, const tt_tensor *x, const tt_shape *dims) {
    int order[TT_MAX_DIMS];
    if (!read_order(x, dims, order))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected each dimension of %s once, got %s", who, TT__DESCRIBE(x),
                               TT__SHAPE_TEXT(dims));
    tt_shape shape = {.ndim = x->shape.ndim};
    int64_t stride[TT_MAX_DIMS] = {0};
    for (int k = 0; k < shape.ndim; k++) {
        shape.dim[k] = x->shape.dim[order[k]];
        stride[k] = x->stride[order[k]];
    }
    return tt__tensor_alias(who, x, shape, stride, 0);
}

/* ---- expand */

/* Replace sizes of -1 by x's. */
static bool infer_expanded(const tt_tensor *x, tt_shape *shape) {
    if (shape->ndim < x->shape.ndim || shape->ndim > TT_MAX_DIMS)
        return false;
    int added = shape->ndim - x->shape.ndim;
    for (int d = 0; d < shape->ndim; d++) {
        if (shape->dim[d] == -1 && d >= added)
            shape->dim[d] = x->shape.dim[d - added];
        if (shape->dim[d] < 0 ||
            (d >= added && x->shape.dim[d - added] != 1 && x->shape.dim[d - added] != shape->dim[d]))
            return false;
    }
    return true;
}

tt_tensor *tt__expand(const char *who, const tt_tensor *x, tt_shape shape) {
    tt_shape asked = shape;
    int64_t stride[TT_MAX_DIMS] = {0};
    if (!infer_expanded(x, &shape))
        return tt__tensor_fail(TT_ERR_SHAPE,
                               "%s: expected a shape that repeats new dimensions and those of size 1 of %s, got %s",
                               who, TT__DESCRIBE(x), TT__SHAPE_TEXT(&asked));
    tt__shape_broadcast_strides(&x->shape, x->stride, &shape, stride);
    return tt__tensor_alias(who, x, shape, stride, 0);
}

/* ---- parts of one dimension */

/* Return dimension `dim` of x; -1 and an error if x has no such dimension. */
static int view_dim(const char *who, const tt_tensor *x, int dim) {
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    return d;
}

static void remove_dim(tt_shape *shape, int64_t *stride, int d) {
    size_t after = (size_t)(shape->ndim - d - 1);
    memmove(shape->dim + d, shape->dim + d + 1, after * sizeof *shape->dim);
    memmove(stride + d, stride + d + 1, after * sizeof *stride);
    shape->ndim--;
}

tt_tensor *tt__select(const char *who, const tt_tensor *x, int dim, int64_t index) {
    int d = view_dim(who, x, dim);
    if (d < 0)
        return NULL;
    int64_t n = x->shape.dim[d];
    if (index < -n || index >= n)
        return tt__tensor_fail(TT_ERR_INVALID,
                               "%s: expected an index in %" PRId64 "..%" PRId64 " of dimension %d of %s, got %" PRId64,
                               who, -n, n - 1, d, TT__DESCRIBE(x), index);
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS], offset = (index < 0 ? index + n : index) * x->stride[d];
    memcpy(stride, x->stride, sizeof stride);
    remove_dim(&shape, stride, d);
    return tt__tensor_alias(who, x, shape, stride, offset);
}

/* Clamp a place to 0..n; a negative one counts from the end. */
static int64_t clamp_place(int64_t at, int64_t n) {
    at = at < 0 ? (at < -n ? 0 : at + n) : at;
    return at > n ? n : at;
}

tt_tensor *tt__slice(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step) {
    int d = view_dim(who, x, dim);
    if (d < 0)
        return NULL;
    if (step < 1)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected a step of at least 1, got %" PRId64, who, step);
    int64_t n = x->shape.dim[d], from = clamp_place(start, n), to = clamp_place(end, n);
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    memcpy(stride, x->stride, sizeof stride);
    shape.dim[d] = to > from ? (to - from - 1) / step + 1 : 0;
    stride[d] = shape.dim[d] > 1 ? x->stride[d] * step : x->stride[d];
    return tt__tensor_alias(who, x, shape, stride, shape.dim[d] ? from * x->stride[d] : 0);
}

/* ---- dimensions of size 1 */

tt_tensor *tt__squeeze(const char *who, const tt_tensor *x, const int *dim) {
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    memcpy(stride, x->stride, sizeof stride);
    int only = !dim || (shape.ndim == 0 && (*dim == 0 || *dim == -1)) ? 0 : view_dim(who, x, *dim);
    if (only < 0)
        return NULL;
    for (int d = shape.ndim - 1; d >= 0; d--)
        if (shape.dim[d] == 1 && (!dim || d == only))
            remove_dim(&shape, stride, d);
    return tt__tensor_alias(who, x, shape, stride, 0);
}

tt_tensor *tt__unsqueeze(const char *who, const tt_tensor *x, int dim) {
    int n = x->shape.ndim, at = tt__dim_index(n + 1, dim);
    if (at < 0 || n == TT_MAX_DIMS)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no place %d for another dimension in %s, of at most %d", who, dim,
                               TT__DESCRIBE(x), TT_MAX_DIMS);
    tt_shape shape = {.ndim = n + 1};
    int64_t stride[TT_MAX_DIMS] = {0};
    for (int k = 0; k < n; k++) {
        shape.dim[k < at ? k : k + 1] = x->shape.dim[k];
        stride[k < at ? k : k + 1] = x->stride[k];
    }
    shape.dim[at] = 1;
    stride[at] = at < n ? x->shape.dim[at] * x->stride[at] : 1;
    return tt__tensor_alias(who, x, shape, stride, 0);
}
