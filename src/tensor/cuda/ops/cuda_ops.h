/* The families of a device's functions, each in a file, cuda_ops_FAMILY.c, that puts them into the tables. */
#ifndef TT_TENSOR_CUDA_CUDA_OPS_H
#define TT_TENSOR_CUDA_CUDA_OPS_H

#include "tensor/cuda/ops/cuda_enqueue.h"

/* Of all types of float, of integers, and of bool. */
typedef struct tt__cuda_tables {
    tt__kernels floats, integers, booleans;
} tt__cuda_tables;

/* The families: what cuda_tables.c asks to fill the tables. */
void tt__cuda_pointwise_ops(tt__cuda_tables *t);
void tt__cuda_reduce_ops(tt__cuda_tables *t);
void tt__cuda_matmul_ops(tt__cuda_tables *t);
void tt__cuda_rows_ops(tt__cuda_tables *t);
void tt__cuda_optim_ops(tt__cuda_tables *t);
void tt__cuda_conv_ops(tt__cuda_tables *t);
void tt__cuda_attention_ops(tt__cuda_tables *t);
void tt__cuda_losses_ops(tt__cuda_tables *t);
void tt__cuda_reduction_ops(tt__cuda_tables *t);
void tt__cuda_norm_ops(tt__cuda_tables *t);
void tt__cuda_index_ops(tt__cuda_tables *t);
void tt__cuda_choice_ops(tt__cuda_tables *t);
void tt__cuda_rnn_ops(tt__cuda_tables *t);
void tt__cuda_grad_ops(tt__cuda_tables *t);

#endif
