/* Windows: memory that all ranks register with NCCL, so that its kernels reach it where it lies.
 *
 * Registering is collective. Peers find a byte by its offset from the beginning of the driver's mapping, so each window
 * has a mapping of its own. A communicator on which registering has failed, here or elsewhere, can't be used any more.
 * So ranks agree that each has memory, register it, and agree on how that went. If it failed, collectives get a new
 * communicator, split from the one of messages, and the group has no windows from then on. */
#include "plugin.h"

#include <stdlib.h>

enum { FAILED, NONE, REGISTERED }; /* how registering went; the least value of all ranks decides */

enum { SYMMETRIC = 1, REGISTER_MS = 10000, IDLE_MS = 2000 };

struct nccl_window {
    nccl_window *next;
    void *memory;
    ncclWindow_t window; /* NULL: it is not registered */
};

/* Use no windows from now on; all ranks decide so together. */
static void do_without(nccl_engine *e, const char *why) {
    e->has_no_windows = true;
    nccl_host->log(TT_LOG_INFO, "back end nccl: rank %d: no memory is registered with NCCL: %s", e->rank_in_job, why);
}

static nccl_window *alloc_window(const nccl_engine *e, size_t bytes) {
    nccl_window *w = nccl_windows.MemAlloc ? calloc(1, sizeof *w) : NULL;
    if (!w || nccl_enter(e)) {
        free(w);
        return NULL;
    }
    if (nccl_windows.MemAlloc(&w->memory, bytes) != ncclSuccess)
        w->memory = NULL;
    nccl_leave();
    if (w->memory)
        return w;
    free(w);
    return NULL;
}

/* Free the window when the communicators are gone, which may still use it. */
static void free_later(nccl_engine *e, nccl_window *w) {
    w->next = e->lost_windows;
    e->lost_windows = w;
}

/* Deregister the window, if it is registered, and free it; `asks` false: only free it, later. The lock is not held. */
static void give_back(nccl_engine *e, nccl_window *w, bool asks) {
    ncclResult_t result = ncclInProgress;
    pthread_mutex_lock(&nccl_lock);
    CUcontext context;
    const bool entered = cuda.cuCtxPushCurrent_v2(e->context) == CUDA_SUCCESS;
    if (entered && asks && e->life == NCCL_OPEN && !e->left_behind) /* w may be registered on left_behind */
        result =
            w->window ? nccl_windows.CommWindowDeregister(e->lanes[NCCL_COLLECTIVES].comm, w->window) : ncclSuccess;
    if (result == ncclSuccess) {
        nccl_windows.MemFree(w->memory);
        free(w);
    } else {
        free_later(e, w);
    }
    if (entered)
        cuda.cuCtxPopCurrent_v2(&context);
    pthread_mutex_unlock(&nccl_lock);
}

/* ---- registering */

static tt_status look(const nccl_engine *e, ncclResult_t *state) {
    if (e->life != NCCL_OPEN)
        return nccl_host->fail(TT_ERR_ABORTED, "nccl: registering memory: the group was aborted");
    ncclResult_t result = nccl.CommGetAsyncError(e->lanes[NCCL_COLLECTIVES].comm, state);
    if (result != ncclSuccess)
        *state = result;
    return TT_OK;
}

/* Wait for the peers to register, for a limited time, as a failed peer does not come. An error: a peer is gone. */
static tt_status await_registered(nccl_joining *j, nccl_engine *e, ncclResult_t *state) {
    const int64_t limit_ms = j->timeout_ms / 2 < REGISTER_MS ? j->timeout_ms / 2 : REGISTER_MS;
    tt_status status = TT_OK;
    while (!status && *state == ncclInProgress && nccl_now_ms() - j->begin_ms < limit_ms) {
        status = nccl_joining_pause(j);
        pthread_mutex_lock(&nccl_lock);
        if (!status)
            status = look(e, state);
        pthread_mutex_unlock(&nccl_lock);
    }
    return status;
}

static tt_status register_window(nccl_joining *j, nccl_engine *e, nccl_window *w, size_t bytes, int *went) {
    nccl_lane *lane = &e->lanes[NCCL_COLLECTIVES];
    tt_status status = nccl_enter(e);
    if (status)
        return status;
    ncclResult_t state = ncclInProgress; /* stays so in an aborted group, which look() reports */
    if (e->life == NCCL_OPEN)
        state = nccl_windows.CommWindowRegister(lane->comm, w->memory, bytes, &w->window, SYMMETRIC);
    lane->in_progress = state == ncclInProgress;
    nccl_leave();
    status = await_registered(j, e, &state);
    lane->in_progress = status != TT_OK;
    *went = state != ncclSuccess ? FAILED : w->window ? REGISTERED : NONE;
    return status;
}

/* Give collectives a new communicator; the one on which registering failed stays until the engine's end. */
static tt_status replace_communicator(nccl_joining *j, nccl_engine *e) {
    nccl_lane *lane = &e->lanes[NCCL_COLLECTIVES], *messages = &e->lanes[NCCL_MESSAGES];
    pthread_mutex_lock(&nccl_lock);
    e->left_behind = lane->comm;
    lane->comm = NULL;
    pthread_mutex_unlock(&nccl_lock);
    j->begin_ms = nccl_now_ms();
    tt_status status = nccl_await_idle(j, e, messages);
    return status ? status : nccl_split(j, e, messages, 0, e->rank, &lane->comm);
}

/* Register on all ranks, or on none. */
static tt_status register_on_all(nccl_joining *j, nccl_engine *e, nccl_window *w, size_t bytes, nccl_agreement agree,
                                 void *user, bool *registered) {
    int went = FAILED, least = FAILED;
    tt_status status = nccl_await_idle(j, e, &e->lanes[NCCL_COLLECTIVES]);
    j->begin_ms = nccl_now_ms();
    if (!status)
        status = register_window(j, e, w, bytes, &went);
    if (!status)
        status = agree(user, went, &least);
    *registered = !status && least == REGISTERED;
    if (status || *registered)
        return status;
    do_without(e, least == NONE ? "it takes none here" : "that failed on a rank. NCCL_DEBUG=WARN tells more");
    return least == FAILED ? replace_communicator(j, e) : TT_OK;
}

tt_status nccl_window_make(void *engine, size_t bytes, int64_t timeout_ms, nccl_agreement agree, void *user,
                           void **memory) {
    nccl_engine *e = engine;
    nccl_joining j = {.parent = e, .timeout_ms = timeout_ms, .begin_ms = nccl_now_ms(), .what = "registering memory"};
    bool registered = false;
    int all = 0;
    *memory = NULL;
    if (e->has_no_windows || e->size == 1)
        return TT_OK;
    nccl_window *w = alloc_window(e, bytes);
    tt_status status = agree(user, w != NULL, &all);
    if (!status && all)
        status = register_on_all(&j, e, w, bytes, agree, user, &registered);
    else if (!status)
        do_without(e, "a rank has no memory for it, or a NCCL before 2.27");
    if (registered) {
        *memory = w->memory;
        w->next = e->windows;
        e->windows = w;
    } else if (w) {
        give_back(e, w, !status);
    }
    return status;
}

/* ---- the end */

static nccl_window *take_window(nccl_engine *e, const void *memory) {
    nccl_window **at = &e->windows;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    nccl_window *w = *at;
    if (w)
        *at = w->next;
    return w;
}

/* Wait, at most IDLE_MS, until no call of NCCL's is under way. False: one is, or the engine is broken. */
static bool is_quiet(nccl_engine *e) {
    const int64_t begin_ms = nccl_now_ms();
    for (;;) {
        pthread_mutex_lock(&nccl_lock);
        tt_status status = nccl_advance(e);
        bool is_idle = nccl_is_idle(&e->lanes[NCCL_COLLECTIVES]);
        pthread_mutex_unlock(&nccl_lock);
        if (status || is_idle || nccl_now_ms() - begin_ms > IDLE_MS)
            return !status && is_idle;
        nccl_pause(nccl_now_ms() - begin_ms);
    }
}

bool nccl_window_free(void *engine, void *memory) {
    nccl_engine *e = engine;
    nccl_window *w = take_window(e, memory);
    if (w)
        give_back(e, w, is_quiet(e));
    return w != NULL;
}

void nccl_free_lost_windows(nccl_engine *e) {
    while (e->lost_windows) {
        nccl_window *w = e->lost_windows;
        e->lost_windows = w->next;
        nccl_windows.MemFree(w->memory);
        free(w);
    }
}
