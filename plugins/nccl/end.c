/* The life of an engine: its stream and memory, and the end, which waits neither for peers nor for a hanging NCCL.
 *
 * A separate thread ends the communicators by ncclCommAbort(). This thread holds the engine, as its owner does, and the
 * last holder frees it. So an abort that hangs costs only the engine's memory. */
#include "plugin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FLUSH_MS = 2000, /* how long NCCL may take to send what peers wait for */
    CLOSE_MS = 4000  /* how long close() waits for the communicators' end */
};

static pthread_cond_t ended; /* some engine's communicators are gone */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_condition(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&ended, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* ---- the beginning */

static tt_status find_device(nccl_engine *e) {
    CUuuid uuid;
    int count = 0;
    tt_status status = nccl_check_cuda(cuda.cuInit(0), "starting CUDA");
    if (!status)
        status = nccl_check_cuda(cuda.cuDeviceGetCount(&count), "counting devices");
    if (!status && e->device >= count)
        status = nccl_host->fail(TT_ERR_NOT_FOUND, "nccl: there is no device cuda:%d: CUDA has %d", e->device, count);
    if (!status)
        status = nccl_check_cuda(cuda.cuDeviceGet(&e->handle, e->device), "finding a device");
    if (!status)
        status = nccl_check_cuda(cuda.cuDeviceGetUuid_v2(&uuid, e->handle), "asking a device's id");
    if (status)
        return status;
    size_t n = (size_t)snprintf(e->uuid, sizeof e->uuid, "GPU-");
    for (int i = 0; i < 16; i++)
        n += (size_t)snprintf(e->uuid + n, sizeof e->uuid - n, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                              (unsigned char)uuid.bytes[i]);
    return TT_OK;
}

static tt_status make_streams(nccl_engine *e) {
    tt_status status = TT_OK;
    for (int l = 0; l < NCCL_LANES && !status; l++)
        status = nccl_check_cuda(cuda.cuStreamCreate(&e->lanes[l].stream, CU_STREAM_NON_BLOCKING), "making a stream");
    return status ? status : nccl_check_cuda(cuda.cuMemAlloc_v2(&e->word, sizeof(int)), "4 bytes of a device");
}

static tt_status take_device(nccl_engine *e) {
    CUcontext context = NULL;
    tt_status status = find_device(e);
    if (!status)
        status = nccl_check_cuda(cuda.cuDevicePrimaryCtxRetain(&e->context, e->handle), "using a device");
    if (!status)
        status = nccl_check_cuda(cuda.cuCtxPushCurrent_v2(e->context), "choosing a device");
    if (status)
        return status;
    status = make_streams(e);
    cuda.cuCtxPopCurrent_v2(&context);
    return status;
}

tt_status nccl_new_engine(nccl_engine **out, int rank, int size, int rank_in_job, int device) {
    nccl_engine *e = calloc(1, sizeof *e);
    pthread_once(&once, make_condition);
    *out = e;
    if (!e)
        return nccl_host->fail(TT_ERR_MEMORY, "nccl: no memory for a group");
    *e = (nccl_engine){.rank = rank, .size = size, .rank_in_job = rank_in_job, .device = device, .holders = 1};
    pthread_mutex_lock(&nccl_lock);
    tt_status status = take_device(e);
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

/* ---- the end */

static void free_requests(nccl_lane *lane) {
    while (lane->first) {
        nccl_request *r = lane->first;
        lane->first = r->next;
        free(r);
    }
}

static void free_events(nccl_engine *e) {
    while (e->events) {
        nccl_event *event = e->events;
        e->events = event->next;
        cuda.cuEventDestroy_v2(event->event);
        free(event);
    }
}

static void release(nccl_engine *e) {
    CUcontext context;
    bool entered = e->context && cuda.cuCtxPushCurrent_v2(e->context) == CUDA_SUCCESS;
    for (int l = 0; l < NCCL_LANES; l++) {
        free_requests(&e->lanes[l]);
        if (e->lanes[l].stream)
            cuda.cuStreamDestroy_v2(e->lanes[l].stream);
    }
    free_events(e);
    if (e->clock_stream)
        cuda.cuStreamDestroy_v2(e->clock_stream);
    nccl_free_lost_windows(e); /* those lost after the communicators' end */
    if (e->word)
        cuda.cuMemFree_v2(e->word);
    if (entered)
        cuda.cuCtxPopCurrent_v2(&context);
    if (e->context)
        cuda.cuDevicePrimaryCtxRelease_v2(e->handle);
    free(e);
}

/* Drop one hold of the engine; the last one frees it. The lock is held before, and free afterwards. */
static void let_go(nccl_engine *e) {
    bool last = --e->holders == 0;
    pthread_mutex_unlock(&nccl_lock);
    if (last)
        release(e);
}

/* Let NCCL send what was handed to it: this rank's results may be there before its peers have theirs. */
static void flush(ncclComm_t comm) {
    int64_t begin = nccl_now_ms(), waited = 0;
    ncclResult_t state = ncclInProgress;
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = nccl.CommFinalize(comm);
    pthread_mutex_unlock(&nccl_lock);
    while ((result == ncclSuccess || result == ncclInProgress) && state == ncclInProgress && waited < FLUSH_MS) {
        nccl_pause(waited);
        pthread_mutex_lock(&nccl_lock);
        result = nccl.CommGetAsyncError(comm, &state);
        pthread_mutex_unlock(&nccl_lock);
        waited = nccl_now_ms() - begin;
    }
}

static void *end_communicators(void *arg) {
    nccl_engine *e = arg;
    CUcontext context;
    bool entered = cuda.cuCtxPushCurrent_v2(e->context) == CUDA_SUCCESS;
    for (int l = NCCL_LANES - 1; l >= 0; l--) {
        if (!e->lanes[l].comm)
            continue;
        if (e->flush)
            flush(e->lanes[l].comm);
        nccl.CommAbort(e->lanes[l].comm); /* may wait: the lock is not held */
    }
    if (e->split_off)
        nccl.CommAbort(e->split_off);
    if (e->left_behind)
        nccl.CommAbort(e->left_behind);
    pthread_mutex_lock(&nccl_lock);
    nccl_free_lost_windows(e);
    if (entered)
        cuda.cuCtxPopCurrent_v2(&context);
    e->life = NCCL_ENDED;
    pthread_cond_broadcast(&ended);
    let_go(e);
    return NULL;
}

/* Start the thread that ends the communicators. The lock is held. */
static void end_engine(nccl_engine *e, bool flush_first) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (e->life != NCCL_OPEN)
        return;
    bool any = e->lanes[NCCL_COLLECTIVES].comm || e->lanes[NCCL_MESSAGES].comm || e->left_behind;
    e->life = any ? NCCL_ENDING : NCCL_ENDED;
    e->flush = flush_first;
    if (!any)
        return;
    e->holders++;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* so that signals go to the program's own threads */
    int error = pthread_create(&thread, &attributes, end_communicators, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) /* the engine stays, as after an abort that hangs */
        nccl_host->log(TT_LOG_WARNING, "back end nccl: no thread to abort a communicator in: it stays");
}

void nccl_abort(void *engine) {
    pthread_mutex_lock(&nccl_lock);
    end_engine(engine, false);
    pthread_mutex_unlock(&nccl_lock);
}

/* Is all that was handed to NCCL done here? */
static bool is_through(const nccl_engine *e) {
    bool through = !e->broken;
    for (int l = 0; l < NCCL_LANES; l++)
        through = through && !e->lanes[l].first && !e->lanes[l].in_progress;
    return through;
}

void nccl_close(void *engine) {
    nccl_engine *e = engine;
    int64_t until = nccl_now_ms() + CLOSE_MS;
    const struct timespec deadline = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    int error = 0;
    pthread_mutex_lock(&nccl_lock);
    end_engine(e, is_through(e));
    while (e->life != NCCL_ENDED && !error)
        error = pthread_cond_timedwait(&ended, &nccl_lock, &deadline);
    if (e->life != NCCL_ENDED)
        nccl_host->log(TT_LOG_WARNING,
                       "back end nccl: rank %d: ncclCommAbort() did not return within %d ms: its memory stays",
                       e->rank_in_job, CLOSE_MS);
    let_go(e);
}
