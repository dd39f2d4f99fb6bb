/* A device's tables of kernels, which files of families (cuda_ops_FAMILY.c) fill; and their helpers, which turn tensors
 * into walks and plain pointers, and enqueue work. */
#ifndef TT_TENSOR_CUDA_CUDA_OPS_H
#define TT_TENSOR_CUDA_CUDA_OPS_H

#include "tensor/cuda/device/cuda_state.h"
#include "tensor/kernels/kernels.h"

/* One table for all types of float, one for integers, and one for bool. */
typedef struct tt__cuda_tables {
    tt__kernels floats, integers, booleans;
} tt__cuda_tables;

/* The families; cuda_tables.c asks each to fill the tables. */
void tt__cuda_pointwise_ops(tt__cuda_tables *t);
void tt__cuda_matmul_ops(tt__cuda_tables *t);
void tt__cuda_optim_ops(tt__cuda_tables *t);
void tt__cuda_conv_ops(tt__cuda_tables *t);
void tt__cuda_attention_ops(tt__cuda_tables *t);
void tt__cuda_losses_ops(tt__cuda_tables *t);
void tt__cuda_reduction_ops(tt__cuda_tables *t);
void tt__cuda_norm_ops(tt__cuda_tables *t);
void tt__cuda_index_ops(tt__cuda_tables *t);
void tt__cuda_rnn_ops(tt__cuda_tables *t);

/* ---- helpers of the families (cuda_enqueue.c) */

/* Record a failure to enqueue kernel "sum" of x's type, if `error` is one. */
tt_status tt__cuda_done(cudaError_t error, const tt_tensor *x, const char *kernel);

/* Enqueue `call`, an expression with `stream`, on x's device, and return its status. */
#define TT__CUDA_ENQUEUE(x, kernel, call)                        \
    do {                                                         \
        tt_status enter_status = tt__cuda_enter(tt__cuda_of(x)); \
        if (enter_status)                                        \
            return enter_status;                                 \
        cudaStream_t stream = tt__cuda_stream(tt__cuda_of(x));   \
        return tt__cuda_done(call, x, kernel);                   \
    } while (0)

/* The size of an element by dtype. */
extern const size_t tt__cuda_element_size[TT__DTYPES];

/* Make a walk of an iteration of the library's over these tensors. */
tt__walk tt__cuda_walk_of(const tt__iter *it, const tt_tensor *const *tensors);

/* Walk over tensors of one shape, in the order of the first one's memory. */
tt__walk tt__cuda_walk_over(int n, const tt_tensor *const *tensors);
#define TT__CUDA_WALK(...)                                                                      \
    tt__cuda_walk_over((int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)), \
                       (const tt_tensor *[]){__VA_ARGS__})

/* Some dimensions of x alone, in order: those along which y repeats (`repeats`), or the others. */
tt_tensor tt__cuda_dims_of(const tt_tensor *x, const tt_tensor *y, bool repeats);

#endif
