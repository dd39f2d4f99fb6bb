/* Attention in f32: see kernels_index.h. Blocks of rows of q, so that no more than BLOCK x S scores are in memory. */
#ifndef TT_TENSOR_CPU_CPU_ATTENTION_H
#define TT_TENSOR_CPU_CPU_ATTENTION_H

#include "tensor/kernels.h"

tt_status tt__cpu_attention_f32(tt_tensor *y, tt_tensor *stats, const tt__attention *in);
tt_status tt__cpu_attention_backward_f32(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                         const tt_tensor *g, const tt__attention *in);

#endif
