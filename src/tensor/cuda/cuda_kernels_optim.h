/* Kernels on parameters and gradients of a CUDA device, as cuda_kernels.h says: optimizers' steps, looking through
 * gradients, sums over ranks. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_OPTIM_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_OPTIM_H

#include "tensor/cuda/cuda_kernels.h"
#include "tensor/device/device.h"
#include "tensor/rules/rules.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- steps of optimizers (cuda_optim.cu) */

/* An update and copies of its small arrays. A kernel can't read the host's arrays, to which `update` points. */
typedef struct tt__cuda_step {
    tt__update update;
    double option[TT__OPTIM_OPTIONS];
    void *state[TT__OPTIM_SLOTS];
    bool fresh[TT__OPTIM_SLOTS];
} tt__cuda_step;

/* The step's update, with pointers into the step. */
#ifdef __cplusplus
__host__ __device__
#endif
    static inline tt__update
    tt__cuda_update_of(const tt__cuda_step *step) {
    tt__update u = step->update;
    u.option = u.option_at ? u.option_at : step->option;
    if (u.count_at) {
        u.power[0] = u.count_at->power[0];
        u.power[1] = u.count_at->power[1];
        u.step = u.count_at->step;
    }
    u.state = step->state;
    u.fresh = step->fresh;
    return u;
}

/* Of f32 and f64, n > 0. cudaErrorNotSupported: another function runs the rule, or none does. */
cudaError_t tt__cuda_step_run(cudaStream_t stream, tt_dtype dtype, tt__optim_rule rule, const tt__cuda_step *step);

/* LAMB, both passes. `scratch`: room for tt__cuda_lamb_scratch() numbers, in which the norms are made. */
int64_t tt__cuda_lamb_scratch(int64_t n);
cudaError_t tt__cuda_lamb_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_step *step, double *scratch);

/* Rows `row` (n) of p and state, of `columns` elements; row i of g is the gradient of row row[i].
 * cudaErrorNotSupported: as above. */
typedef struct tt__cuda_row_step {
    tt__cuda_step step;
    const int64_t *row;
    int64_t n, columns;
} tt__cuda_row_step;
cudaError_t tt__cuda_row_step_run(cudaStream_t stream, tt_dtype dtype, tt__optim_rule rule,
                                  const tt__cuda_row_step *step);

/* ---- looking through gradients (cuda_grad.cu) */

/* Of f32 and f64: x (n), contiguous, n > 0. `parts` blocks share x, through `scratch` (parts). */
typedef struct tt__cuda_measure {
    const void *x;
    int64_t n, parts;
    double p, *scratch, *total;
} tt__cuda_measure;
cudaError_t tt__cuda_grad_measure(cudaStream_t stream, tt_dtype dtype, const tt__cuda_measure *m);

cudaError_t tt__cuda_grad_unscale(cudaStream_t stream, tt_dtype dtype, void *x, int64_t n, double factor,
                                  double *found);

/* ---- sums over the memory of several ranks (cuda_sharing.cu) */

/* For 2 to TT__DEVICE_PEERS ranks: see tt__device_sharing. */
cudaError_t tt__cuda_sum_peers(cudaStream_t stream, const tt__device_sum *sum);

#ifdef __cplusplus
}
#endif

#endif
