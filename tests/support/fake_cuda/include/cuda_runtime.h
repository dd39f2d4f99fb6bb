/* What kernels are written with, for a C++ compiler: see cuda_runtime_api.h. A kernel's threads are run one after the
 * other, or, where they wait for each other (__syncthreads), as coroutines of one host thread. */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local /* a stream runs one block at a time */

struct dim3 {
    unsigned x, y, z;
};
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Wait for the other threads of the block. */
void __syncthreads();

/* Enqueue a kernel: `body` is called for each thread. `waits`: its threads wait for each other. */
cudaError_t fake_launch(unsigned blocks, unsigned threads, bool waits, cudaStream_t stream, std::function<void()> body);

#endif
