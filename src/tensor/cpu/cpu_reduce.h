/* f32 sums and losses of the cpu: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_CPU_REDUCE_H
#define TT_TENSOR_CPU_CPU_REDUCE_H

#include "tensor/kernels/kernels.h"

/* Is x contiguous, and y, seen in x's shape, its last dimensions in row-major order, repeated along the first ones?
 * Then *cols is their size. */
bool tt__sums_leading(const tt_tensor *y, const tt_tensor *x, int64_t *cols);

tt_status tt__cpu_sum_f32(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_mse_loss_f32(tt_tensor *loss, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_mse_loss_backward_f32(tt_tensor *da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g);

#endif
