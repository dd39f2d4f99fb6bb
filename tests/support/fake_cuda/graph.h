/* Captures of streams, and graphs: what streams and memory ask of them. */
#ifndef FAKE_CUDA_GRAPH_H
#define FAKE_CUDA_GRAPH_H

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

/* A capture under way; streams that wait for its events join it. */
struct fake_capture {
    cudaStream_t origin;
    std::thread::id thread;
    enum cudaStreamCaptureMode mode;
    bool invalid = false;
    std::vector<std::function<void()>> tasks; /* in an order that events allow */
    std::set<cudaStream_t> members, apart;    /* apart: has work that the origin has not waited for */
};

using fake_capture_ref = std::shared_ptr<fake_capture>;

/* The capture that a stream belongs to; NULL: none. */
fake_capture_ref &fake_capture_of(cudaStream_t stream);

/* Is the calling thread forbidden what might wait (cudaMallocHost(), cuMemCreate(), ...)? Its captures are invalid
 * then. */
bool fake_capture_forbids();

#endif
