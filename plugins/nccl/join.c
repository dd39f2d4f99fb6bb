/* Making communicators: of a first group by a unique id, of groups of its ranks by splitting. */
#include "plugin.h"

enum {
    ASK_MS = 100,  /* between looks for another rank's failure */
    NAME_MS = 2000 /* the longest wait, after NCCL's error, to learn which rank ended */
};

static tt_status fail_late(const nccl_joining *j) {
    const nccl_engine *e = j->e ? j->e : j->parent;
    return nccl_host->fail(
        TT_ERR_TIMEOUT,
        "nccl: %s: NCCL has not joined rank %d (cuda:%d) with the other ranks within %lld ms: one of "
        "them did not come, or can't be reached. NCCL_DEBUG=INFO shows what NCCL waits for",
        j->what, e->rank_in_job, e->device, (long long)j->timeout_ms);
}

/* Now and then: is a rank known to have failed? */
static tt_status ask_failure(nccl_joining *j, int64_t now) {
    if (now - j->asked_ms < ASK_MS)
        return TT_OK;
    j->asked_ms = now;
    if (j->member)
        return nccl_ask_failure(j->member);
    return j->parent && j->parent->watch ? j->parent->watch(j->parent->watcher) : TT_OK;
}

/* NCCL may fail because another rank has ended, before this rank hears which one: wait for its name. */
static tt_status name_failure(nccl_joining *j, tt_status failed) {
    const nccl_engine *broken = j->e && j->e->broken ? j->e : j->parent;
    if ((failed != TT_ERR_PEER && failed != TT_ERR_NET) || !broken || !broken->broken)
        return failed;
    const int64_t begin_ms = nccl_now_ms();
    j->asked_ms = 0;
    for (int64_t now = begin_ms; now - begin_ms < NAME_MS; now = nccl_now_ms()) {
        tt_status status = ask_failure(j, now);
        if (status)
            return status;
        nccl_pause(now - begin_ms);
    }
    return nccl_fail_broken(broken);
}

tt_status nccl_joining_pause(nccl_joining *j) {
    int64_t now = nccl_now_ms();
    tt_status status = ask_failure(j, now);
    if (status)
        return status;
    if (now - j->begin_ms > j->timeout_ms)
        return fail_late(j);
    nccl_pause(now - j->begin_ms);
    return TT_OK;
}

static tt_status look(const nccl_joining *j, nccl_engine *owner, ncclComm_t comm, bool *ready) {
    ncclResult_t state = ncclSuccess;
    if (j->parent && j->parent->life != NCCL_OPEN)
        return nccl_host->fail(TT_ERR_ABORTED, "nccl: %s: the group was aborted", j->what);
    if (!comm) {
        *ready = true;
        return TT_OK;
    }
    ncclResult_t result = nccl.CommGetAsyncError(comm, &state);
    *ready = state != ncclInProgress;
    return nccl_check(owner, comm, result != ncclSuccess ? result : state, j->what);
}

/* Wait until a communicator is ready. */
static tt_status await(nccl_joining *j, nccl_engine *owner, const ncclComm_t *comm) {
    for (;;) {
        bool ready = false;
        pthread_mutex_lock(&nccl_lock);
        tt_status status = look(j, owner, *comm, &ready);
        pthread_mutex_unlock(&nccl_lock);
        if (status || ready)
            return status;
        status = nccl_joining_pause(j);
        if (status)
            return status;
    }
}

tt_status nccl_enter(const nccl_engine *e) {
    pthread_mutex_lock(&nccl_lock);
    tt_status status = nccl_check_cuda(cuda.cuCtxPushCurrent_v2(e->context), "choosing a device");
    if (status)
        pthread_mutex_unlock(&nccl_lock);
    return status;
}

void nccl_leave(void) {
    CUcontext context;
    cuda.cuCtxPopCurrent_v2(&context);
    pthread_mutex_unlock(&nccl_lock);
}

static tt_status init(nccl_joining *j, ncclUniqueId id) {
    nccl_engine *e = j->e;
    nccl_config config = NCCL_CONFIG_2_14;
    ncclComm_t *comm = &e->lanes[NCCL_COLLECTIVES].comm;
    tt_status status = nccl_enter(e);
    if (status)
        return status;
    ncclResult_t result = nccl.CommInitRankConfig(comm, e->size, id, e->rank, (ncclConfig_t *)&config);
    status = nccl_check(e, NULL, result, j->what);
    nccl_leave();
    return status ? status : await(j, e, comm);
}

tt_status nccl_split(nccl_joining *j, nccl_engine *owner, nccl_lane *lane, int color, int key, ncclComm_t *made) {
    nccl_config config = NCCL_CONFIG_2_14;
    tt_status status = nccl_enter(owner);
    if (status)
        return status;
    lane->in_progress = true;
    if (owner->life == NCCL_OPEN)
        status =
            nccl_check(owner, lane->comm,
                       nccl.CommSplit(lane->comm, color, key, &owner->split_off, (ncclConfig_t *)&config), j->what);
    nccl_leave();
    if (!status)
        status = await(j, owner, &lane->comm);
    if (!status)
        status = await(j, owner, &owner->split_off);
    pthread_mutex_lock(&nccl_lock);
    lane->in_progress = status != TT_OK;
    if (!status) {
        *made = owner->split_off;
        owner->split_off = NULL;
    }
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

/* Make the communicator of messages, where there are any. */
static tt_status split_messages(nccl_joining *j) {
    nccl_engine *e = j->e;
    if (e->size == 1)
        return TT_OK;
    return nccl_split(j, e, &e->lanes[NCCL_COLLECTIVES], 0, e->rank, &e->lanes[NCCL_MESSAGES].comm);
}

/* End an engine without flushing, as its communicators may not be ready. */
static void give_up(nccl_engine *e) {
    nccl_abort(e);
    nccl_close(e);
}

static tt_status join(nccl_engine *e, const tt_backend_member *member) {
    ncclUniqueId id;
    nccl_joining j = {.e = e, .timeout_ms = member->timeout_ms, .what = "tt_init_process_group"};
    if (member->store) {
        j.member = member;
    } else {
        ncclResult_t result = nccl.GetUniqueId(&id);
        tt_status status = nccl_check(e, NULL, result, "ncclGetUniqueId");
        if (status)
            return status;
    }
    tt_status status = member->store ? nccl_meet(e, member, TT_OK, &id) : TT_OK;
    if (status)
        return status;
    j.begin_ms = nccl_now_ms();
    status = init(&j, id);
    if (!status)
        status = split_messages(&j);
    if (status) {
        status = name_failure(&j, status);
        nccl_tell_failure(member);
    }
    return status;
}

static tt_status check_member(const tt_backend_member *member) {
    if (member->device == TT_DEVICE_CUDA)
        return TT_OK;
    return nccl_host->fail(TT_ERR_INVALID,
                           "nccl: expected tt_init_process_group() to be told which GPU this process uses: "
                           ".device = TT_DEVICE_CUDA, .device_index = tt_get_node_local_rank(0)");
}

tt_status nccl_open(void **engine, const tt_backend_member *member) {
    nccl_engine *e = NULL;
    ncclUniqueId id;
    tt_status status = check_member(member);
    if (!status)
        status = nccl_new_engine(&e, member->rank, member->world_size, member->rank, member->device_index);
    if (status && member->store)
        status = nccl_meet(e, member, status, &id); /* so that the others don't wait */
    else if (!status)
        status = join(e, member);
    if (!status)
        *engine = e;
    else if (e)
        give_up(e);
    if (!status && nccl_can_watch(member))
        nccl_set_watch(e, member->watch, member->watcher);
    return status;
}

void nccl_set_watch(void *engine, tt_status (*watch)(void *watcher), void *watcher) {
    nccl_engine *e = engine;
    e->watch = watch;
    e->watcher = watcher;
}

/* ---- groups of a group's ranks */

tt_status nccl_await_idle(nccl_joining *j, nccl_engine *e, const nccl_lane *lane) {
    for (;;) {
        pthread_mutex_lock(&nccl_lock);
        tt_status status = nccl_advance(e);
        bool is_idle = e->life != NCCL_OPEN || nccl_is_idle(lane);
        pthread_mutex_unlock(&nccl_lock);
        if (status || is_idle)
            return status;
        status = nccl_joining_pause(j);
        if (status)
            return status;
    }
}

tt_status nccl_new_group(void **sub, void *engine, const int *ranks, int64_t count, int64_t timeout_ms) {
    nccl_engine *parent = engine, *e = NULL;
    ncclComm_t none = NULL;
    int rank = 0;
    while (rank < count && ranks[rank] != parent->rank)
        rank++;
    *sub = NULL;
    tt_status status = count ? nccl_new_engine(&e, rank, (int)count, parent->rank_in_job, parent->device) : TT_OK;
    nccl_joining j = {.e = e,
                      .parent = parent,
                      .begin_ms = nccl_now_ms(),
                      .timeout_ms = timeout_ms,
                      .what = "making a group of some ranks"};
    if (!status)
        status = nccl_await_idle(&j, parent, &parent->lanes[NCCL_COLLECTIVES]);
    if (!status)
        status = nccl_split(&j, parent, &parent->lanes[NCCL_COLLECTIVES], count ? ranks[0] : NCCL_SPLIT_NOCOLOR, rank,
                            e ? &e->lanes[NCCL_COLLECTIVES].comm : &none);
    if (!status && e)
        status = split_messages(&j);
    if (status)
        status = name_failure(&j, status);
    else
        *sub = e;
    if (status && e)
        give_up(e);
    return status;
}
