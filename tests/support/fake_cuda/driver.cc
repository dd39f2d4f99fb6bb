/* The driver's contexts, streams and events: the runtime's, with a current context that must be chosen. */
#include "memory.h"
#include "mutant.h"
#include "settings.h"
#include "stream.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

struct fake_context {
    std::atomic<int> device, retained; /* CUDA's own calls are thread-safe */
};

static fake_context contexts[16];
static thread_local std::vector<fake_context *> stack;

int fake_context_device() { return stack.empty() ? -1 : stack.back()->device.load(); }

/* Of calls that belong to the current context. */
static CUresult in_context(cudaError_t error) {
    return stack.empty() ? CUDA_ERROR_INVALID_CONTEXT : error ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "a failure";
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = &contexts[device];
    contexts[device].device = device;
    contexts[device].retained++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return contexts[device].retained-- > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    stack.push_back(context);
    return context->retained > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (stack.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return in_context(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    fake_stream_detach(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    return in_context(fake_stream_wait(stream, event, FAKE_PLANTED(FAKE_STREAM_WAIT)));
}

CUresult cuEventCreate(CUevent *event, unsigned flags) { return in_context(cudaEventCreateWithFlags(event, flags)); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return in_context(fake_event_record(event, stream, __builtin_return_address(0)));
}

CUresult cuEventQuery(CUevent event) {
    const bool planted = FAKE_PLANTED(FAKE_EVENT_QUERY);
    return stack.empty()                                     ? CUDA_ERROR_INVALID_CONTEXT
           : fake_event_query(event, planted) == cudaSuccess ? CUDA_SUCCESS
                                                             : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    cudaError_t error = cudaEventElapsedTime(ms, from, to);
    return stack.empty() ? CUDA_ERROR_INVALID_CONTEXT : (CUresult)error; /* the same numbers */
}

CUresult cuEventDestroy_v2(CUevent event) {
    cudaEventDestroy(event);
    return CUDA_SUCCESS;
}

/* Memory of the host is unknown, as where nobody has registered it; FAKE_CUDA_ANY_MEMORY: it is cuda:0's. */
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr memory) {
    static const bool any = fake_setting("FAKE_CUDA_ANY_MEMORY", 0);
    int device = any ? 0 : fake_device_of(memory);
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)value = attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? device : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    void *p = malloc(bytes);
    *memory = (CUdeviceptr)(size_t)p;
    return p && !stack.empty() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    free((void *)(size_t)memory);
    return CUDA_SUCCESS;
}
