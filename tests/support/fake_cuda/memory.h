#ifndef FAKE_CUDA_MEMORY_H
#define FAKE_CUDA_MEMORY_H

/* Does p lie in memory of cudaMallocHost()? */
bool fake_is_pinned(const void *p);

#endif
