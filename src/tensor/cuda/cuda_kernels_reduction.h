/* Reductions but sums: see cuda_kernels.h, and tensor/kernels/kernels.h for what is computed. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_REDUCTION_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_REDUCTION_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One element of y for each element of `outer`, of the terms of x along `inner`, a walk of x alone; as many blocks as
 * `parts` says share one's terms. Backwards `inner` is of x and dx. */
typedef struct tt__cuda_reduction {
    tt__walk outer; /* of y and x; backwards of y, x, dx and g */
    tt__walk inner;
    int64_t parts;
    double *scratch; /* (outer.n, parts) */
    double *each;    /* (outer.n): means of a variance; backwards how many elements share a gradient */
} tt__cuda_reduction;

cudaError_t tt__cuda_var(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double correction);
cudaError_t tt__cuda_norm(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double p);
cudaError_t tt__cuda_norm_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, double p);
cudaError_t tt__cuda_share_equal(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, bool nan_equals);
/* y is bool, dtype that of x. */
cudaError_t tt__cuda_any(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, bool all);

/* Lines of n elements, `step` apart, that begin where `lines` says: of y (memory NULL: not
 * wanted), index and x; backwards of g, index and dx. */
typedef struct tt__cuda_extreme_lines {
    tt__walk lines;
    int64_t n, step;
} tt__cuda_extreme_lines;
cudaError_t tt__cuda_extreme(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l, bool largest);
cudaError_t tt__cuda_extreme_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l);

#ifdef __cplusplus
}
#endif

#endif
