/* Copies that the host doesn't wait for. Those to the host have a stream of their own, so that the work behind them
 * goes on meanwhile; an event says when each may begin, and then when it is done. */
#include "tensor/cuda/device/cuda_state.h"

static tt__cuda_state *queue_of(const tt_device *device) { return (tt__cuda_state *)(void *)device; }

static tt_status queue_pin(const tt_device *device, void *host, size_t bytes) {
    const tt__cuda_state *state = queue_of(device);
    tt_status status = tt__cuda_enter(state);
    return status ? status
                  : tt__cuda_check(cudaHostRegister(host, bytes, cudaHostRegisterPortable), "pinning %zu bytes for %s",
                                   bytes, state->name);
}

static void queue_unpin(const tt_device *device, void *host) {
    if (!tt__cuda_enter(queue_of(device)))
        (void)cudaHostUnregister(host);
}

static tt_status new_event(const tt__cuda_state *state, cudaEvent_t *event) {
    return tt__cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event on %s",
                          state->name);
}

/* Let `event` tell when the work on the stream so far is done; where it can't, the work is done. */
static cudaError_t record_or_wait(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t error = cudaEventRecord(event, stream);
    if (error)
        (void)cudaStreamSynchronize(stream);
    return error;
}

static cudaError_t begin_sending(const tt__cuda_state *state, cudaEvent_t event, void *host, const void *from,
                                 size_t bytes) {
    cudaError_t error = cudaEventRecord(event, state->stream);
    if (!error)
        error = cudaStreamWaitEvent(state->sender, event, 0);
    if (!error)
        error = cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, state->sender);
    return error ? error : record_or_wait(event, state->sender);
}

static tt_status queue_send(const tt_device *device, void *host, const void *from, size_t bytes, void **mark) {
    const tt__cuda_state *state = queue_of(device);
    cudaEvent_t event = NULL;
    tt_status status = tt__cuda_refuse(state, "copying %zu bytes from %s", bytes, state->name);
    if (!status)
        status = tt__cuda_enter(state);
    if (!status)
        status = new_event(state, &event);
    if (status)
        return status;
    status =
        tt__cuda_check(begin_sending(state, event, host, from, bytes), "copying %zu bytes from %s", bytes, state->name);
    if (status)
        (void)cudaEventDestroy(event);
    else
        *mark = event;
    return status;
}

static tt_status queue_sent(const tt_device *device, void *mark, bool wait, bool *done) {
    const tt__cuda_state *state = queue_of(device);
    /* events can be queried with any current device */
    tt_status status = tt__cuda_check_process(state);
    *done = true;
    if (status)
        return status;
    cudaError_t error = wait ? cudaEventSynchronize(mark) : cudaEventQuery(mark);
    *done = error != cudaErrorNotReady;
    if (!*done) {
        (void)cudaGetLastError();
        return TT_OK;
    }
    (void)cudaEventDestroy(mark);
    return tt__cuda_check(error, "copying from %s", state->name);
}

tt_status tt__cuda_mark_sender(const tt__cuda_state *state, void **mark) {
    cudaEvent_t event = NULL;
    tt_status status = new_event(state, &event);
    if (status)
        (void)cudaStreamSynchronize(state->sender);
    else
        status = tt__cuda_check(record_or_wait(event, state->sender), "recording an event on %s", state->name);
    if (status && event)
        (void)cudaEventDestroy(event);
    *mark = status ? NULL : event;
    return status;
}

static tt_status queue_receive(const tt_device *device, void *to, const void *host, size_t bytes) {
    const tt__cuda_state *state = queue_of(device);
    tt_status status = tt__cuda_refuse(state, "copying %zu bytes to %s", bytes, state->name);
    if (!status)
        status = tt__cuda_enter(state);
    return status ? status
                  : tt__cuda_check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, state->stream),
                                   "copying %zu bytes to %s", bytes, state->name);
}

static tt_status queue_mark(const tt_device *device, void **mark) {
    const tt__cuda_state *state = queue_of(device);
    cudaEvent_t event = *mark;
    tt_status status = tt__cuda_check_process(state);
    if (status)
        return status;
    status = tt__cuda_enter(state);
    if (!status && !event)
        status = new_event(state, &event);
    if (status)
        (void)cudaStreamSynchronize(state->stream);
    else
        status = tt__cuda_check(record_or_wait(event, state->stream), "recording an event on %s", state->name);
    if (status && event)
        (void)cudaEventDestroy(event);
    *mark = status ? NULL : event;
    return status;
}

static void *queue_stream(const tt_device *device) { return tt__cuda_stream(queue_of(device)); }

const tt__device_queue tt__cuda_queue = {.pin = queue_pin,
                                         .unpin = queue_unpin,
                                         .send = queue_send,
                                         .sent = queue_sent,
                                         .receive = queue_receive,
                                         .mark = queue_mark,
                                         .stream = queue_stream};
