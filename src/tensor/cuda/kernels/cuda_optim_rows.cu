/* Steps on the rows that sparse gradients are of: a block for each row. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels_optim.h"

namespace tt {

#define RULE_FIRST (int64_t) threadIdx.x
#define RULE_STRIDE (int64_t) blockDim.x
#include "tensor/cuda/kernels/cuda_rules.cuh"

template <class T> __device__ tt__update row_update(const tt__cuda_row_step &s, int64_t i, void **state) {
    const int64_t at = s.row[i] * s.columns;
    tt__update u = tt__cuda_update_of(&s.step);
    for (int k = 0; k < TT__OPTIM_SLOTS; k++)
        state[k] = s.step.state[k] ? (T *)s.step.state[k] + at : NULL;
    u.n = s.columns;
    u.p = (T *)u.p + at;
    u.g = (const T *)u.g + i * s.columns;
    u.state = state;
    return u;
}

#define ROW_KERNEL(rule, type, real)                            \
    __global__ void rule##_rows_##type(tt__cuda_row_step s) {   \
        for (int64_t i = blockIdx.x; i < s.n; i += gridDim.x) { \
            void *state[TT__OPTIM_SLOTS];                       \
            const tt__update u = row_update<real>(s, i, state); \
            rule##_##type(&u);                                  \
        }                                                       \
    }
ROW_KERNEL(sgd, f32, float)
ROW_KERNEL(sgd, f64, double)
ROW_KERNEL(adagrad, f32, float)
ROW_KERNEL(adagrad, f64, double)
ROW_KERNEL(sparse_adam, f32, float)
ROW_KERNEL(sparse_adam, f64, double)

typedef void (*row_kernel)(tt__cuda_row_step s);

/* Return the kernel of a rule; NULL: there is none. */
static row_kernel row_kernel_of(tt__optim_rule rule, bool f32) {
    if (rule == TT__RULE_SGD)
        return f32 ? sgd_rows_f32 : sgd_rows_f64;
    if (rule == TT__RULE_ADAGRAD)
        return f32 ? adagrad_rows_f32 : adagrad_rows_f64;
    return rule != TT__RULE_SPARSE_ADAM ? NULL : f32 ? sparse_adam_rows_f32 : sparse_adam_rows_f64;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_row_step_run(cudaStream_t stream, tt_dtype dtype, tt__optim_rule rule,
                                  const tt__cuda_row_step *step) {
    const tt::row_kernel kernel = tt::row_kernel_of(rule, dtype == TT_F32);
    if (!kernel)
        return cudaErrorNotSupported;
    return step->n && step->columns ? tt::launch(kernel, tt::grid_of(step->n), stream, *step) : cudaSuccess;
}
}
