/* Streams are threads that do one thing after the other, each behind a delay now and then; events are counters. */
#include "stream.h"
#include "block.h"
#include "graph.h"
#include "memory.h"
#include "mutant.h"
#include "settings.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

struct CUstream_st {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    unsigned long given = 0, done = 0;
    bool ends = false, detached = false; /* detached: the thread frees it */
    cudaError_t failed = cudaSuccess;    /* sticky, as a device's is */
    std::thread thread;
    fake_capture_ref capture; /* that it belongs to */
};

fake_capture_ref &fake_capture_of(cudaStream_t stream) { return stream->capture; }

/* What tasks hold of an event, which may be destroyed before them. */
struct event_state {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned long recorded = 0, reached = 0;
    std::chrono::steady_clock::time_point at; /* when it was reached last */
};

struct CUevent_st {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
    bool timed = true;
    void *place = nullptr;           /* that recorded it last */
    fake_capture_ref capture;        /* in which it was recorded last */
    cudaStream_t captured = nullptr; /* and where */
};

namespace {

void delay(std::mt19937 &draws) {
    static const long seed = fake_setting("FAKE_CUDA_SEED", 1);
    static const unsigned often = fake_has_mutant() ? 2 : 8;
    static const long late = fake_setting("FAKE_CUDA_LATE", 0);
    if (late)
        std::this_thread::sleep_for(std::chrono::microseconds(late));
    if (seed && draws() % often == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draws() % 300));
}

void work(CUstream_st *s) {
    std::mt19937 draws((unsigned)fake_setting("FAKE_CUDA_SEED", 1));
    std::unique_lock<std::mutex> held(s->mutex);
    for (;;) {
        s->changed.wait(held, [s] { return s->ends || !s->tasks.empty(); });
        if (s->tasks.empty())
            break;
        if (fake_overtakes() && s->tasks.size() > 1 && draws() % 8 == 0)
            std::swap(s->tasks[0], s->tasks[1]);
        std::function<void()> task = std::move(s->tasks.front());
        s->tasks.pop_front();
        held.unlock();
        delay(draws);
        task();
        task = nullptr; /* with it ends what it holds, before anybody is told */
        held.lock();
        s->done++;
        s->changed.notify_all();
    }
    held.unlock();
    if (s->detached)
        delete s;
}

/* Of a capturing stream: the work is kept. A call that fails leaves the capture invalid. */
cudaError_t capture_task(CUstream_st *s, std::function<void()> task, std::function<void()> first) {
    if (fake_fails()) {
        s->capture->invalid = true;
        return fake_error(cudaErrorLaunchFailure);
    }
    if (s->capture->invalid)
        return fake_error(cudaErrorStreamCaptureInvalidated);
    if (s != s->capture->origin)
        s->capture->apart.insert(s);
    for (std::function<void()> *next : {&first, &task})
        if (*next)
            s->capture->tasks.push_back(std::move(*next));
    return cudaSuccess;
}

/* The null stream: Tutti never uses it. */
cudaError_t no_stream() { return fake_error(cudaErrorInvalidResourceHandle); }

/* `first`, if given, comes before the task. */
cudaError_t enqueue(CUstream_st *s, std::function<void()> task, std::function<void()> first = nullptr) {
    if (!s)
        return no_stream();
    if (s->capture)
        return capture_task(s, std::move(task), std::move(first));
    if (fake_fails())
        return fake_error(cudaErrorLaunchFailure);
    std::lock_guard<std::mutex> held(s->mutex);
    for (std::function<void()> *next : {&first, &task}) {
        if (!*next)
            continue;
        s->tasks.push_back(std::move(*next));
        s->given++;
    }
    s->changed.notify_all();
    return cudaSuccess;
}

/* What a read finds that comes before the copy has: NaN, or -1. */
void poison(void *p, size_t bytes) { memset(p, 0xff, bytes); }

} /* namespace */

cudaError_t fake_launch(unsigned blocks, unsigned threads, bool waits, cudaStream_t stream,
                        std::function<void()> body) {
    fake_count_launch();
    return enqueue(stream, [=] { fake_run_blocks(blocks, threads, waits, body); });
}

int fake_enqueue(void *stream, std::function<void()> task) { return enqueue((CUstream_st *)stream, std::move(task)); }

/* ---- streams ---- */

void fake_stream_detach(void *stream) {
    CUstream_st *s = (CUstream_st *)stream;
    std::lock_guard<std::mutex> held(s->mutex);
    s->ends = s->detached = true;
    s->thread.detach();
    s->changed.notify_all();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    if (fake_fails())
        return fake_error(cudaErrorMemoryAllocation);
    *stream = new CUstream_st;
    (*stream)->thread = std::thread(work, *stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream->capture) {
        stream->capture->invalid = true;
        stream->capture->members.erase(stream);
    }
    {
        std::lock_guard<std::mutex> held(stream->mutex);
        stream->ends = true;
        stream->changed.notify_all();
    }
    stream->thread.join();
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream->capture) {
        stream->capture->invalid = true;
        return fake_error(cudaErrorStreamCaptureUnsupported);
    }
    fake_count_wait();
    if (FAKE_PLANTED(FAKE_STREAM_SYNC))
        return cudaSuccess;
    std::unique_lock<std::mutex> held(stream->mutex);
    unsigned long until = stream->given;
    stream->changed.wait(held, [=] { return stream->done >= until; });
    return fake_error(fake_fails() ? cudaErrorLaunchFailure : stream->failed); /* nothing writes after a failure */
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    static const unsigned long most = (unsigned long)fake_setting("FAKE_CUDA_TIMED_EVENTS", -1);
    const bool timed = !(flags & cudaEventDisableTiming);
    if (timed && fake_count_timed_event() > most)
        return fake_error(cudaErrorMemoryAllocation);
    *event = new CUevent_st;
    (*event)->timed = timed;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

using event = std::shared_ptr<event_state>;

static void event_reached(const event &e, unsigned long number) {
    std::lock_guard<std::mutex> held(e->mutex);
    e->reached = number > e->reached ? number : e->reached;
    e->at = std::chrono::steady_clock::now();
    e->changed.notify_all();
}

static void event_await(const event &e, unsigned long number) {
    std::unique_lock<std::mutex> held(e->mutex);
    e->changed.wait(held, [&] { return e->reached >= number; });
}

static unsigned long event_recorded(const event &e, bool again) {
    std::lock_guard<std::mutex> held(e->mutex);
    return again ? ++e->recorded : e->recorded;
}

cudaError_t fake_event_record(cudaEvent_t given, cudaStream_t stream, void *place) {
    const bool planted = fake_is_planted(FAKE_EVENT_RECORD, place);
    event e = given->state;
    given->place = place;
    if (!stream)
        return no_stream();
    given->capture = stream->capture;
    given->captured = stream;
    if (stream->capture)
        return stream->capture->invalid ? fake_error(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
    unsigned long number = event_recorded(e, true);
    if (planted)
        event_reached(e, number);
    return planted ? cudaSuccess : enqueue(stream, [=] { event_reached(e, number); });
}

/* Work of a capture may wait for its own events alone; who waits for one joins it. */
static cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t given) {
    if (stream->capture && stream->capture != given->capture) {
        stream->capture->invalid = true;
        return fake_error(given->capture ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
    }
    stream->capture = given->capture;
    stream->capture->members.insert(stream);
    if (stream == stream->capture->origin)
        stream->capture->apart.erase(given->captured);
    else
        stream->capture->apart.insert(stream);
    return cudaSuccess;
}

cudaError_t fake_stream_wait(cudaStream_t stream, cudaEvent_t given, bool planted) {
    if (!stream)
        return no_stream();
    fake_note_recorded(given->place);
    if (stream->capture || given->capture)
        return wait_in_capture(stream, given);
    event e = given->state;
    unsigned long number = event_recorded(e, false);
    return planted ? cudaSuccess : enqueue(stream, [=] { event_await(e, number); });
}

cudaError_t fake_event_query(cudaEvent_t given, bool planted) {
    fake_note_recorded(given->place);
    if (given->capture)
        return fake_error(cudaErrorCapturedEvent);
    std::lock_guard<std::mutex> held(given->state->mutex);
    return planted || given->state->reached >= given->state->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return fake_event_record(event, stream, __builtin_return_address(0));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return fake_stream_wait(stream, event, FAKE_PLANTED(FAKE_STREAM_WAIT));
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return fake_event_query(event, FAKE_PLANTED(FAKE_EVENT_QUERY)); }

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->capture)
        return fake_error(cudaErrorCapturedEvent);
    fake_count_wait();
    fake_note_recorded(event->place);
    if (!FAKE_PLANTED(FAKE_EVENT_SYNC))
        event_await(event->state, event_recorded(event->state, false));
    return cudaSuccess;
}

/* Both must have been recorded and reached. FAKE_CUDA_NO_TIMES: it fails, as after another failure. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    std::chrono::steady_clock::time_point at[2];
    static const bool none = fake_setting("FAKE_CUDA_NO_TIMES", 0);
    cudaEvent_t events[] = {from, to};
    if (none)
        return fake_error(cudaErrorLaunchFailure);
    for (int i = 0; i < 2; i++) {
        const event e = events[i]->state;
        std::lock_guard<std::mutex> held(e->mutex);
        if (!events[i]->timed || !e->recorded)
            return fake_error(cudaErrorInvalidResourceHandle);
        if (e->reached < e->recorded)
            return fake_error(cudaErrorNotReady);
        at[i] = e->at;
    }
    *ms = std::chrono::duration<float, std::milli>(at[1] - at[0]).count();
    return cudaSuccess;
}

/* ---- copies ---- */

/* Of pageable host memory the bytes are taken at once. What the host is given is garbage until the copy is there: from
 * now on, or where earlier work may still read it, in pinned memory, from when that work is done. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (!stream)
        return no_stream();
    if (stream->capture) /* the host's memory is read and written at each launch */
        return enqueue(stream, [=] { memmove(to, from, bytes); });
    if (kind == cudaMemcpyHostToDevice && !fake_is_pinned(from)) {
        fake_count_pageable();
        std::shared_ptr<std::string> staged = std::make_shared<std::string>((const char *)from, bytes);
        return enqueue(stream, [=] { memcpy(to, staged->data(), bytes); });
    }
    std::shared_ptr<fake_use> use;
    if (kind != cudaMemcpyDeviceToDevice)
        use = std::make_shared<fake_use>(kind == cudaMemcpyHostToDevice ? from : to);
    if (kind == cudaMemcpyDeviceToHost && fake_is_pinned(to))
        return enqueue(
            stream, [=, use = use] { memmove(to, from, bytes); }, [=, use = use] { poison(to, bytes); });
    if (kind == cudaMemcpyDeviceToHost)
        poison(to, bytes);
    return enqueue(stream, [=, use = use] { memmove(to, from, bytes); });
}
