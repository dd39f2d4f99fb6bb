#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>

int64_t tt__shape_numel(const tt_shape *shape) {
    if (shape->ndim < 0 || shape->ndim > TT_MAX_DIMS)
        return -1;
    int64_t n = 1;
    bool empty = false;
    for (int d = 0; d < shape->ndim; d++) {
        if (shape->dim[d] < 0)
            return -1;
        if (shape->dim[d] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, shape->dim[d], &n) || n > INT64_MAX / 16)
            return -1;
    }
    return empty ? 0 : n;
}

void tt__shape_strides(const tt_shape *shape, int64_t *stride) {
    int64_t n = 1;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        stride[d] = n;
        n *= shape->dim[d] > 0 ? shape->dim[d] : 1;
    }
}

bool tt__shape_equal(const tt_shape *a, const tt_shape *b) {
    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->dim[d] != b->dim[d])
            return false;
    return true;
}

bool tt__is_float(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64; }

bool tt__is_tensor_dtype(tt_dtype dtype) { return (unsigned)dtype <= TT_U8; }

int tt__dim_index(int ndim, int dim) {
    int d = dim < 0 ? dim + ndim : dim;
    return d >= 0 && d < ndim ? d : -1;
}

tt_dtype tt_tensor_dtype(const tt_tensor *x) { return x ? x->dtype : TT_F32; }

int tt_tensor_dim(const tt_tensor *x) { return x ? x->shape.ndim : 0; }

int64_t tt_tensor_size(const tt_tensor *x, int d) {
    int i = x ? tt__dim_index(x->shape.ndim, d) : -1;
    return i < 0 ? 0 : x->shape.dim[i];
}

int64_t tt_tensor_stride(const tt_tensor *x, int d) {
    int i = x ? tt__dim_index(x->shape.ndim, d) : -1;
    return i < 0 ? 0 : x->stride[i];
}

int64_t tt_tensor_numel(const tt_tensor *x) { return x ? x->numel : 0; }

tt_shape tt_tensor_shape(const tt_tensor *x) { return x ? x->shape : (tt_shape){.ndim = 0}; }

bool tt_is_contiguous(const tt_tensor *x) { return x && x->contiguous; }

const char *tt_tensor_describe(const tt_tensor *x, char *out, size_t size) {
    if (!size)
        return out;
    if (!x) {
        snprintf(out, size, "NULL");
        return out;
    }
    int n = snprintf(out, size, "%s (", tt_dtype_name(x->dtype));
    for (int d = 0; d < x->shape.ndim && (size_t)n < size; d++)
        n += snprintf(out + n, size - (size_t)n, "%s%" PRId64, d ? ", " : "", x->shape.dim[d]);
    if ((size_t)n < size)
        snprintf(out + n, size - (size_t)n, ")");
    return out;
}
