/* The calls into oneDNN; one file hides the difference between its versions. */
#ifndef TT_TENSOR_CPU_ONEDNN_H
#define TT_TENSOR_CPU_ONEDNN_H

#include "tensor/kernels.h"

tt_status tt__onednn_matmul_f32(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta);

#endif
