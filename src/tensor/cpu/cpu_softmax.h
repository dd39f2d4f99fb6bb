/* f32 softmaxes of the cpu: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_CPU_SOFTMAX_H
#define TT_TENSOR_CPU_CPU_SOFTMAX_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_softmax_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_log_softmax_f32(tt_tensor *y, const tt_tensor *x);
tt_status tt__cpu_log_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);
tt_status tt__cpu_cross_entropy_f32(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t);
tt_status tt__cpu_cross_entropy_backward_f32(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                             const tt_tensor *stats, const tt_tensor *g);

#endif
