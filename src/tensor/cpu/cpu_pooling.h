/* Pooling of f32: see kernels.h for what each kernel does. */
#ifndef TT_TENSOR_CPU_CPU_POOLING_H
#define TT_TENSOR_CPU_CPU_POOLING_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_max_pool2d_f32(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool);
tt_status tt__cpu_max_pool2d_backward_f32(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                          const tt__pooling *pool);

#endif
