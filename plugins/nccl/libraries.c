/* NCCL and the driver: found when a program first asks for the back end. */
#include "plugin.h"

#include "base/files/nvidia_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NEEDED_VERSION = 21800, NEEDED_MINOR = 18, WINDOWS_VERSION = 22700 };

nccl_functions nccl;
nccl_window_functions nccl_windows;
cuda_functions cuda;
pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;

int64_t nccl_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void nccl_pause(int64_t waited_ms) { nanosleep(&(struct timespec){.tv_nsec = waited_ms < 10 ? 50000 : 1000000}, NULL); }

/* Find a function; else note the first one that is missing. */
static void find(void *library, const char *name, void *function, const char **missing) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    if (!found && !*missing)
        *missing = name;
}

static tt_status find_cuda(void *library, const char *path) {
    const char *missing = NULL;
#define FIND(name, parameters) find(library, #name, &cuda.name, &missing);
    CUDA_ABI_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "the NVIDIA driver %s is too old: it has no %s", path, missing);
    return TT_OK;
}

static tt_status find_nccl(void *library, const char *path) {
    const char *missing = NULL, *no_windows = NULL;
    int version = 0;
#define FIND(result, name, parameters) find(library, "nccl" #name, &nccl.name, &missing);
    NCCL_ABI_FUNCTIONS(FIND)
#undef FIND
#define FIND(result, name, parameters) find(library, "nccl" #name, &nccl_windows.name, &no_windows);
    NCCL_ABI_WINDOW_FUNCTIONS(FIND)
#undef FIND
    if (!nccl.GetVersion || nccl.GetVersion(&version) != ncclSuccess)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "%s does not say its version: is it NCCL's?", path);
    if (no_windows || version < WINDOWS_VERSION)
        nccl_windows = (nccl_window_functions){NULL, NULL, NULL, NULL};
    int unit = version < 10000 ? 1000 : 10000; /* 2.8.3 is 2803, 2.28.9 is 22809 */
    if (version < NEEDED_VERSION || missing)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "%s is NCCL %d.%d.%d; expected 2.%d or later%s%s", path,
                               version / unit, version % unit / 100, version % 100, NEEDED_MINOR,
                               version < NEEDED_VERSION ? "" : ", with ", version < NEEDED_VERSION ? "" : missing);
    nccl_host->log(TT_LOG_DEBUG, "back end nccl: NCCL %d.%d.%d, %s", version / unit, version % unit / 100,
                   version % 100, path);
    return TT_OK;
}

static tt_status open_libraries(void) {
    char text[1024];
    void *library = tt__nvidia_open(&tt__nvidia_driver, text, sizeof text);
    if (!library)
        return nccl_host->fail(TT_ERR_UNSUPPORTED, "%s", text);
    tt_status status = find_cuda(library, text);
    if (status)
        return status;
    library = tt__nvidia_open(&tt__nvidia_nccl, text, sizeof text);
    return library ? find_nccl(library, text) : nccl_host->fail(TT_ERR_UNSUPPORTED, "%s", text);
}

tt_status nccl_open_libraries(void) {
    pthread_mutex_lock(&nccl_lock);
    tt_status status = open_libraries();
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

tt_status nccl_check_cuda(CUresult result, const char *what) {
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return TT_OK;
    if (cuda.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "unknown";
    return nccl_host->fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TT_ERR_MEMORY : TT_ERR_SYSTEM,
                           "nccl: %s: CUDA error %d, %s", what, (int)result, text);
}

/* Results that a rank's end may cause become TT_ERR_PEER or TT_ERR_NET: then Tutti looks for a rank that is gone. */
static tt_status status_of(ncclResult_t result) {
    switch (result) {
    case ncclRemoteError:
        return TT_ERR_PEER;
    case ncclSystemError:
        return TT_ERR_NET;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
        return TT_ERR_INVALID;
    default:
        return TT_ERR_SYSTEM;
    }
}

tt_status nccl_fail_broken(const nccl_engine *e) { return nccl_host->fail(e->broken, "%s", e->why); }

tt_status nccl_check(nccl_engine *e, ncclComm_t comm, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress)
        return TT_OK;
    if (!e->broken) {
        const char *more = comm ? nccl.GetLastError(comm) : "";
        e->broken = status_of(result);
        snprintf(e->why, sizeof e->why, "nccl: %s on rank %d failed: %s%s%.300s. NCCL_DEBUG=WARN tells more", what,
                 e->rank_in_job, nccl.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
    }
    return nccl_fail_broken(e);
}
