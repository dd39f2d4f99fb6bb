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
    void *mean;                    /* backward: scratch, (n,T) of stats' type, n matrices */
    int64_t T, S, D, Dv;
    double scale;
    bool causal;
} tt__cuda_attention;

/* A batch of n: its dimensions, from the innermost on, and along each the bytes from one matrix to the next. */
typedef struct tt__cuda_attention_batch {
    int64_t n;
    int ndim;
    int64_t dim[TT_MAX_DIMS];
    int64_t q[TT_MAX_DIMS], k[TT_MAX_DIMS], v[TT_MAX_DIMS], mask[TT_MAX_DIMS], y[TT_MAX_DIMS], stats[TT_MAX_DIMS];
    int64_t g[TT_MAX_DIMS], dq[TT_MAX_DIMS], dk[TT_MAX_DIMS], dv[TT_MAX_DIMS];
} tt__cuda_attention_batch;

/* Matrices of `a` are the first ones of the batch. */
cudaError_t tt__cuda_attention_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                   const tt__cuda_attention_batch *batch);
cudaError_t tt__cuda_attention_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                        const tt__cuda_attention_batch *batch);

/* Of n rows the logarithm of the sum of exp of all scores, from stats (n,2), and such stats from it: it stands for the
 * maximum, and the sum is 1. f32. */
cudaError_t tt__cuda_attention_log_sums(cudaStream_t stream, float *sums, const float *stats, int64_t n);
cudaError_t tt__cuda_attention_stats(cudaStream_t stream, float *stats, const float *sums, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
