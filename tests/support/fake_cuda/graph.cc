/* Graphs: tasks that were put on a capturing stream, to be run in the same order at each launch. */
#include "graph.h"
#include "settings.h"
#include "stream.h"

#include <mutex>

struct CUgraph_st {
    std::shared_ptr<const std::vector<std::function<void()>>> tasks;
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<std::function<void()>>> tasks;
};

namespace {

std::mutex mutex;
std::set<fake_capture_ref> captures;
thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
unsigned long graphs; /* that were not destroyed, ready ones too */

void end_capture(const fake_capture_ref &capture) {
    std::lock_guard<std::mutex> held(mutex);
    captures.erase(capture);
    for (cudaStream_t stream : std::set<cudaStream_t>(capture->members))
        fake_capture_of(stream) = nullptr;
}

} /* namespace */

unsigned long fake_cuda_graphs() { return graphs; }

bool fake_capture_forbids() {
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    std::lock_guard<std::mutex> held(mutex);
    bool forbids = false;
    for (const fake_capture_ref &capture : captures) {
        bool mine = capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
        if (!mine && (thread_mode != cudaStreamCaptureModeGlobal || capture->mode != cudaStreamCaptureModeGlobal))
            continue;
        capture->invalid = forbids = true;
    }
    return forbids;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    if (fake_capture_of(stream))
        return fake_error(cudaErrorIllegalState);
    fake_capture_ref capture = std::make_shared<fake_capture>();
    capture->origin = stream;
    capture->thread = std::this_thread::get_id();
    capture->mode = mode;
    capture->members.insert(stream);
    fake_capture_of(stream) = capture;
    std::lock_guard<std::mutex> held(mutex);
    captures.insert(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    fake_capture_ref capture = fake_capture_of(stream);
    *graph = nullptr;
    if (!capture)
        return fake_error(cudaErrorIllegalState);
    if (capture->origin != stream)
        return fake_error(cudaErrorStreamCaptureUnmatched);
    if (capture->thread != std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed)
        return fake_error(cudaErrorStreamCaptureWrongThread);
    end_capture(capture);
    if (fake_fails())
        return fake_error(cudaErrorUnknown);
    if (capture->invalid)
        return fake_error(cudaErrorStreamCaptureInvalidated);
    if (!capture->apart.empty())
        return fake_error(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{std::make_shared<const std::vector<std::function<void()>>>(std::move(capture->tasks))};
    graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (nodes) /* the fake's have none to show */
        return fake_error(cudaErrorInvalidValue);
    *count = graph->tasks->size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    if (fake_fails())
        return fake_error(cudaErrorMemoryAllocation);
    *exec = new CUgraphExec_st{graph->tasks};
    graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    std::shared_ptr<const std::vector<std::function<void()>>> tasks = exec->tasks;
    return (cudaError_t)fake_enqueue(stream, [tasks] {
        for (const std::function<void()> &task : *tasks)
            task();
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    graphs--;
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    graphs--;
    delete exec;
    return cudaSuccess;
}
