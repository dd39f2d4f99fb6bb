#include "tensor/shape/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

void tt__shape_memory_order(int ndim, const int64_t *stride, int *order) {
    for (int i = 0; i < ndim; i++) {
        int at = i;
        for (; at > 0 && stride[order[at - 1]] < stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

void tt__shape_dense_strides(const tt_shape *shape, const int64_t *like, int64_t *stride) {
    int order[TT_MAX_DIMS] = {0};
    uint64_t n = 1; /* wraps for a shape that overflows; making such a tensor fails */
    tt__shape_memory_order(shape->ndim, like, order);
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[order[i]] = (int64_t)n;
        n *= shape->dim[order[i]] > 0 ? (uint64_t)shape->dim[order[i]] : 1;
    }
}

bool tt__shape_is_contiguous(const tt_shape *shape, const int64_t *stride) {
    int64_t n = 1;
    for (int d = shape->ndim - 1; d >= 0; d--) {
        if (shape->dim[d] != 1 && stride[d] != n)
            return false;
        n *= shape->dim[d];
    }
    return true;
}

bool tt__shape_is_dense(const tt_shape *shape, const int64_t *stride) {
    int64_t dense[TT_MAX_DIMS] = {0};
    tt__shape_dense_strides(shape, stride, dense);
    for (int d = 0; d < shape->ndim; d++)
        if (shape->dim[d] != 1 && stride[d] != dense[d])
            return false;
    return true;
}

bool tt__shape_broadcast(const tt_shape *a, const tt_shape *b, tt_shape *out) {
    out->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 1; i <= out->ndim; i++) { /* from the end */
        int64_t m = i <= a->ndim ? a->dim[a->ndim - i] : 1, n = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (m != n && m != 1 && n != 1)
            return false;
        out->dim[out->ndim - i] = m == 1 ? n : m;
    }
    return true;
}

void tt__shape_broadcast_strides(const tt_shape *shape, const int64_t *stride, const tt_shape *as, int64_t *out) {
    for (int i = 1; i <= as->ndim; i++) {
        bool repeated = i > shape->ndim || (shape->dim[shape->ndim - i] == 1 && as->dim[as->ndim - i] != 1);
        out[as->ndim - i] = repeated ? 0 : stride[shape->ndim - i];
    }
}

const char *tt__shape_text(const tt_shape *shape, char *out, size_t size) {
    int n = snprintf(out, size, "(");
    for (int d = 0; d < shape->ndim && d < TT_MAX_DIMS && (size_t)n < size; d++)
        n += snprintf(out + n, size - (size_t)n, "%s%" PRId64, d ? ", " : "", shape->dim[d]);
    if ((size_t)n < size)
        snprintf(out + n, size - (size_t)n, ")");
    return out;
}

bool tt__is_float(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16; }

int tt__dim_index(int ndim, int dim) {
    int d = dim < 0 ? dim + ndim : dim;
    return d >= 0 && d < ndim ? d : -1;
}
