/* Normalisation on a CUDA device: cuda_norm.cu, cuda_norm_sums.cu. See kernels.h for what each kernel computes. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_NORM_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_NORM_H

#include "tensor/cuda/cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows (R,n). Element i of row r has weight number (r % groups) * (n / share) + i / share. Mean and rstd belong to
 * rows; or, `by_channel`, to row r % groups. A batch (A,C,B) is A C rows of B elements, by channel, in C groups, whose
 * elements share one weight. */
typedef struct tt__cuda_norm {
    void *y; /* or dx; NULL: not wanted */
    const void *x, *g, *weight, *bias;
    void *dw, *db; /* may be NULL, as weight and bias may */
    double *mean, *rstd;
    int64_t R, n, groups, share;
    bool by_channel;
    bool no_mean;
    bool fixed; /* mean and rstd did not come from x */
    double eps;
} tt__cuda_norm;

/* The terms of a weight, in each of groups R / groups rows, are shared by `parts` threads or blocks. */
static inline int64_t tt__cuda_norm_weights(const tt__cuda_norm *n) { return n->groups * (n->n / n->share); }
static inline int64_t tt__cuda_norm_terms(const tt__cuda_norm *n) { return n->R / n->groups * n->share; }
int64_t tt__cuda_norm_parts(const tt__cuda_norm *n);

/* Room for sums of a weight: (2, parts, weights) of parts, and (2, weights) of what they make. */
typedef struct tt__cuda_norm_room {
    int64_t parts;
    double *part, *total;
} tt__cuda_norm_room;

/* cuda_norm_sums.cu. Stats: mean and rstd by channel. Gradients: dw and db; total = dbias, dweight. */
cudaError_t tt__cuda_norm_stats(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                const tt__cuda_norm_room *room);
cudaError_t tt__cuda_norm_gradients(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                    const tt__cuda_norm_room *room);

/* cuda_norm.cu. Rows: mean, rstd and y; dx. */
cudaError_t tt__cuda_norm_rows(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);
cudaError_t tt__cuda_norm_rows_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);

/* By channel: y; dx, from sums (2,C) over `count` elements, or, if n->fixed, without them. */
cudaError_t tt__cuda_norm_channels(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);
cudaError_t tt__cuda_norm_channels_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                            const double *sums, int64_t count);

/* Running statistics (C) of a dtype: read, and moved. */
typedef struct tt__cuda_norm_running {
    void *m, *var;
    double *mean, *rstd;
    int64_t C, count;
    double eps, momentum;
} tt__cuda_norm_running;
cudaError_t tt__cuda_norm_given(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm_running *r);
cudaError_t tt__cuda_norm_move(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm_running *r);

#ifdef __cplusplus
}
#endif

#endif
