/* Copies of any type, by the size of its elements. */
#ifndef TT_TENSOR_CPU_CPU_COPY_H
#define TT_TENSOR_CPU_CPU_COPY_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_copy(tt_tensor *y, const tt_tensor *x);
/* Zeros are cleared bytes; other values are left to the plain loops. */
tt_status tt__cpu_fill(tt_tensor *y, double value);

#endif
