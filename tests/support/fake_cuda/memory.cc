/* Devices and their memory: host memory, which holds garbage until something is written to it. */
#include "memory.h"
#include "settings.h"

#include <cuda.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

enum { GRANULARITY = 2 << 20, DEVICES = 16 };

std::mutex mutex;
thread_local int current;
size_t taken[DEVICES];
std::map<CUmemGenericAllocationHandle, std::pair<int, size_t>> handles;
std::map<const char *, size_t> pinned;

int device_count() { return (int)fake_setting("FAKE_CUDA_DEVICES", 2); }
size_t device_memory() { return (size_t)fake_setting("FAKE_CUDA_MEMORY", 64) << 20; }
int driver_version() { return (int)fake_setting("FAKE_CUDA_DRIVER", 13000); }

} /* namespace */

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (driver_version() < 12000)
        return fake_error(cudaErrorInsufficientDriver);
    *count = device_count();
    if (visible && !*visible)
        *count = 0;
    for (const char *comma = visible; comma && *comma; comma = strchr(comma + 1, ','))
        *count = comma == visible ? 1 : *count + 1;
    return *count ? cudaSuccess : fake_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    if (fake_fails())
        return fake_error(cudaErrorInitializationError);
    if (device < 0 || device >= device_count())
        return fake_error(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int) {
    *value = (int)fake_setting("FAKE_CUDA_CAPABILITY", 9);
    return fake_fails() ? fake_error(cudaErrorInitializationError) : cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    std::lock_guard<std::mutex> held(mutex);
    *total = device_memory();
    *free_bytes = *total - taken[current];
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
           : error == cudaErrorLaunchFailure  ? "cudaErrorLaunchFailure"
                                              : "cudaError";
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorLaunchFailure  ? "unspecified launch failure"
                                              : "a failure";
}

/* ---- pinned memory ---- */

bool fake_is_pinned(const void *p) {
    std::lock_guard<std::mutex> held(mutex);
    auto after = pinned.upper_bound((const char *)p);
    if (after == pinned.begin())
        return false;
    auto it = std::prev(after);
    return (const char *)p < it->first + it->second;
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    if (fake_fails() || !(*p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)))
        return fake_error(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> held(mutex);
    pinned[(const char *)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    std::lock_guard<std::mutex> held(mutex);
    pinned.erase((const char *)p);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
    if (fake_fails())
        return fake_error(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> held(mutex);
    pinned[(const char *)p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
    std::lock_guard<std::mutex> held(mutex);
    return pinned.erase((const char *)p) ? cudaSuccess : fake_error(cudaErrorInvalidValue);
}

size_t fake_pinned_ranges() {
    std::lock_guard<std::mutex> held(mutex);
    return pinned.size();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p) {
    *attributes = cudaPointerAttributes();
    attributes->type = fake_is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

/* ---- virtual memory ---- */

CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *base = (CUdeviceptr)(uintptr_t)p;
    return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long) {
    static CUmemGenericAllocationHandle next = 1;
    std::lock_guard<std::mutex> held(mutex);
    if (bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_fails() || bytes > device_memory() - taken[prop->location.id])
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken[prop->location.id] += bytes;
    *handle = next++;
    handles[*handle] = {prop->location.id, bytes};
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    std::lock_guard<std::mutex> held(mutex);
    return handles.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = handles.find(handle);
    return it == handles.end() || it->second.second != bytes || at % GRANULARITY % 4096 ? CUDA_ERROR_INVALID_VALUE
                                                                                        : CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *, size_t) {
    if (mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE))
        return CUDA_ERROR_INVALID_VALUE;
    memset((void *)(uintptr_t)at, 0xff, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *,
                                       CUmemAllocationGranularity_flags) {
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/* ---- finding the driver's functions ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result) {
    static const std::map<std::string, void *> functions = {
        {"cuMemAddressReserve", (void *)cuMemAddressReserve},
        {"cuMemCreate", (void *)cuMemCreate},
        {"cuMemRelease", (void *)cuMemRelease},
        {"cuMemMap", (void *)cuMemMap},
        {"cuMemSetAccess", (void *)cuMemSetAccess},
        {"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity}};
    auto it = functions.find(symbol);
    *function = it == functions.end() ? nullptr : it->second;
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
