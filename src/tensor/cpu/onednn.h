/* The kernels that oneDNN runs: see kernels.h for what each does. */
#ifndef TT_TENSOR_CPU_ONEDNN_H
#define TT_TENSOR_CPU_ONEDNN_H

#include "tensor/kernels.h"

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

#endif
