/* Steps of optimizers: the loops of tensor/rules, whose elements are shared by a grid's threads. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels_optim.h"

namespace tt {

#define RULE_FIRST first_element()
#define RULE_STRIDE all_threads()
#define TT__RULE_LOOP "tensor/rules/adadelta_loop.h"
#include "tensor/cuda/kernels/cuda_rules.cuh"
#define TT__RULE_LOOP "tensor/rules/adagrad_loop.h"
#include "tensor/cuda/kernels/cuda_rules.cuh"
#define TT__RULE_LOOP "tensor/rules/adam_loop.h"
#include "tensor/cuda/kernels/cuda_rules.cuh"
#define TT__RULE_LOOP "tensor/rules/rmsprop_loop.h"
#include "tensor/cuda/kernels/cuda_rules.cuh"
#define TT__RULE_LOOP "tensor/rules/sgd_loop.h"
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

/* NULL: there is none. */
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
    case TT__RULE_LAMB:        /* cuda_lamb.cu */
    case TT__RULE_SPARSE_ADAM: /* cuda_optim_rows.cu */
    case TT__RULE_NONE:
        break;
    }
    return {NULL, NULL};
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_step_run(cudaStream_t stream, tt_dtype dtype, tt__optim_rule rule, const tt__cuda_step *step) {
    tt::rule_kernels kernels = tt::kernels_of_rule(rule);
    tt::rule_kernel kernel = dtype == TT_F32 ? kernels.f32 : dtype == TT_F64 ? kernels.f64 : NULL;
    return kernel ? tt::launch(kernel, tt::grid_for(step->update.n), stream, *step) : cudaErrorNotSupported;
}
}
