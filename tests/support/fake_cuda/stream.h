/* What fakes of other libraries need of streams and contexts. */
#ifndef FAKE_CUDA_STREAM_H
#define FAKE_CUDA_STREAM_H

#include <cuda_runtime_api.h>

#include <functional>

/* Put a task on a stream; 0, or the error. */
int fake_enqueue(void *stream, std::function<void()> task);

/* Forget a stream, as cuStreamDestroy() does: what it holds still runs. */
void fake_stream_detach(void *stream);

/* The runtime's and the driver's calls; `planted`: without an effect (mutant.h), as of a record from some `place`. */
cudaError_t fake_event_record(cudaEvent_t event, cudaStream_t stream, void *place);
cudaError_t fake_stream_wait(cudaStream_t stream, cudaEvent_t event, bool planted);
cudaError_t fake_event_query(cudaEvent_t event, bool planted);

/* The device of the thread's current context; -1: it has none. */
int fake_context_device();

/* Which of the machine's devices CUDA_VISIBLE_DEVICES makes this process's `device`. -1: none. */
int fake_physical_device(int device);

#endif
