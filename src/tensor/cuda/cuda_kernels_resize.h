/* Kernels of images in another size. As cuda_kernels.h says. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_RESIZE_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_RESIZE_H

#include "tensor/cuda/cuda_kernels_conv.h"
#include "tensor/kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As in tensor/kernels/kernels.h: y = x in another size; dx += g. */
cudaError_t tt__cuda_resize(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *y, const tt__cuda_image *x,
                            const tt__resize *how);
cudaError_t tt__cuda_resize_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *dx,
                                     const tt__cuda_image *g, const tt__resize *how);

#ifdef __cplusplus
}
#endif

#endif
