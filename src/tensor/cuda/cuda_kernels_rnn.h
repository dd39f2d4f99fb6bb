/* Kernels of recurrent cells: see cuda_kernels.h, and tensor/kernels/kernels.h for what is computed. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_RNN_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_RNN_H

#include "tensor/cuda/cuda_kernels.h"
#include "tensor/kernels/calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices of B rows, with columns side by side; those that a cell or a pass doesn't have are empty. */
typedef struct tt__cuda_cell {
    tt__cell cell;
    int64_t B, H;
    tt__cuda_matrix x, gates, y, h, c, c_next; /* x: backwards its gradient */
    tt__cuda_matrix g, dh, dc, dhidden;        /* backwards */
    const void *bias;                          /* forwards */
} tt__cuda_cell;

cudaError_t tt__cuda_rnn_cell(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cell *cell);
cudaError_t tt__cuda_rnn_cell_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cell *cell);

#ifdef __cplusplus
}
#endif

#endif
