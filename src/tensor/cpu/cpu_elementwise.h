/* f32 kernels of the cpu: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_CPU_ELEMENTWISE_H
#define TT_TENSOR_CPU_CPU_ELEMENTWISE_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_add_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_sub_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_mul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b);
tt_status tt__cpu_scale_f32(tt_tensor *y, const tt_tensor *x, double factor);
tt_status tt__cpu_relu_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_relu_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

#endif
