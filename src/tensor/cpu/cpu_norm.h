/* Normalisation of f32: see kernels.h for what each kernel does. */
#ifndef TT_TENSOR_CPU_CPU_NORM_H
#define TT_TENSOR_CPU_CPU_NORM_H

#include "tensor/kernels/kernels.h"

/* cpu_batch_norm.c */
tt_status tt__cpu_batch_norm_stats_f32(const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd);
tt_status tt__cpu_batch_norm_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                 const tt_tensor *weight, const tt_tensor *bias);
tt_status tt__cpu_batch_norm_backward_f32(const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw, tt_tensor *db);
tt_status tt__cpu_batch_norm_give_f32(const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx);

/* cpu_norm.c */
tt_status tt__cpu_row_norm_f32(tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                               const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm);
tt_status tt__cpu_row_norm_backward_f32(const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw,
                                        tt_tensor *db);

#endif
