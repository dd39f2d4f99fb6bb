/* Kernels of normalisation: a part of the list in kernels.h. Tensors are contiguous and not empty; weight and bias may
 * be NULL (ones, zeros), and so may a gradient that is not wanted. Means and rstd, 1 / sqrt(variance + eps), are
 * f64. */
#ifndef TT_TENSOR_KERNELS_NORM_H
#define TT_TENSOR_KERNELS_NORM_H

#include "tensor/core/tensor.h"

/* Which elements of a row (R rows of n) have which weight: element i of row r has number
 * (r % groups) * (n / share) + i / share. */
typedef struct tt__row_norm {
    double eps;
    bool no_mean; /* the root mean square takes the place of the deviation */
    int64_t groups, share;
} tt__row_norm;

/* What backward reads. */
typedef struct tt__normed {
    const tt_tensor *g, *x, *mean, *rstd, *weight;
} tt__normed;

/* Batches are seen as (A,C,B): C channels, normalised over A and B; mean and rstd (C).
 * batch_norm_stats: of x, which selects the table. batch_norm_given: of running means and variances (C).
 * batch_norm_running: running += momentum (now - running), where now are the mean and the unbiased variance of `count`
 * elements a channel.
 * batch_norm: y = (x - mean) rstd weight + bias. Backward, by the dtype of n->g: dbias = sum of g, dweight = sum of g
 * (x - mean) rstd, dx = weight rstd (g - [dbias + (x - mean) rstd dweight] / (A B)), without [..] if `fixed`: mean and
 * rstd did not come from x. batch_norm_give: dx alone, where x is a part of what was normalised, `count` elements a
 * channel: sums f64 (2,C) are dbias and dweight over all of these.
 *
 * Rows: x (R,n), mean and rstd (R). row_norm: y = (x - mean) rstd weight + bias. Backward: dbias, dweight likewise; dx
 * = rstd (h - mean of h - (x - mean) rstd (mean of h (x - mean) rstd)), h = g weight; no_mean: without the mean of
 * h. */
#define TT__NORM_KERNELS(X)                                                                                          \
    X(batch_norm_stats, (const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd))                          \
    X(batch_norm_given, (const tt_tensor *m, const tt_tensor *var, double eps, tt_tensor *mean, tt_tensor *rstd))    \
    X(batch_norm_running, (tt_tensor * m, tt_tensor * var, const tt_tensor *mean, const tt_tensor *rstd, double eps, \
                           double momentum, int64_t count))                                                          \
    X(batch_norm, (tt_tensor * y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,                  \
                   const tt_tensor *weight, const tt_tensor *bias))                                                  \
    X(batch_norm_backward, (const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw, tt_tensor *db))           \
    X(batch_norm_give, (const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx))                   \
    X(row_norm, (tt_tensor * y, tt_tensor * mean, tt_tensor * rstd, const tt_tensor *x, const tt_tensor *weight,     \
                 const tt_tensor *bias, const tt__row_norm *norm))                                                   \
    X(row_norm_backward, (const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw, tt_tensor *db))

#endif
