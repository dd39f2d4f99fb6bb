/* Steps of optimizers: see cuda_kernels.h. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_OPTIM_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_OPTIM_H

#include "tensor/rules/rules.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An update whose arrays are the host's no more: `update` doesn't use its own pointers to them. */
typedef struct tt__cuda_step {
    tt__update update;
    double option[TT__OPTIM_OPTIONS];
    void *state[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
} tt__cuda_step;

/* Of f32 and f64, n > 0. */
cudaError_t tt__cuda_step_run(cudaStream_t stream, tt_dtype dtype, tt__rule rule, const tt__cuda_step *step);

#ifdef __cplusplus
}
#endif

#endif
