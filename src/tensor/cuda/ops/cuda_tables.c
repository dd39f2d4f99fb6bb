/* The tables of kernels by dtype, filled once by the families. */
#include "tensor/cuda/ops/cuda_ops.h"

static tt__cuda_tables tables;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
    tt__cuda_pointwise_ops(&tables);
    tt__cuda_matmul_ops(&tables);
    tt__cuda_optim_ops(&tables);
    tt__cuda_conv_ops(&tables);
    tt__cuda_attention_ops(&tables);
    tt__cuda_losses_ops(&tables);
    tt__cuda_reduction_ops(&tables);
    tt__cuda_norm_ops(&tables);
    tt__cuda_index_ops(&tables);
    tt__cuda_rnn_ops(&tables);
}

const tt__kernels *const *tt__cuda_kernels(void) {
    static const tt__kernels *const by_dtype[TT__DTYPES] = {
        [TT_F32] = &tables.floats,   [TT_F64] = &tables.floats,   [TT_F16] = &tables.floats,
        [TT_BF16] = &tables.floats,  [TT_I64] = &tables.integers, [TT_I32] = &tables.integers,
        [TT_I16] = &tables.integers, [TT_I8] = &tables.integers,  [TT_U8] = &tables.integers,
        [TT_BOOL] = &tables.booleans};
    pthread_once(&once, fill_tables);
    return by_dtype;
}
