/* Running the blocks of a kernel on the calling thread. */
#ifndef FAKE_CUDA_BLOCK_H
#define FAKE_CUDA_BLOCK_H

#include <cuda_runtime.h>

void fake_run_blocks(unsigned blocks, unsigned threads, bool waits, const std::function<void()> &body);

#endif
