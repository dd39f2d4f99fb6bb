/* Rows of contiguous tensors, found by index. */
#ifndef TT_TENSOR_CPU_CPU_INDEX_H
#define TT_TENSOR_CPU_CPU_INDEX_H

#include "tensor/kernels/kernels.h"

/* Every element type / f32. Others and other layouts are left to the plain loops. */
tt_status tt__cpu_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);
tt_status tt__cpu_index_add_f32(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index);

#endif
