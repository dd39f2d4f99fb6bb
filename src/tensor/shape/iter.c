#include "tensor/shape/iter.h"

#include "tensor/core/tensor.h"

/* Can the arrays cross from dimension d into the joined inner one (`n` elements, strides `step`) with one stride? */
static bool dims_join(const tt__iter *it, const int64_t *const *stride, int d) {
    for (int k = 0; k < it->arrays; k++)
        if (stride[k][d] != it->n * it->step[k])
            return false;
    return true;
}

static tt__iter iter_begin(const tt_shape *shape, const int *order, int arrays, void *const *p,
                           const int64_t *const *stride, const size_t *size) {
    tt__iter it;
    it.more = true;
    it.n = 1;
    it.arrays = arrays;
    it.ndim = 0;
    for (int k = 0; k < arrays; k++) {
        it.p[k] = p[k];
        it.step[k] = 0;
    }
    bool inner = true; /* still building the row */
    for (int i = shape->ndim - 1; i >= 0; i--) {
        int d = order[i];
        int64_t n = shape->dim[d];
        it.more = it.more && n > 0;
        if (n == 1)
            continue;
        if (inner && it.n == 1) {
            it.n = n;
            for (int k = 0; k < arrays; k++)
                it.step[k] = stride[k][d];
        } else if (inner && dims_join(&it, stride, d)) {
            it.n *= n;
        } else {
            inner = false;
            it.dim[it.ndim] = n;
            it.at[it.ndim] = 0;
            for (int k = 0; k < arrays; k++)
                it.jump[k][it.ndim] = stride[k][d] * (int64_t)size[k];
            it.ndim++;
        }
    }
    return it;
}

void tt__iter_next(tt__iter *it) {
    for (int d = 0; d < it->ndim; d++) {
        bool wraps = ++it->at[d] == it->dim[d];
        for (int k = 0; k < it->arrays; k++)
            it->p[k] += wraps ? -it->jump[k][d] * (it->dim[d] - 1) : it->jump[k][d];
        if (!wraps)
            return;
        it->at[d] = 0;
    }
    it->more = false;
}

static tt__iter begin_tensors(int n, const tt_tensor *const *tensors, bool row_major) {
    void *p[TT__ITER_MAX];
    const int64_t *stride[TT__ITER_MAX];
    size_t size[TT__ITER_MAX];
    int order[TT_MAX_DIMS] = {0};
    for (int k = 0; k < n; k++) {
        p[k] = tensors[k]->data;
        stride[k] = tensors[k]->stride;
        size[k] = tt_dtype_size(tensors[k]->dtype);
    }
    if (row_major)
        for (int d = 0; d < TT_MAX_DIMS; d++)
            order[d] = d;
    else
        tt__shape_memory_order(tensors[0]->shape.ndim, tensors[0]->stride, order);
    return iter_begin(&tensors[0]->shape, order, n, p, stride, size);
}

tt__iter tt__iter_over(int n, const tt_tensor *const *tensors) { return begin_tensors(n, tensors, false); }

tt__iter tt__iter_row_major(int n, const tt_tensor *const *tensors) { return begin_tensors(n, tensors, true); }

static bool same_strides(const tt_tensor *a, const tt_tensor *b) {
    for (int d = 0; d < a->shape.ndim; d++)
        if (a->shape.dim[d] != 1 && a->stride[d] != b->stride[d])
            return false;
    return true;
}

bool tt__is_flat(int n, const tt_tensor *const *tensors) {
    bool contiguous = true, same = true;
    for (int k = 0; k < n; k++) {
        contiguous = contiguous && tensors[k]->contiguous;
        same = same && same_strides(tensors[0], tensors[k]);
    }
    return contiguous || (same && tt__shape_is_dense(&tensors[0]->shape, tensors[0]->stride));
}
