/* Environment variables that the fake reads, once each:
 *   FAKE_CUDA_DEVICES=2      devices there are (2)
 *   FAKE_CUDA_MEMORY=65536   MiB of each (64), from which cuMemCreate() takes
 *   FAKE_CUDA_SEED=7         what delays are drawn from (1); 0: none
 *   FAKE_CUDA_LATE=500       each piece of a stream's work comes so many microseconds later (0)
 *   FAKE_CUDA_FAIL=n         call number n of those that can fail does, counted from 1, and so do all that follow it
 *   FAKE_CUDA_CAPABILITY=8   the devices' compute capability, its first number (9)
 *   FAKE_CUDA_FAIL_ONE=n     call number n alone fails
 *   FAKE_CUDA_NO_TIMES=1     cudaEventElapsedTime() fails
 *   FAKE_CUDA_TIMED_EVENTS=2 only so many events with times can be made
 *   FAKE_CUDA_ANY_MEMORY=1   all memory is said to be cuda:0's
 *   FAKE_CUDA_PINS=0         memory of the program's can't be pinned, as where too much of it is locked
 *   FAKE_CUDA_SHARES=0       memory can't be shared with other processes
 *   FAKE_CUDA_DIE=1          cuInit() and cudaGetDeviceCount() kill the process
 *   FAKE_CUDA_DRIVER=11080   the version of the driver (13000); 0: there is none */
#ifndef FAKE_CUDA_SETTINGS_H
#define FAKE_CUDA_SETTINGS_H

#include <cuda_runtime_api.h>

long fake_setting(const char *name, long otherwise);

/* Count a call that can fail. True: it must. */
bool fake_fails();

/* Counts for tests, found by dlsym() in libcuda.so.1: the host's waits for a device, kernels launched (and captured),
 * copies to devices from memory that is not pinned, calls that failed because a variable let them, events with times
 * that were made, and graphs that were not destroyed. */
extern "C" unsigned long fake_cuda_waits(void), fake_cuda_launches(void), fake_cuda_pageable(void),
    fake_cuda_failures(void), fake_cuda_events(void), fake_cuda_graphs(void);
void fake_count_pageable();
unsigned long fake_count_timed_event();
void fake_count_wait();
void fake_count_launch();

/* Record `error` as the thread's last one, and return it. */
cudaError_t fake_error(cudaError_t error);

#endif
