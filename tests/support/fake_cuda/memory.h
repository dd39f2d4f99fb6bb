#ifndef FAKE_CUDA_MEMORY_H
#define FAKE_CUDA_MEMORY_H

#include <cuda.h>

#include <cstddef>

/* How much of a device's memory is taken: what tests compare with what the library says. */
extern "C" size_t fake_memory_taken(int device);

/* How much memory each has: FAKE_CUDA_MEMORY. */
size_t fake_device_memory();

/* Devices of the machine: FAKE_CUDA_DEVICES. */
int fake_device_count();

/* The device whose memory p lies in; -1: none's. */
int fake_device_of(CUdeviceptr p);

/* Does p lie in memory of cudaMallocHost(), or that was registered? How many registered ranges are there? Tests find
 * that by dlsym(). */
bool fake_is_pinned(const void *p);
extern "C" size_t fake_pinned_ranges();

/* A copy from or to the host's memory at p is under way as long as this lives. Who frees or unpins that memory
 * meanwhile is told, and the process ends. */
class fake_use {
  public:
    explicit fake_use(const void *p);
    ~fake_use();
    fake_use(const fake_use &) = delete;
    fake_use &operator=(const fake_use &) = delete;

  private:
    const char *p;
};

#endif
