/* Kernels of images on a CUDA device, as cuda_kernels.h describes them. tensor/kernels/kernels.h says what each
 * computes. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_IMAGES_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_IMAGES_H

#include "tensor/kernels/kernels_calls.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions (cuda_conv.cu) and pooling (cuda_pool.cu) */

/* (N,C,H,W), any strides. */
typedef struct tt__cuda_image {
    void *p;
    int64_t dim[4], stride[4];
} tt__cuda_image;

/* x (N,C,H,W), or its gradient; y (N,K,P,Q), or its gradient. */
typedef struct tt__cuda_conv {
    tt__cuda_image x, y;
    void *w, *bias;          /* (K,C/groups,R,S), contiguous, and (K), or their gradients; bias may be NULL */
    int64_t inputs, outputs; /* channels of a group: C/groups, K/groups */
    int64_t size[2];         /* R, S */
    tt__conv conv;
    int64_t parts;   /* backward_weight: how many blocks share a sum, ... */
    double *scratch; /* ... through this (parts, weights); NULL for one part */
} tt__cuda_conv;

/* x, y, w or bias is written. */
cudaError_t tt__cuda_conv2d(cudaStream_t stream, tt_dtype dtype, const tt__cuda_conv *c);
cudaError_t tt__cuda_conv2d_backward_data(cudaStream_t stream, tt_dtype dtype, const tt__cuda_conv *c);
cudaError_t tt__cuda_conv2d_backward_weight(cudaStream_t stream, tt_dtype dtype, const tt__cuda_conv *c);

/* y[n][k][p][q] += bias[k], and db[k] = the sum of g over the other dimensions. */
cudaError_t tt__cuda_conv2d_add_bias(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *y, const void *bias);
cudaError_t tt__cuda_conv2d_backward_bias(cudaStream_t stream, tt_dtype dtype, void *db, const tt__cuda_image *g);

/* x (N,C,H,W), y (N,C,P,Q), or their gradients. */
typedef struct tt__cuda_pool {
    tt__cuda_image x, y;
    int32_t *at; /* max_pool2d: lies like y */
    tt__pooling pool;
} tt__cuda_pool;

/* Forward writes y, backward x. */
cudaError_t tt__cuda_max_pool2d(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);
cudaError_t tt__cuda_max_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);
cudaError_t tt__cuda_avg_pool2d(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);
cudaError_t tt__cuda_avg_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);
cudaError_t tt__cuda_adaptive_avg_pool2d(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);
cudaError_t tt__cuda_adaptive_avg_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p);

/* ---- another size (cuda_resize.cu) */

/* y = x in another size; dx += g. */
cudaError_t tt__cuda_resize(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *y, const tt__cuda_image *x,
                            const tt__resize *how);
cudaError_t tt__cuda_resize_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_image *dx,
                                     const tt__cuda_image *g, const tt__resize *how);

#ifdef __cplusplus
}
#endif

#endif
