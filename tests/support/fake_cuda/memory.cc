/* Devices and their memory: host memory, which holds garbage until something is written to it. */
#include "memory.h"
#include "graph.h"
#include "settings.h"
#include "stream.h"

#include <csignal>
#include <cuda.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

int fake_device_count() { return (int)fake_setting("FAKE_CUDA_DEVICES", 2); }

namespace {

enum { DEVICES = 16 };

std::mutex mutex;
thread_local int current;
/* They are never destroyed: streams' threads use them until the process has ended. */
auto &pinned = *new std::map<const char *, size_t>;
auto &used = *new std::multiset<const char *>; /* by copies under way */
size_t registered;                             /* of the pinned ranges: cudaHostRegister()'s */

int driver_version() { return (int)fake_setting("FAKE_CUDA_DRIVER", 13000); }

bool count_visible(int *count) {
    *count = 0;
    while (*count < DEVICES && fake_physical_device(*count) >= 0)
        ++*count;
    return *count > 0;
}

/* Has another process begun the driver, whose child this is? There nothing works. */
bool is_forked() {
    static std::atomic<pid_t> first{0};
    pid_t none = 0;
    return !first.compare_exchange_strong(none, getpid()) && none != getpid();
}

/* Device i of the machine is 0000:N0:00.0 with N = i + 1. */
int bus_of(int device) { return (fake_physical_device(device) + 1) << 4; }

void write_uuid(char *bytes, int device) {
    for (int i = 0; i < 16; i++)
        bytes[i] = (char)(i * 17 + fake_physical_device(device));
}

} /* namespace */

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    if (driver_version() < 12000)
        return fake_error(cudaErrorInsufficientDriver);
    if (fake_setting("FAKE_CUDA_DIE", 0))
        raise(SIGKILL);
    if (is_forked())
        return fake_error(cudaErrorInitializationError);
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    return count_visible(count) ? cudaSuccess : fake_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    *prop = cudaDeviceProp();
    snprintf(prop->name, sizeof prop->name, "Fake GPU %d", fake_physical_device(device));
    write_uuid(prop->uuid.bytes, device);
    prop->totalGlobalMem = fake_device_memory();
    prop->major = 9;
    prop->multiProcessorCount = 132;
    prop->pciBusID = bus_of(device);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (is_forked() || fake_fails())
        return fake_error(cudaErrorInitializationError);
    if (device < 0 || device >= fake_device_count())
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
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    *total = fake_device_memory();
    *free_bytes = *total - fake_memory_taken(current);
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

fake_use::fake_use(const void *at) : p((const char *)at) {
    std::lock_guard<std::mutex> held(mutex);
    used.insert(p);
}

fake_use::~fake_use() {
    std::lock_guard<std::mutex> held(mutex);
    used.erase(used.find(p));
}

/* Forget pinned memory; false: there is none at p. */
static bool forget_pinned(const char *p) {
    std::lock_guard<std::mutex> held(mutex);
    auto range = pinned.find(p);
    if (range == pinned.end())
        return false;
    auto first = used.lower_bound(p);
    if (first != used.end() && *first < p + range->second) {
        fprintf(stderr, "fake CUDA: %zu pinned bytes are given back while a copy uses them\n", range->second);
        abort();
    }
    pinned.erase(range);
    return true;
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    if (fake_capture_forbids())
        return fake_error(cudaErrorStreamCaptureUnsupported);
    if (fake_fails() || !(*p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)))
        return fake_error(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> held(mutex);
    pinned[(const char *)*p] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
    forget_pinned((const char *)p);
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
    if (fake_capture_forbids())
        return fake_error(cudaErrorStreamCaptureUnsupported);
    if (fake_fails() || !fake_setting("FAKE_CUDA_PINS", 1))
        return fake_error(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> held(mutex);
    pinned[(const char *)p] = bytes;
    registered++;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
    if (!forget_pinned((const char *)p))
        return fake_error(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> held(mutex);
    registered--;
    return cudaSuccess;
}

size_t fake_pinned_ranges() {
    std::lock_guard<std::mutex> held(mutex);
    return registered;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p) {
    *attributes = cudaPointerAttributes();
    attributes->type = fake_is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

/* ---- the driver's devices ---- */

CUresult cuInit(unsigned) {
    int count;
    if (fake_setting("FAKE_CUDA_DIE", 0))
        raise(SIGKILL);
    if (is_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_fails() || driver_version() <= 0)
        return CUDA_ERROR_UNKNOWN;
    return count_visible(&count) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version) {
    *version = driver_version();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    count_visible(count);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int index) {
    *device = index;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    write_uuid(uuid->bytes, device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device) {
    snprintf(text, (size_t)size, "0000:%02X:00.0", bus_of(device)); /* the driver's letters are large */
    return CUDA_SUCCESS;
}

/* ---- finding the driver's functions ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result) {
    static const std::map<std::string, void *> functions = {
        {"cuMemAddressReserve", (void *)cuMemAddressReserve},
        {"cuMemAddressFree", (void *)cuMemAddressFree},
        {"cuMemCreate", (void *)cuMemCreate},
        {"cuMemRelease", (void *)cuMemRelease},
        {"cuMemMap", (void *)cuMemMap},
        {"cuMemUnmap", (void *)cuMemUnmap},
        {"cuMemSetAccess", (void *)cuMemSetAccess},
        {"cuMemRetainAllocationHandle", (void *)cuMemRetainAllocationHandle},
        {"cuMemExportToShareableHandle", (void *)cuMemExportToShareableHandle},
        {"cuMemImportFromShareableHandle", (void *)cuMemImportFromShareableHandle},
        {"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity}};
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    auto it = functions.find(symbol);
    *function = it == functions.end() ? nullptr : it->second;
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
