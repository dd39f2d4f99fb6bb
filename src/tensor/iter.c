#include "tensor/iter.h"

/* Can the arrays cross from dimension d into the joined inner one (`n` elements, strides `step`) with one stride? */
static bool joins(const tt__iter *it, int64_t n, const int64_t *const *stride, int d) {
    for (int k = 0; k < it->arrays; k++)
        if (stride[k][d] != n * it->step[k])
            return false;
    return true;
}

tt__iter tt__iter_begin(const tt_shape *shape, int arrays, void *const *p, const int64_t *const *stride,
                        const size_t *size) {
    tt__iter it = {.more = true, .n = 1, .arrays = arrays};
    for (int k = 0; k < arrays; k++)
        it.p[k] = p[k];
    bool inner = true; /* still building the row */
    for (int d = shape->ndim - 1; d >= 0; d--) {
        int64_t n = shape->dim[d];
        it.more = it.more && n > 0;
        if (n == 1)
            continue;
        if (inner && it.n == 1) {
            it.n = n;
            for (int k = 0; k < arrays; k++)
                it.step[k] = stride[k][d];
        } else if (inner && joins(&it, it.n, stride, d)) {
            it.n *= n;
        } else {
            inner = false;
            it.dim[it.ndim] = n;
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
