/* Helpers for enqueuing kernels: walks over tensors, and errors. */
#include "tensor/cuda/ops/cuda_ops.h"

#include <string.h>

tt_status tt__cuda_done(cudaError_t error, const tt_tensor *x, const char *kernel) {
    return tt__cuda_check(error, "the kernel \"%s\" of %s for %s", kernel, tt__cuda_of(x)->name,
                          tt__cuda_host->dtype_name(x->dtype));
}

/* ---- walks ---- */

const size_t tt__cuda_element_size[TT__DTYPES] = {
    [TT_F32] = 4, [TT_F64] = 8, [TT_F16] = 2, [TT_BF16] = 2, [TT_I64] = 8,
    [TT_I32] = 4, [TT_I16] = 2, [TT_I8] = 1,  [TT_U8] = 1,   [TT_BOOL] = 1};

tt__walk tt__cuda_walk_of(const tt__iter *it, const tt_tensor *const *tensors) {
    tt__walk w;
    memset(&w, 0, sizeof w);
    w.n = it->more ? it->n : 0;
    w.ndim = it->ndim + 1;
    w.dim[0] = it->n;
    for (int d = 0; d < it->ndim; d++) {
        w.dim[d + 1] = it->dim[d];
        w.n *= it->dim[d];
    }
    for (int k = 0; k < it->arrays; k++) {
        w.p[k] = it->p[k];
        w.step[k][0] = it->step[k];
        for (int d = 0; d < it->ndim; d++)
            w.step[k][d + 1] = it->jump[k][d] / (int64_t)tt__cuda_element_size[tensors[k]->dtype];
    }
    return w;
}

tt__walk tt__cuda_walk_over(int n, const tt_tensor *const *tensors) {
    const tt__iter it = tt__cuda_host->iter_over(n, tensors);
    return tt__cuda_walk_of(&it, tensors);
}

tt_tensor tt__cuda_dims_of(const tt_tensor *x, const tt_tensor *y, bool repeats) {
    tt_tensor part = *x;
    part.shape.ndim = 0;
    part.numel = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        if ((y->stride[d] == 0) != repeats)
            continue;
        part.shape.dim[part.shape.ndim] = x->shape.dim[d];
        part.stride[part.shape.ndim++] = x->stride[d];
        part.numel *= x->shape.dim[d];
    }
    return part;
}
