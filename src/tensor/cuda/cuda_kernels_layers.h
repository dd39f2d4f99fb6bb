/* Kernels of layers and losses on a CUDA device, as cuda_kernels.h describes them. tensor/kernels/kernels.h says what
 * each computes. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_LAYERS_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_LAYERS_H

#include "tensor/cuda/cuda_kernels.h"
#include "tensor/kernels/kernels_calls.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- attention (cuda_attention.cu) */

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

/* `a` has the first matrices of the batch. */
cudaError_t tt__cuda_attention_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                   const tt__cuda_attention_batch *batch);
cudaError_t tt__cuda_attention_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                        const tt__cuda_attention_batch *batch);

/* Convert n rows' stats (n,2) to log(sum of exp of all scores), and back: then the logarithm stands for the maximum,
 * beside a sum of 1. f32. */
cudaError_t tt__cuda_attention_log_sums(cudaStream_t stream, float *sums, const float *stats, int64_t n);
cudaError_t tt__cuda_attention_stats(cudaStream_t stream, float *stats, const float *sums, int64_t n);

/* ---- normalisation (cuda_norm.cu) */

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

/* A weight's terms lie in R / groups rows. `parts` threads or blocks share them. */
static inline int64_t tt__cuda_norm_weights(const tt__cuda_norm *n) { return n->groups * (n->n / n->share); }
static inline int64_t tt__cuda_norm_terms(const tt__cuda_norm *n) { return n->R / n->groups * n->share; }
int64_t tt__cuda_norm_parts(const tt__cuda_norm *n);

/* Room for two sums of each weight: (2, parts, weights) for their parts, and (2, weights) for the totals. */
typedef struct tt__cuda_norm_room {
    int64_t parts;
    double *part, *total;
} tt__cuda_norm_room;

/* Stats: mean and rstd by channel. Gradients: dw and db; total = dbias, dweight. */
cudaError_t tt__cuda_norm_stats(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                const tt__cuda_norm_room *room);
cudaError_t tt__cuda_norm_gradients(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                    const tt__cuda_norm_room *room);

/* Rows: make mean, rstd and y / dx. */
cudaError_t tt__cuda_norm_rows(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);
cudaError_t tt__cuda_norm_rows_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);

/* By channel: make y / dx, from sums (2,C) over `count` elements, or, if n->fixed, without them. */
cudaError_t tt__cuda_norm_channels(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n);
cudaError_t tt__cuda_norm_channels_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                            const double *sums, int64_t count);

/* Running statistics (C) of a dtype: make mean and rstd of them / move them. */
typedef struct tt__cuda_norm_running {
    void *m, *var;
    double *mean, *rstd;
    int64_t C, count;
    double eps, momentum;
} tt__cuda_norm_running;
cudaError_t tt__cuda_norm_given(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm_running *r);
cudaError_t tt__cuda_norm_move(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm_running *r);

/* ---- recurrent cells (cuda_rnn.cu) */

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

/* ---- the negative log likelihood and the mean squared error (cuda_losses.cu) */

/* Rows of classes: x, dx (R,V), t, share, g (R), w (V) or NULL. `loss` and g have one element for each row; for the
 * first two functions, one for all rows. */
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

/* a, b, da (n); `parts` blocks share the sum, through `scratch` (parts). */
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
