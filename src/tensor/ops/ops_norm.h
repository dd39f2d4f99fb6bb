/* Normalisation, a part of ops.h (norm.c): see kernels_norm.h. Shapes are checked by the callers, layouts are any. */
#ifndef TT_TENSOR_OPS_NORM_H
#define TT_TENSOR_OPS_NORM_H

#include "tensor/kernels/kernels_norm.h"

/* Make the means, or the rstd, of `count` channels or rows, on x's device. */
tt_tensor *tt__norm_stats_beside(const char *who, const tt_tensor *x, int64_t count);

/* Return the distance from 1 to the next number of what a float type is computed in, f32 for 16 bits: the default eps
 * of rms_norm. */
double tt__dtype_epsilon(tt_dtype dtype);

/* x (N,C,...); mean and rstd f64 (C). */
tt_status tt__batch_norm_stats_out(const char *who, const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd);
tt_status tt__batch_norm_given_out(const char *who, const tt_tensor *m, const tt_tensor *var, double eps,
                                   tt_tensor *mean, tt_tensor *rstd);
/* Both are changed in place, which is a write that storages are told of. */
tt_status tt__batch_norm_running_(const char *who, tt_tensor *m, tt_tensor *var, const tt_tensor *mean,
                                  const tt_tensor *rstd, double eps, double momentum, int64_t count);
tt_status tt__batch_norm_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *mean,
                             const tt_tensor *rstd, const tt_tensor *weight, const tt_tensor *bias);
tt_status tt__batch_norm_backward_out(const char *who, const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw,
                                      tt_tensor *db);
/* The gradient of x, a part of the `count` elements a channel that were normalised together; sums: f64 (2,C). */
tt_status tt__batch_norm_give_out(const char *who, const tt__normed *n, const tt_tensor *sums, int64_t count,
                                  tt_tensor *dx);

/* x of any shape, seen as rows of as many elements as mean and rstd have not. */
tt_status tt__row_norm_out(const char *who, tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                           const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm);
tt_status tt__row_norm_backward_out(const char *who, const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx,
                                    tt_tensor *dw, tt_tensor *db);

#endif
