/* Virtual memory of devices: pieces are memory of the host that other processes can map, at the addresses that were
 * reserved for them. */
#include "graph.h"
#include "memory.h"
#include "settings.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

namespace {

enum { GRANULARITY = 2 << 20, DEVICES = 16 };

std::mutex mutex;
size_t taken[DEVICES];
struct chunk {
    int device; /* -1: another process's memory, which counts there */
    size_t bytes;
    int fd;
    int holders;          /* of the handle */
    bool mapped, written; /* written: it holds something */
};
/* They are never destroyed: streams' threads use them until the process has ended. */
auto &handles = *new std::map<CUmemGenericAllocationHandle, chunk>;
auto &mapped = *new std::map<CUdeviceptr, CUmemGenericAllocationHandle>;
CUmemGenericAllocationHandle last_handle;

/* 3 or more, so that no program's output comes here. */
int high(int fd) {
    if (fd < 0 || fd > 2)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return higher;
}

int memory_of(size_t bytes) {
    int fd = high(memfd_create("fake-cuda", MFD_CLOEXEC));
    if (fd < 0 || !ftruncate(fd, (off_t)bytes))
        return fd;
    close(fd);
    return -1;
}

/* Memory is free again when its handle is released and nothing maps it. */
void give_if_unused(CUmemGenericAllocationHandle handle) {
    const chunk &c = handles[handle];
    if (c.holders || c.mapped)
        return;
    if (c.device >= 0)
        taken[c.device] -= c.bytes;
    close(c.fd);
    handles.erase(handle);
}

/* The piece that is mapped at p; end(): none is. */
std::map<CUdeviceptr, CUmemGenericAllocationHandle>::iterator mapped_at(CUdeviceptr p) {
    auto it = mapped.upper_bound(p);
    if (it == mapped.begin())
        return mapped.end();
    --it;
    return p - it->first < handles[it->second].bytes ? it : mapped.end();
}

} /* namespace */

size_t fake_device_memory() { return (size_t)fake_setting("FAKE_CUDA_MEMORY", 64) << 20; }

size_t fake_memory_taken(int device) {
    std::lock_guard<std::mutex> held(mutex);
    return taken[device];
}

int fake_device_of(CUdeviceptr p) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = mapped_at(p);
    return it == mapped.end() ? -1 : handles[it->second].device;
}

/* ---- addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *base, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    if (fake_fails())
        return CUDA_ERROR_UNKNOWN;
    void *p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *base = (CUdeviceptr)(uintptr_t)p;
    return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes) {
    return munmap((void *)(uintptr_t)base, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *,
                                       CUmemAllocationGranularity_flags) {
    *granularity = GRANULARITY;
    return fake_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* ---- pieces ---- */

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long) {
    if (fake_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> held(mutex);
    if (bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_fails() || bytes > fake_device_memory() - taken[prop->location.id])
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memory_of(bytes);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken[prop->location.id] += bytes;
    *handle = ++last_handle;
    handles[*handle] = {prop->location.id, bytes, fd, 1, false, false};
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = handles.find(handle);
    if (it == handles.end() || !it->second.holders)
        return CUDA_ERROR_INVALID_VALUE;
    it->second.holders--;
    give_if_unused(handle);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
    if (fake_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> held(mutex);
    if (fake_fails())
        return CUDA_ERROR_UNKNOWN;
    auto it = handles.find(handle);
    if (it == handles.end() || it->second.bytes != bytes || at % 4096 || mapped_at(at) != mapped.end() ||
        mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, it->second.fd, 0) == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    it->second.mapped = true;
    mapped[at] = handle;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
    if (fake_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> held(mutex);
    auto it = mapped.find(at);
    if (it == mapped.end() || handles[it->second].bytes != bytes ||
        mmap((void *)(uintptr_t)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
            MAP_FAILED) /* who still uses it crashes */
        return CUDA_ERROR_INVALID_VALUE;
    handles[it->second].mapped = false;
    give_if_unused(it->second);
    mapped.erase(it);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *, size_t) {
    if (fake_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (fake_fails())
        return CUDA_ERROR_UNKNOWN;
    std::lock_guard<std::mutex> held(mutex);
    auto it = mapped.find(at);
    if (it == mapped.end() || mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE))
        return CUDA_ERROR_INVALID_VALUE;
    if (!handles[it->second].written)
        memset((void *)(uintptr_t)at, 0xff, bytes);
    handles[it->second].written = true;
    return CUDA_SUCCESS;
}

/* ---- for other processes ---- */

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *p) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = mapped_at((CUdeviceptr)(uintptr_t)p);
    if (it == mapped.end() || fake_fails())
        return CUDA_ERROR_INVALID_VALUE;
    handles[it->second].holders++;
    *handle = it->second;
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_SHARES=0: as where a driver or a container forbids it. */
CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                                      unsigned long long) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = handles.find(handle);
    if (it == handles.end() || fake_fails() || !fake_setting("FAKE_CUDA_SHARES", 1))
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = fcntl(it->second.fd, F_DUPFD_CLOEXEC, 3);
    *(int *)shared = fd;
    return fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType) {
    std::lock_guard<std::mutex> held(mutex);
    int fd = fake_fails() ? -1 : fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 3);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (fd < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    *handle = ++last_handle;
    handles[*handle] = {-1, (size_t)bytes, fd, 1, false, true};
    return CUDA_SUCCESS;
}
