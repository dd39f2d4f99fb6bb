/* Kernels of attention. As cuda_kernels.h says. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_ATTENTION_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_ATTENTION_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tensor/reference/attention_loops.h says what is computed. Row i of a matrix begins at p[i * row]. Its columns
 * lie beside each other; the mask's may lie apart. mask and stats are f64 where q is, else f32. */
typedef struct tt__cuda_attention {
    tt__cuda_matrix q, k, v;       /* (T,D), (S,D), (S,Dv) */
    tt__cuda_matrix mask;          /* (T,S); p NULL: none */
    tt__cuda_matrix y, stats;      /* (T,Dv), (T,2): forward writes both, backward reads stats */
    tt__cuda_matrix g, dq, dk, dv; /* backward: of y's shape, q's, k's and v's */
    void *mean;                    /* backward: scratch, (T) of stats' type */
    int64_t T, S, D, Dv;
    double scale;
    bool causal;
} tt__cuda_attention;

cudaError_t tt__cuda_attention_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a);
cudaError_t tt__cuda_attention_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a);

#ifdef __cplusplus
}
#endif

#endif
