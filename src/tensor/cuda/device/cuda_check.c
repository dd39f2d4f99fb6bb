/* CUDA's errors, a thread's current device, and the graph that it captures. */
#include "tensor/cuda/device/cuda_state.h"

#include <stdarg.h>
#include <unistd.h>

const tt__device_host *tt__cuda_host;

/* The process that has used CUDA; its children can't. */
static _Atomic pid_t user;
static _Thread_local int current = -1;

_Thread_local tt__cuda_graph *tt__cuda_capturing;

tt_status tt__cuda_check(cudaError_t error, const char *format, ...) {
    if (error == cudaSuccess)
        return TT_OK;
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    tt__cuda_host->vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    (void)cudaGetLastError(); /* clear the error */
    return tt__cuda_host->fail(error == cudaErrorMemoryAllocation ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                               "%s failed: %s (%s, CUDA error %d)", what, cudaGetErrorString(error),
                               cudaGetErrorName(error), (int)error);
}

tt_status tt__cuda_refuse(const tt__cuda_state *state, const char *format, ...) {
    char what[160];
    va_list arguments;
    if (!tt__cuda_captures(state))
        return TT_OK;
    va_start(arguments, format);
    tt__cuda_host->vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    return tt__cuda_host->refuse_capture(what, &state->device);
}

bool tt__cuda_is_used(void) { return user == getpid(); }

bool tt__cuda_is_forked(void) {
    const pid_t first = user;
    return first && first != getpid();
}

tt_status tt__cuda_check_forked(const char *name) {
    if (!tt__cuda_is_forked())
        return TT_OK;
    return tt__cuda_host->fail(TT_ERR_UNSUPPORTED,
                               "%s can't be used in this process (%d): its parent (%d) had used CUDA before fork(), "
                               "and CUDA does not work in such a child. Start children before the first use, or "
                               "let them exec()",
                               name, (int)getpid(), (int)user);
}

tt_status tt__cuda_check_process(const tt__cuda_state *state) {
    pid_t none = 0;
    if (atomic_compare_exchange_strong(&user, &none, getpid()))
        return TT_OK;
    return tt__cuda_check_forked(state->name);
}

tt_status tt__cuda_enter(const tt__cuda_state *state) {
    tt_status status = tt__cuda_check_process(state);
    if (status || current == state->index)
        return status;
    status = tt__cuda_check(cudaSetDevice(state->index), "choosing %s", state->name);
    if (!status)
        current = state->index;
    return status;
}

tt_status tt__cuda_driver_function(const char *name, void *function) {
    enum cudaDriverEntryPointQueryResult found;
    void *entry = NULL;
    tt_status status = tt__cuda_check(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found),
                                      "looking for the driver's %s()", name);
    if (!status && (found != cudaDriverEntryPointSuccess || !entry))
        status = tt__cuda_host->fail(TT_ERR_UNSUPPORTED,
                                     "the driver has no %s(): a driver for CUDA 12 or later is "
                                     "needed; nvidia-smi shows which one is installed",
                                     name);
    *(void **)function = entry;
    return status;
}
