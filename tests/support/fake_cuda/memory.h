#ifndef FAKE_CUDA_MEMORY_H
#define FAKE_CUDA_MEMORY_H

#include <cstddef>

/* Does p lie in memory of cudaMallocHost(), or that was registered? How many such ranges are there? Tests find it by
 * dlsym(). */
bool fake_is_pinned(const void *p);
extern "C" size_t fake_pinned_ranges();

#endif
