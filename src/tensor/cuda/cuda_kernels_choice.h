/* Choices on a CUDA device, element by element: comparisons, where and masked_fill (cuda_choice.cu), and dropout
 * (cuda_dropout.cu). See kernels.h, kernels.h. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_CHOICE_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_CHOICE_H

#include "tensor/cuda/cuda_kernels.h"
#include "tensor/kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y (bool), a, b, which have this dtype. */
cudaError_t tt__cuda_compare(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__comparison op);

/* Elements of `size` bytes. y, condition (bool), a, b; y, x, mask (bool), and the bits of the value in the lowest bytes
 * of `value`. */
cudaError_t tt__cuda_where(cudaStream_t stream, size_t size, const tt__walk *w);
cudaError_t tt__cuda_masked_fill(cudaStream_t stream, size_t size, const tt__walk *w, bool when, uint64_t value);

/* y, x. */
cudaError_t tt__cuda_dropout(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__dropout *call);

#ifdef __cplusplus
}
#endif

#endif
