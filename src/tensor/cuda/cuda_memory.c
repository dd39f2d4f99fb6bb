/* The range of addresses of a device, and copies from and to the host. */
#include "tensor/cuda/cuda_memory.h"

#include <cuda.h>
#include <string.h>

/* The driver's functions for virtual memory: the runtime has none. */
typedef CUresult (*reserve_function)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
typedef CUresult (*create_function)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                    unsigned long long);
typedef CUresult (*release_function)(CUmemGenericAllocationHandle);
typedef CUresult (*map_function)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
typedef CUresult (*access_function)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
typedef CUresult (*granularity_function)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);

static struct {
    reserve_function reserve;
    create_function create;
    release_function release;
    map_function map;
    access_function access;
    granularity_function granularity;
} driver;

/* Memory is taken from the driver in pieces of this size at least: a call takes about a millisecond. */
enum { PIECE = 32 << 20 };

static CUmemAllocationProp wanted_memory(const tt__cuda_state *state) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = state->index;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; /* so that NCCL and other ranks can map it */
    return prop;
}

/* Back more of the range. What is mapped keeps its memory after the handle is released. */
static bool back(tt__arena *arena, size_t bytes) {
    tt__cuda_state *state = arena->user;
    const CUmemAllocationProp prop = wanted_memory(state);
    CUdeviceptr at = (CUdeviceptr)(arena->base + arena->backed);
    CUmemGenericAllocationHandle handle;
    if (driver.create(&handle, bytes, &prop, 0))
        return false;
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver.map(at, bytes, 0, handle, 0);
    driver.release(handle);
    return !result && !driver.access(at, bytes, &access, 1);
}

static tt_status find_functions(void) {
    static const struct {
        const char *name;
        void *function;
    } all[] = {{"cuMemAddressReserve", &driver.reserve}, {"cuMemCreate", &driver.create},
               {"cuMemRelease", &driver.release},        {"cuMemMap", &driver.map},
               {"cuMemSetAccess", &driver.access},       {"cuMemGetAllocationGranularity", &driver.granularity}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_status status = tt__cuda_driver_function(all[i].name, all[i].function);
        if (status)
            return status;
    }
    return TT_OK;
}

tt_status tt__cuda_memory_begin(tt__cuda_state *state) {
    size_t free_bytes = 0, total = 0, granularity = 0;
    tt_status status = find_functions();
    if (!status)
        status = tt__cuda_check(cudaMemGetInfo(&free_bytes, &total), "asking for the memory of %s", state->name);
    if (status)
        return status;
    const CUmemAllocationProp prop = wanted_memory(state);
    CUdeviceptr base = 0;
    CUresult result = driver.granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    size_t step = granularity > PIECE ? granularity : PIECE, range = (total + step - 1) / step * step;
    if (!result)
        result = driver.reserve(&base, range, granularity, 0, 0);
    if (result)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no range of addresses for its %zu MiB of memory (CUDA error %d)",
                                   state->name, total >> 20, (int)result);
    state->arena = (tt__arena){.base = (uint64_t)base, .reserved = range, .step = step, .back = back, .user = state};
    return TT_OK;
}

/* ---- taking and giving ---- */

static tt_status fail_out_of_memory(const tt__cuda_state *state, size_t bytes) {
    const tt__arena *a = &state->arena;
    size_t free_bytes = 0, total = 0;
    (void)cudaMemGetInfo(&free_bytes, &total);
    return tt__cuda_host->fail(TT_ERR_MEMORY,
                               "%s is out of memory: %zu bytes were asked for; of its %zu MiB this process has %zu MiB "
                               "in %zu tensors (%zu MiB at most until now) and %zu MiB free in its cache, the largest "
                               "piece %zu MiB; %zu MiB are free on the device",
                               state->name, bytes, total >> 20, a->used >> 20, a->used_blocks, a->most_used >> 20,
                               (a->backed - a->used) >> 20, tt__arena_largest_free(a) >> 20, free_bytes >> 20);
}

void *tt__cuda_scratch(tt__cuda_state *state, size_t bytes) {
    if (tt__cuda_enter(state))
        return NULL;
    pthread_mutex_lock(&state->lock);
    uint64_t address = tt__arena_take(&state->arena, bytes);
    if (!address)
        fail_out_of_memory(state, bytes);
    pthread_mutex_unlock(&state->lock);
    return (void *)address;
}

void tt__cuda_scratch_free(tt__cuda_state *state, void *p) {
    if (!p)
        return;
    pthread_mutex_lock(&state->lock);
    tt__arena_give(&state->arena, (uint64_t)p);
    pthread_mutex_unlock(&state->lock);
}

/* ---- copies ---- */

tt_status tt__cuda_to_host(tt__cuda_state *state, void *host, const void *from, size_t bytes) {
    tt_status status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, state->stream),
                                "copying %zu bytes from %s", bytes, state->name);
    return status ? status : tt__cuda_wait(state);
}

tt_status tt__cuda_from_host(tt__cuda_state *state, void *to, const void *host, size_t bytes) {
    tt_status status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, state->stream),
                                "copying %zu bytes to %s", bytes, state->name);
    struct cudaPointerAttributes attributes;
    if (status || cudaPointerGetAttributes(&attributes, host))
        return status;
    /* Of memory that CUDA doesn't know the bytes have been taken; what is pinned is still being read. */
    return attributes.type == cudaMemoryTypeUnregistered ? TT_OK : tt__cuda_wait(state);
}

tt_status tt__cuda_wait(const tt__cuda_state *state) {
    tt_status status = tt__cuda_enter(state);
    return status ? status : tt__cuda_check(cudaStreamSynchronize(state->stream), "the work on %s", state->name);
}
