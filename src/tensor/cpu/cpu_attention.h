/* Attention: see kernels.h. Blocks of rows of q, so that no more than BLOCK x S scores are in memory. */
#ifndef TT_TENSOR_CPU_CPU_ATTENTION_H
#define TT_TENSOR_CPU_CPU_ATTENTION_H

#include "tensor/kernels/kernels.h"

/* Of f32; of bf16 where tt__onednn_takes_bf16(): its factors are bf16, sums and softmax f32. TT_ERR_UNSUPPORTED, and no
 * error is recorded: oneDNN has no such product of bf16. */
tt_status tt__cpu_attention(tt_tensor *y, tt_tensor *stats, const tt__attention *in);
tt_status tt__cpu_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                     const tt_tensor *g, const tt__attention *in);

#endif
