/* Streams are threads that do one thing after the other, each behind a delay now and then; events are counters. */
#include "block.h"
#include "memory.h"
#include "settings.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

struct fake_stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    unsigned long given = 0, done = 0;
    bool ends = false;
    cudaError_t failed = cudaSuccess; /* sticky, as a device's is */
    std::thread thread;
};

struct fake_event {
    std::mutex mutex;
    std::condition_variable changed;
    unsigned long recorded = 0, reached = 0;
};

namespace {

void delay(std::mt19937 &draws) {
    static const long seed = fake_setting("FAKE_CUDA_SEED", 1);
    if (seed && draws() % 8 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draws() % 300));
}

void work(fake_stream *s) {
    std::mt19937 draws((unsigned)fake_setting("FAKE_CUDA_SEED", 1));
    std::unique_lock<std::mutex> held(s->mutex);
    for (;;) {
        s->changed.wait(held, [s] { return s->ends || !s->tasks.empty(); });
        if (s->tasks.empty())
            return;
        std::function<void()> task = std::move(s->tasks.front());
        s->tasks.pop_front();
        held.unlock();
        delay(draws);
        task();
        held.lock();
        s->done++;
        s->changed.notify_all();
    }
}

cudaError_t enqueue(fake_stream *s, std::function<void()> task) {
    if (!s)
        return fake_error(cudaErrorInvalidResourceHandle); /* the null stream: Tutti never uses it */
    if (fake_fails())
        return fake_error(cudaErrorLaunchFailure);
    std::lock_guard<std::mutex> held(s->mutex);
    s->tasks.push_back(std::move(task));
    s->given++;
    s->changed.notify_all();
    return cudaSuccess;
}

/* What a read finds that comes before the copy has: NaN, or -1. */
void poison(void *p, size_t bytes) { memset(p, 0xff, bytes); }

} /* namespace */

cudaError_t fake_launch(unsigned blocks, unsigned threads, bool waits, cudaStream_t stream,
                        std::function<void()> body) {
    return enqueue(stream, [=] { fake_run_blocks(blocks, threads, waits, body); });
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    if (fake_fails())
        return fake_error(cudaErrorMemoryAllocation);
    *stream = new fake_stream;
    (*stream)->thread = std::thread(work, *stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
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
    if (fake_fails())
        return fake_error(cudaErrorLaunchFailure);
    std::unique_lock<std::mutex> held(stream->mutex);
    unsigned long until = stream->given;
    stream->changed.wait(held, [=] { return stream->done >= until; });
    return fake_error(stream->failed);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = new fake_event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

static void event_reached(cudaEvent_t event, unsigned long number) {
    std::lock_guard<std::mutex> held(event->mutex);
    event->reached = number > event->reached ? number : event->reached;
    event->changed.notify_all();
}

static void event_await(cudaEvent_t event, unsigned long number) {
    std::unique_lock<std::mutex> held(event->mutex);
    event->changed.wait(held, [=] { return event->reached >= number; });
}

static unsigned long event_recorded(cudaEvent_t event, bool again) {
    std::lock_guard<std::mutex> held(event->mutex);
    return again ? ++event->recorded : event->recorded;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    unsigned long number = event_recorded(event, true);
    return enqueue(stream, [=] { event_reached(event, number); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    unsigned long number = event_recorded(event, false);
    return enqueue(stream, [=] { event_await(event, number); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    std::lock_guard<std::mutex> held(event->mutex);
    return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    event_await(event, event_recorded(event, false));
    return cudaSuccess;
}

/* ---- copies ---- */

/* Of pageable host memory the bytes are taken at once; what the host is given is garbage until the copy is there. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (kind == cudaMemcpyHostToDevice && !fake_is_pinned(from)) {
        std::shared_ptr<std::string> staged = std::make_shared<std::string>((const char *)from, bytes);
        return enqueue(stream, [=] { memcpy(to, staged->data(), bytes); });
    }
    if (kind == cudaMemcpyDeviceToHost)
        poison(to, bytes);
    return enqueue(stream, [=] { memmove(to, from, bytes); });
}
