/* Checks of indices that don't wait: cuda_within.cu. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_WITHIN_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_WITHIN_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An element out of range, in pinned memory of the host, which kernels write to. */
typedef struct tt__cuda_fault {
    bool set;
    int64_t index, value;
    char text[256]; /* what was expected, and the name that the index is of */
} tt__cuda_fault;

/* Look for the first element of x, walked in row-major order, that is outside low..high and not `but`. If there is one
 * and *fault is not set, set it, with the text of `told`. */
cudaError_t tt__cuda_expect_within(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, int64_t low, int64_t high,
                                   int64_t but, const tt__cuda_fault *told, tt__cuda_fault *fault);

#ifdef __cplusplus
}
#endif

#endif
