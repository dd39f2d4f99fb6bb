/* Recurrent cells in f32: see kernels.h. */
#ifndef TT_TENSOR_CPU_CPU_RNN_H
#define TT_TENSOR_CPU_CPU_RNN_H

#include "tensor/kernels/kernels.h"

tt_status tt__cpu_rnn_cell_f32(tt_tensor *y, const tt__cell_step *step);
tt_status tt__cpu_rnn_cell_backward_f32(tt_tensor *dx, const tt__cell_grad *grad);

#endif
