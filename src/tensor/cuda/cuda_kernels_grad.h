/* Kernels that look through gradients: see cuda_kernels.h, and tensor/kernels/kernels.h for what is computed. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_GRAD_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_GRAD_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of f32 and f64: x (n), contiguous, n > 0. `parts` blocks share x, by way of `scratch` (parts). */
typedef struct tt__cuda_measure {
    const void *x;
    int64_t n, parts;
    double p, *scratch, *total;
} tt__cuda_measure;
cudaError_t tt__cuda_grad_measure(cudaStream_t stream, tt_dtype dtype, const tt__cuda_measure *m);

cudaError_t tt__cuda_grad_unscale(cudaStream_t stream, tt_dtype dtype, void *x, int64_t n, double factor,
                                  double *found);

#ifdef __cplusplus
}
#endif

#endif
