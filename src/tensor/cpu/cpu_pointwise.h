/* f32 kernels of the cpu for formulas: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_CPU_POINTWISE_H
#define TT_TENSOR_CPU_CPU_POINTWISE_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_unary_f32(tt_tensor *y, const tt_tensor *x, const tt__unary *call);
tt_status tt__cpu_unary_backward_f32(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call);
tt_status tt__cpu_binary_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call);
tt_status tt__cpu_binary_backward_f32(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                      const tt__binary *call, int input);

#endif
