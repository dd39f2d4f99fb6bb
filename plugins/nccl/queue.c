/* Requests: queued, issued, running, done. See plugin.h. */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

/* ---- events */

CUresult nccl_take_event(nccl_engine *e, bool timed, nccl_event **out) {
    nccl_event *event = e->free_events[timed];
    if (event) {
        e->free_events[timed] = event->next_free;
        *out = event;
        return CUDA_SUCCESS;
    }
    event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuEventCreate(&event->event, timed ? 0 : CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }
    event->timed = timed;
    event->next = e->events;
    e->events = event;
    *out = event;
    return CUDA_SUCCESS;
}

static tt_status take_event(nccl_engine *e, nccl_event **out) {
    return nccl_check_cuda(nccl_take_event(e, false, out), "making an event");
}

/* Streams that wait for an event wait for what it held when they were told to. So it can be recorded again at once. */
void nccl_give_event(nccl_engine *e, nccl_event **event) {
    if (!*event)
        return;
    (*event)->next_free = e->free_events[(*event)->timed];
    e->free_events[(*event)->timed] = *event;
    *event = NULL;
}

static tt_status enter(const nccl_engine *e) {
    return nccl_check_cuda(cuda.cuCtxPushCurrent_v2(e->context), "choosing a device");
}

static void leave(void) {
    CUcontext context;
    cuda.cuCtxPopCurrent_v2(&context);
}

/* ---- a lane */

static nccl_lane *lane_of(nccl_engine *e, tt_op op) {
    return &e->lanes[nccl_is_message(op) ? NCCL_MESSAGES : NCCL_COLLECTIVES];
}

static nccl_request *first_queued(const nccl_lane *lane) {
    nccl_request *r = lane->first;
    while (r && r->state != NCCL_QUEUED)
        r = r->next;
    return r;
}

bool nccl_is_idle(const nccl_lane *lane) { return !lane->in_progress && !first_queued(lane); }

/* Keep a failure of CUDA in the engine's own work: the engine is broken. */
static tt_status break_engine(nccl_engine *e, tt_status status) {
    if (status && !e->broken) {
        e->broken = status;
        const char *text = nccl_host->last_error();
        size_t n = strlen(text) < sizeof e->why ? strlen(text) : sizeof e->why - 1;
        memcpy(e->why, text, n);
        e->why[n] = '\0';
    }
    return status;
}

/* What was issued is on the stream now: record an event behind each request, which then runs. */
static tt_status record_ends(nccl_engine *e, nccl_lane *lane) {
    tt_status status = TT_OK;
    for (nccl_request *r = lane->first; r && !status; r = r->next) {
        if (r->state != NCCL_ISSUED)
            continue;
        if (r->has_factor_op)
            nccl.RedOpDestroy(r->factor_op, lane->comm);
        r->has_factor_op = false;
        nccl_times_take_end(e, r);
        status = r->end ? TT_OK : take_event(e, &r->end);
        if (!status)
            status = nccl_check_cuda(cuda.cuEventRecord(r->end->event, lane->stream), "recording an event");
        if (!status)
            r->state = NCCL_RUNNING;
    }
    return break_engine(e, status);
}

/* Ask how the last call goes, and what has happened since. */
static tt_status look_at_lane(nccl_engine *e, nccl_lane *lane) {
    ncclResult_t state = ncclSuccess, result = nccl.CommGetAsyncError(lane->comm, &state);
    const nccl_request *r = lane->first;
    const char *what = r ? nccl_host->op_name(r->call.op) : "a communicator";
    tt_status status = nccl_check(e, lane->comm, result != ncclSuccess ? result : state, what);
    if (status || state == ncclInProgress)
        return status;
    lane->in_progress = false;
    return record_ends(e, lane);
}

static tt_status wait_for_mark(nccl_engine *e, const nccl_lane *lane, nccl_request *r) {
    if (!r->mark)
        return TT_OK;
    tt_status status = nccl_check_cuda(cuda.cuStreamWaitEvent(lane->stream, r->mark->event, 0), "waiting for a stream");
    nccl_give_event(e, &r->mark);
    return break_engine(e, status);
}

static tt_status issue_one(nccl_engine *e, nccl_lane *lane, nccl_request *r) {
    tt_status status = wait_for_mark(e, lane, r);
    if (status)
        return status;
    nccl_times_begin(e, lane, r);
    ncclResult_t result = nccl_issue(e, lane, r);
    r->state = NCCL_ISSUED;
    lane->in_progress |= result == ncclInProgress;
    return nccl_check(e, lane->comm, result, nccl_host->op_name(r->call.op));
}

/* Issue all queued messages in one group, so that they advance together. */
static tt_status issue_messages(nccl_engine *e, nccl_lane *lane, nccl_request *r) {
    tt_status status = nccl_check(e, lane->comm, nccl.GroupStart(), "ncclGroupStart");
    if (status)
        return status;
    for (; r && !status; r = r->next)
        status = issue_one(e, lane, r);
    ncclResult_t result = nccl.GroupEnd();
    lane->in_progress |= result == ncclInProgress;
    return status ? status : nccl_check(e, lane->comm, result, "a group of messages");
}

static tt_status advance_lane(nccl_engine *e, nccl_lane *lane) {
    tt_status status = lane->first ? look_at_lane(e, lane) : TT_OK;
    for (nccl_request *r; !status && !lane->in_progress && (r = first_queued(lane));) {
        status = nccl_is_message(r->call.op) ? issue_messages(e, lane, r) : issue_one(e, lane, r);
        if (!status && !lane->in_progress)
            status = record_ends(e, lane);
    }
    return status;
}

tt_status nccl_advance(nccl_engine *e) {
    if (e->broken)
        return nccl_fail_broken(e);
    if (e->life != NCCL_OPEN)
        return TT_OK;
    tt_status status = enter(e);
    if (status)
        return break_engine(e, status);
    for (int l = 0; l < NCCL_LANES && !status; l++)
        if (e->lanes[l].comm)
            status = advance_lane(e, &e->lanes[l]);
    leave();
    return status;
}

void nccl_progress(void *engine) {
    pthread_mutex_lock(&nccl_lock);
    nccl_advance(engine);
    pthread_mutex_unlock(&nccl_lock);
}

/* ---- Tutti's side */

tt_status nccl_stream_mark(void *engine, const tt_call *call, void **mark) {
    nccl_engine *e = engine;
    nccl_event *event = NULL;
    tt_status status = nccl_check_call(e, call);
    if (status)
        return status;
    pthread_mutex_lock(&nccl_lock);
    status = enter(e);
    if (!status) {
        status = take_event(e, &event);
        if (!status)
            status = nccl_check_cuda(cuda.cuEventRecord(event->event, call->stream), "recording an event");
        if (status)
            nccl_give_event(e, &event);
        leave();
    }
    pthread_mutex_unlock(&nccl_lock);
    *mark = event;
    return status;
}

static void copy_list(const int64_t **list, int64_t *to, int size) {
    if (!*list)
        return;
    memcpy(to, *list, (size_t)size * sizeof *to);
    *list = to;
}

static nccl_request *new_request(const nccl_engine *e, const tt_call *call) {
    bool is_uneven = call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_TO_ALL_V;
    nccl_request *r = calloc(1, sizeof *r + (is_uneven ? 4 * (size_t)e->size * sizeof r->numbers[0] : 0));
    if (!r)
        return NULL;
    size_t known = nccl_host->call_size; /* an older library has a shorter tt_call */
    memcpy(&r->call, call, known < sizeof *call ? known : sizeof *call);
    r->mark = call->mark;
    if (is_uneven) {
        copy_list(&r->call.send_counts, r->numbers, e->size);
        copy_list(&r->call.send_offsets, r->numbers + e->size, e->size);
        copy_list(&r->call.recv_counts, r->numbers + 2 * e->size, e->size);
        copy_list(&r->call.recv_offsets, r->numbers + 3 * e->size, e->size);
    }
    return r;
}

tt_status nccl_begin(void *engine, const tt_call *call, void **request) {
    nccl_engine *e = engine;
    nccl_request *r = new_request(e, call), **at = &lane_of(e, call->op)->first;
    pthread_mutex_lock(&nccl_lock);
    if (r) {
        while (*at)
            at = &(*at)->next;
        *at = r;
    }
    pthread_mutex_unlock(&nccl_lock);
    *request = r;
    return r ? TT_OK : nccl_host->fail(TT_ERR_MEMORY, "nccl: no memory for a request");
}

/* After an abort, report the request as failed only when the communicators are gone: until then NCCL may use
 * buffers. */
static tt_status test_ended(const nccl_engine *e) {
    if (e->life != NCCL_ENDED)
        return TT_OK;
    return e->broken ? nccl_fail_broken(e) : nccl_host->fail(TT_ERR_ABORTED, "nccl: the call was aborted");
}

static tt_status ask_event(nccl_engine *e, const nccl_request *r, bool *done) {
    tt_status status = enter(e);
    if (status)
        return break_engine(e, status);
    CUresult result = cuda.cuEventQuery(r->end->event);
    *done = result == CUDA_SUCCESS;
    if (*done)
        nccl_times_end(r);
    leave();
    if (*done || result == CUDA_ERROR_NOT_READY)
        return TT_OK;
    return break_engine(e, nccl_check_cuda(result, nccl_host->op_name(r->call.op)));
}

static tt_status test_running(nccl_engine *e, const nccl_request *r, bool *done) {
    if (e->life != NCCL_OPEN)
        return test_ended(e);
    tt_status status = nccl_advance(e);
    return status || r->state != NCCL_RUNNING ? status : ask_event(e, r, done);
}

static void unlink_request(nccl_engine *e, nccl_request *r) {
    nccl_request **at = &lane_of(e, r->call.op)->first;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    nccl_give_event(e, &r->mark);
    nccl_give_event(e, &r->end);
    nccl_times_forget(e, r);
    free(r);
}

tt_status nccl_test(void *engine, void *request, bool *done, int *source) {
    nccl_engine *e = engine;
    nccl_request *r = request;
    *done = false;
    pthread_mutex_lock(&nccl_lock);
    tt_status status = test_running(e, r, done);
    if (*done && r->call.op == TT_OP_RECV)
        *source = r->call.root;
    if (*done || status)
        unlink_request(e, r);
    pthread_mutex_unlock(&nccl_lock);
    return status;
}

tt_status nccl_stream_wait(void *engine, void *request, void *stream, bool *enqueued) {
    nccl_engine *e = engine;
    const nccl_request *r = request;
    *enqueued = false;
    pthread_mutex_lock(&nccl_lock);
    tt_status status = e->life == NCCL_OPEN ? nccl_advance(e) : test_ended(e);
    if (!status && r->state == NCCL_RUNNING)
        status = enter(e);
    if (!status && r->state == NCCL_RUNNING) {
        status = nccl_check_cuda(cuda.cuStreamWaitEvent(stream, r->end->event, 0), "waiting for a result");
        leave();
        *enqueued = !status;
    }
    pthread_mutex_unlock(&nccl_lock);
    return status;
}
