/* The negative log likelihood and the mean squared error: see cuda_kernels.h, and tensor/kernels/kernels.h for what is
 * computed. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_LOSSES_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_LOSSES_H

#include "tensor/kernels/calls.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of classes: x, dx (R,V), t, share, g (R), w (V) or NULL. `loss` is one for each row, or, of the first two
 * functions, one for all, as is g. */
typedef struct tt__cuda_nll {
    void *loss, *share, *dx;
    const void *x, *w, *g;
    const int64_t *t;
    double *scratch; /* nll_loss_backward: one */
    int64_t R, V;
    tt__nll call;
} tt__cuda_nll;
cudaError_t tt__cuda_nll_loss(cudaStream_t stream, tt_dtype dtype, const tt__cuda_nll *c);
cudaError_t tt__cuda_nll_loss_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_nll *c);
cudaError_t tt__cuda_nll_rows(cudaStream_t stream, tt_dtype dtype, const tt__cuda_nll *c);
cudaError_t tt__cuda_nll_rows_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_nll *c);

/* a, b, da (n); as many blocks as `parts` says share the sum, by way of `scratch` (parts). */
typedef struct tt__cuda_mse {
    void *loss, *da;
    const void *a, *b, *g;
    double *scratch;
    int64_t n, parts;
} tt__cuda_mse;
cudaError_t tt__cuda_mse_loss(cudaStream_t stream, tt_dtype dtype, const tt__cuda_mse *c);
cudaError_t tt__cuda_mse_loss_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_mse *c);

#ifdef __cplusplus
}
#endif

#endif
