#include "settings.h"

#include <atomic>
#include <cstdlib>

long fake_setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static std::atomic<unsigned long> waits, launches, pageable, failures, timed_events;

bool fake_fails() {
    static const long from = fake_setting("FAKE_CUDA_FAIL", 0), one = fake_setting("FAKE_CUDA_FAIL_ONE", 0);
    static std::atomic<long> calls{0};
    const long number = ++calls;
    const bool fails = (from && number >= from) || number == one;
    failures += fails;
    return fails;
}

unsigned long fake_cuda_waits() { return waits; }
unsigned long fake_cuda_launches() { return launches; }
unsigned long fake_cuda_pageable() { return pageable; }
unsigned long fake_cuda_failures() { return failures; }
unsigned long fake_cuda_events() { return timed_events; }
unsigned long fake_count_timed_event() { return ++timed_events; }
void fake_count_pageable() { pageable++; }
void fake_count_wait() { waits++; }
void fake_count_launch() { launches++; }

static thread_local cudaError_t last;

cudaError_t fake_error(cudaError_t error) {
    if (error)
        last = error;
    return error;
}

cudaError_t cudaGetLastError() {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
