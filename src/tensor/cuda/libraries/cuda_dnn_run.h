/* cuDNN on one device: how it begins there, and how a plan runs. */
#ifndef TT_TENSOR_CUDA_CUDA_DNN_RUN_H
#define TT_TENSOR_CUDA_CUDA_DNN_RUN_H

#include "tensor/cuda/libraries/cuda_dnn_plan.h"

/* It lives as long as the process. */
typedef struct tt__dnn_device {
    bool usable;          /* false: the library works only without this device, or not at all */
    pthread_mutex_t lock; /* of plans; while a call is enqueued */
    tt__dnn_plans plans;
} tt__dnn_device;

/* Lock the device's cuDNN, which the first call begins, and unlock it. TT_ERR_UNSUPPORTED, without a recorded error: it
 * is not used. */
tt_status tt__dnn_lock(tt__cuda_state *state, tt__dnn_device **device);
void tt__dnn_unlock(tt__dnn_device *device);

/* Record that what `use` notes failed with this status. */
tt_status tt__dnn_fail(const tt__cuda_state *state, const tt__dnn_use *use, int status);

/* Let the handle enqueue where this thread does. */
int tt__dnn_use_stream(tt__dnn_use *use, cudaStream_t stream);

/* Enqueue a plan, with n pointers by name; those to values are read at once. */
int tt__dnn_execute(tt__dnn_use *use, const tt__dnn_plan *plan, int n, const int64_t *names, void *const *pointers,
                    void *workspace);

/* What that result means. TT_ERR_UNSUPPORTED, without a recorded error: the plan is refused from now on. */
tt_status tt__dnn_executed(const tt__cuda_state *state, const tt__dnn_use *use, tt__dnn_plan *plan, int result);

#endif
