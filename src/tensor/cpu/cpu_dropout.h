/* Dropout of the cpu, f32: see kernels.h. */
#ifndef TT_TENSOR_CPU_CPU_DROPOUT_H
#define TT_TENSOR_CPU_CPU_DROPOUT_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_dropout_f32(tt_tensor *y, const tt_tensor *x, const tt__dropout *call);

#endif
