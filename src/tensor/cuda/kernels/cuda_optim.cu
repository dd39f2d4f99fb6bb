/* Steps of optimizers: the loops of tensor/rules, whose elements are shared by a grid's threads. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels_optim.h"

namespace tt {

#define RULE_FIRST first_element()
#define RULE_STRIDE all_threads()
#include "tensor/cuda/kernels/cuda_rules.cuh"

/* A kernel of each rule, for a type. */
#define RULE_KERNEL(rule)                               \
    __global__ void rule##_kernel(tt__cuda_step step) { \
        tt__update u = tt__cuda_update_of(&step);       \
        rule(&u);                                       \
    }
#define RULE_KERNELS(type)      \
    RULE_KERNEL(sgd_##type)     \
    RULE_KERNEL(adam_##type)    \
    RULE_KERNEL(adamw_##type)   \
    RULE_KERNEL(rmsprop_##type) \
    RULE_KERNEL(adagrad_##type) \
    RULE_KERNEL(adadelta_##type)
RULE_KERNELS(f32)
RULE_KERNELS(f64)

typedef void (*rule_kernel)(tt__cuda_step step);

struct rule_kernels {
    rule_kernel f32, f64;
};

/* Return the kernels of a rule; NULL: there are none. */
static rule_kernels kernels_of_rule(tt__optim_rule rule) {
    switch (rule) {
    case TT__RULE_SGD:
        return {sgd_f32_kernel, sgd_f64_kernel};
    case TT__RULE_ADAM:
        return {adam_f32_kernel, adam_f64_kernel};
    case TT__RULE_ADAMW:
        return {adamw_f32_kernel, adamw_f64_kernel};
    case TT__RULE_RMSPROP:
        return {rmsprop_f32_kernel, rmsprop_f64_kernel};
    case TT__RULE_ADAGRAD:
        return {adagrad_f32_kernel, adagrad_f64_kernel};
    case TT__RULE_ADADELTA:
        return {adadelta_f32_kernel, adadelta_f64_kernel};
    case TT__RULE_LAMB:        /* tt__cuda_lamb_run() */
    case TT__RULE_SPARSE_ADAM: /* cuda_optim_rows.cu */
    case TT__RULE_NONE:
        break;
    }
    return {NULL, NULL};
}

/* ---- LAMB: the moments and the norms of parameters and directions, then the step. What one pass leaves to the next
 * stays on the device. ---- */

/* Sums of a block go to parts (blocks, TT__RULE_SUMS). */
__device__ inline void store_lamb_sums(const double *sums, double *parts) {
    for (int k = 0; k < TT__RULE_SUMS; k++) {
        const double sum = block_reduce(sums[k], join_sum());
        if (threadIdx.x == 0)
            parts[blockIdx.x * TT__RULE_SUMS + k] = sum;
    }
}

#define LAMB_KERNELS(type)                                                          \
    __global__ void lamb_measure_kernel_##type(tt__cuda_step step, double *parts) { \
        double sums[TT__RULE_SUMS] = {0};                                           \
        tt__update u = tt__cuda_update_of(&step);                                   \
        u.sums = sums;                                                              \
        lamb_measure_##type(&u);                                                    \
        store_lamb_sums(sums, parts);                                               \
    }                                                                               \
    __global__ void lamb_kernel_##type(tt__cuda_step step, const double *ratio) {   \
        tt__update u = tt__cuda_update_of(&step);                                   \
        u.ratio = *ratio;                                                           \
        lamb_##type(&u);                                                            \
    }
LAMB_KERNELS(f32)
LAMB_KERNELS(f64)

__global__ void lamb_ratio_of_parts(tt__cuda_step step, const double *parts, int64_t n, double *ratio) {
    double sums[TT__RULE_SUMS] = {0};
    for (int k = 0; k < TT__RULE_SUMS; k++) {
        for (int64_t i = threadIdx.x; i < n; i += THREADS)
            sums[k] += parts[i * TT__RULE_SUMS + k];
        sums[k] = block_reduce(sums[k], join_sum());
    }
    if (threadIdx.x == 0)
        *ratio = TT__LAMB_RATIO(step.option, sums[0], sums[1]);
}

typedef void (*lamb_measure_fn)(tt__cuda_step step, double *parts);
typedef void (*lamb_step_fn)(tt__cuda_step step, const double *ratio);

static cudaError_t lamb_run(cudaStream_t stream, lamb_measure_fn measure, lamb_step_fn take, const tt__cuda_step *step,
                            double *scratch) {
    const int64_t blocks = grid_for(step->update.n);
    double *parts = scratch + 1;
    cudaError_t error = launch_blocks(measure, blocks, stream, *step, parts);
    error = error ? error : launch_blocks(lamb_ratio_of_parts, 1, stream, *step, parts, blocks, scratch);
    return error ? error : launch(take, blocks, stream, *step, scratch);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_step_run(cudaStream_t stream, tt_dtype dtype, tt__optim_rule rule, const tt__cuda_step *step) {
    tt::rule_kernels kernels = tt::kernels_of_rule(rule);
    tt::rule_kernel kernel = dtype == TT_F32 ? kernels.f32 : dtype == TT_F64 ? kernels.f64 : NULL;
    return kernel ? tt::launch(kernel, tt::grid_for(step->update.n), stream, *step) : cudaErrorNotSupported;
}

int64_t tt__cuda_lamb_scratch(int64_t n) { return 1 + TT__RULE_SUMS * tt::grid_for(n); }

cudaError_t tt__cuda_lamb_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_step *step, double *scratch) {
    if (dtype == TT_F32)
        return tt::lamb_run(stream, tt::lamb_measure_kernel_f32, tt::lamb_kernel_f32, step, scratch);
    return tt::lamb_run(stream, tt::lamb_measure_kernel_f64, tt::lamb_kernel_f64, step, scratch);
}
}
