/* Memory that peers reach: windows. A window is whole memory of ncclMemAlloc()'s, the same size on all ranks. */
#include "memory.h"
#include "nccl_comm.h"
#include "settings.h"
#include "stream.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

struct ncclWindow_vidmem {
    size_t bytes;
};

enum { STEP = 2 << 20 };

static std::mutex mutex;
/* Never destroyed: a thread may end a communicator while the process ends. */
static auto &memories = *new std::map<const char *, size_t>; /* ncclMemAlloc()'s */
static auto &in_windows = *new std::set<const char *>;
static std::atomic<unsigned long> windows, made, calls;

unsigned long fake_nccl_windows(void) { return windows; }
unsigned long fake_nccl_windows_made(void) { return made; }
unsigned long fake_nccl_window_calls(void) { return calls; }
unsigned long fake_nccl_memories(void) {
    std::lock_guard<std::mutex> held(mutex);
    return memories.size();
}

/* ---- memory */

static bool map_memory(CUdeviceptr *at, size_t bytes, int device) {
    CUmemAllocationProp prop = CUmemAllocationProp();
    CUmemAccessDesc access = CUmemAccessDesc();
    CUmemGenericAllocationHandle handle;
    prop.location.id = device;
    if (cuMemAddressReserve(at, bytes, STEP, 0, 0))
        return false;
    if (cuMemCreate(&handle, bytes, &prop, 0))
        return false;
    const bool mapped = !cuMemMap(*at, bytes, 0, handle, 0);
    cuMemRelease(handle);
    if (!mapped)
        return false;
    if (!cuMemSetAccess(*at, bytes, &access, 1))
        return true;
    cuMemUnmap(*at, bytes);
    return false;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    const int device = fake_context_device();
    CUdeviceptr at = 0;
    const size_t whole = (bytes + STEP - 1) / STEP * STEP;
    if (device < 0)
        return fake_misuse("MemAlloc", "there is no current context");
    if (fake_nccl_is("FAKE_NCCL_FAIL", "MemAlloc", fake_physical_device(device)) || !map_memory(&at, whole, device))
        return ncclUnhandledCudaError;
    *memory = (void *)(uintptr_t)at;
    std::lock_guard<std::mutex> held(mutex);
    memories[(const char *)*memory] = whole;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory) {
    std::lock_guard<std::mutex> held(mutex);
    auto it = memories.find((const char *)memory);
    if (it == memories.end())
        return fake_misuse("MemFree", "there is no such memory");
    if (in_windows.count(it->first))
        return fake_misuse("MemFree", "it is registered still");
    cuMemUnmap((CUdeviceptr)(uintptr_t)memory, it->second);
    memories.erase(it);
    return ncclSuccess;
}

/* ---- windows */

static const char *refuse_window(const char *at, size_t bytes, int device) {
    auto it = memories.find(at);
    if (it == memories.end() || fake_device_of((CUdeviceptr)(uintptr_t)at) != device)
        return "that is no beginning of memory of ncclMemAlloc() on the communicator's device";
    if (!bytes || bytes > it->second)
        return "the range is longer than the memory";
    return in_windows.count(at) ? "it is registered already" : nullptr;
}

static void finish_registering(ncclComm_t comm, const char *at, size_t bytes, ncclWindow_t *window) {
    const fake_core &core = *comm->core;
    for (int r = 0; r < core.size; r++)
        if (core.area->windows[r].bytes != bytes) {
            fake_misuse("CommWindowRegister", "ranks have other sizes");
            comm->state = ncclInvalidArgument;
            return;
        }
    if (fake_nccl_is("FAKE_NCCL_ASYNC", "CommWindowRegister", core.rank)) {
        comm->state = ncclRemoteError;
        return;
    }
    if (!fake_setting("FAKE_NCCL_WINDOWS", 1))
        return;
    *window = new ncclWindow_vidmem{bytes};
    comm->windows[at] = *window;
    std::lock_guard<std::mutex> held(mutex);
    in_windows.insert(at);
    windows++;
    made++;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags) {
    const char *name = "CommWindowRegister", *at = (const char *)memory;
    fake_call call(comm, name);
    if (call.result)
        return call.result;
    {
        std::lock_guard<std::mutex> held(mutex);
        const char *wrong = refuse_window(at, bytes, comm->device);
        if (wrong || flags != 1)
            return fake_misuse(name, wrong ? wrong : "flags other than NCCL_WIN_COLL_SYMMETRIC");
    }
    *window = nullptr;
    fake_core *core = comm->core.get();
    const bool hangs = fake_nccl_is("FAKE_NCCL_HANG", name, core->rank);
    const int round = ++comm->registrations;
    core->area->windows[core->rank].bytes = bytes;
    if (!hangs)
        core->area->windows[core->rank].round = round;
    auto ready = [=] {
        for (int r = 0; r < core->size; r++)
            if (core->area->windows[r].round < round)
                return false;
        return true;
    };
    return fake_proceed(comm, ready, [=] { finish_registering(comm, at, bytes, window); });
}

static void forget(const char *at, ncclWindow_t window) {
    std::lock_guard<std::mutex> held(mutex);
    in_windows.erase(at);
    windows--;
    delete window;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    const char *name = "CommWindowDeregister";
    fake_call call(comm, name);
    if (call.result)
        return call.result;
    for (auto it = comm->windows.begin(); it != comm->windows.end(); ++it)
        if (it->second == window) {
            forget(it->first, window);
            comm->windows.erase(it);
            return ncclSuccess;
        }
    return fake_misuse(name, "the communicator has no such window");
}

void fake_window_used(ncclComm_t comm, const void *at, size_t bytes) {
    auto it = comm->windows.upper_bound((const char *)at);
    if (it == comm->windows.begin())
        return;
    --it;
    calls += (const char *)at + bytes <= it->first + it->second->bytes;
}

/* NCCL ends what an abort leaves. */
void fake_windows_end(ncclComm_t comm) {
    if (comm->finalized && !comm->windows.empty())
        fake_misuse("CommAbort", "windows are left");
    for (auto &one : comm->windows)
        forget(one.first, one.second);
}
