#include "tensor/cuda/libraries/cuda_dnn_run.h"

#include <stdlib.h>

static pthread_mutex_t dnn_lock = PTHREAD_MUTEX_INITIALIZER; /* of state->dnn */

tt_status tt__dnn_fail(const tt__cuda_state *state, const tt__dnn_use *use, int status) {
    return tt__cuda_host->fail(TT_ERR_SYSTEM,
                               "%s: cuDNN's %s() of %s failed: %s (status %d). TT_CUDA_DNN=own does without it",
                               state->name, use->function, use->object, use->dnn->GetErrorString(status), status);
}

/* ---- beginning ---- */

/* Its parts are missing or don't fit together, or it doesn't know this GPU or driver. */
static bool dnn_is_unusable(int status) { return status / 1000 == 1 || status / 1000 == 3; }

int tt__dnn_use_stream(tt__dnn_use *use, cudaStream_t stream) {
    if (use->stream == stream)
        return TT__DNN_OK;
    use->object = "a handle";
    use->function = "cudnnSetStream";
    int status = use->dnn->SetStream(use->handle, stream);
    use->stream = status ? NULL : stream;
    return status;
}

static int dnn_handle(tt__dnn_use *use, const tt__cuda_state *state) {
    use->object = "a handle";
    use->function = "cudnnCreate";
    int status = use->dnn->Create(&use->handle);
    if (status)
        return status;
    status = tt__dnn_use_stream(use, state->stream);
    if (status)
        use->dnn->Destroy(use->handle);
    return status;
}

static tt_status begin_dnn(tt__cuda_state *state, const tt__dnn *dnn) {
    tt__dnn_device *device = calloc(1, sizeof *device);
    if (!device)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no memory for cuDNN's plans", state->name);
    tt__dnn_use *use = &device->plans.use;
    use->dnn = dnn;
    int result = dnn_handle(use, state);
    if (result && (dnn->must || !dnn_is_unusable(result))) {
        tt_status status = tt__dnn_fail(state, use, result);
        free(device);
        return status;
    }
    if (result)
        tt__cuda_host->log(TT_LOG_WARNING,
                           "%s: Tutti's own kernels convolve and attend, since cuDNN's %s() failed: %s (status %d)",
                           state->name, use->function, dnn->GetErrorString(result), result);
    device->usable = !result;
    pthread_mutex_init(&device->lock, NULL);
    state->dnn = device;
    return TT_OK;
}

tt_status tt__dnn_lock(tt__cuda_state *state, tt__dnn_device **device) {
    const tt__dnn *dnn;
    tt_status status = tt__dnn_find(&dnn);
    if (!status)
        status = tt__cuda_enter(state);
    if (status || !dnn)
        return status ? status : TT_ERR_UNSUPPORTED;
    pthread_mutex_lock(&dnn_lock);
    status = state->dnn ? TT_OK : begin_dnn(state, dnn);
    pthread_mutex_unlock(&dnn_lock);
    if (status || !state->dnn->usable)
        return status ? status : TT_ERR_UNSUPPORTED;
    *device = state->dnn;
    pthread_mutex_lock(&(*device)->lock);
    return TT_OK;
}

void tt__dnn_unlock(tt__dnn_device *device) { pthread_mutex_unlock(&device->lock); }

/* ---- running ---- */

int tt__dnn_execute(tt__dnn_use *use, const tt__dnn_plan *plan, int n, const int64_t *names, void *const *pointers,
                    void *workspace) {
    const tt__dnn_attribute all[] = {{TT__DNN_PACK_NAMES, TT__DNN_AS_INT64, n, names},
                                     {TT__DNN_PACK_POINTERS, TT__DNN_AS_POINTER, n, pointers},
                                     {TT__DNN_PACK_WORKSPACE, TT__DNN_AS_POINTER, 1, &workspace}};
    tt__dnn_object pack;
    int status = tt__dnn_make(use, TT__DNN_PACK, 3, all, &pack);
    if (!status) {
        status = use->dnn->BackendExecute(use->handle, plan->plan, pack);
        use->function = "cudnnBackendExecute";
        use->object = "a plan";
    }
    tt__dnn_end(use, pack);
    return status;
}

tt_status tt__dnn_executed(const tt__cuda_state *state, const tt__dnn_use *use, tt__dnn_plan *plan, int result) {
    plan->refused = result / 1000 == TT__DNN_NOT_SUPPORTED / 1000;
    return !result ? TT_OK : plan->refused ? TT_ERR_UNSUPPORTED : tt__dnn_fail(state, use, result);
}
