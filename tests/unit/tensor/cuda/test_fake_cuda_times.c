/* Times between events of the fake of CUDA: those of its streams, and CUDA's own errors where there is none, as the
 * runtime's manual has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>

#include "support/fake_cuda/include/cuda_runtime_api.h"

#define FAKE_FUNCTIONS(X)        \
    X(cudaStreamCreateWithFlags) \
    X(cudaStreamDestroy)         \
    X(cudaStreamSynchronize)     \
    X(cudaStreamWaitEvent)       \
    X(cudaEventCreateWithFlags)  \
    X(cudaEventDestroy)          \
    X(cudaEventRecord)           \
    X(cudaEventElapsedTime)

enum { LATE_MS = 20 };

static struct {
#define FAKE_FIELD(name) __typeof__(&name) name;
    FAKE_FUNCTIONS(FAKE_FIELD)
} fake;

static int find(void **state) {
    char path[4096];
    (void)state;
    setenv("FAKE_CUDA_LATE", "20000", 1);
    setenv("FAKE_CUDA_SEED", "0", 1);
    snprintf(path, sizeof path, "%s/tests/fake_cuda/libcuda.so.1", getenv("TT_BUILD"));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -1;
#define FAKE_FIND(name) *(void **)&fake.name = dlsym(library, #name);
    FAKE_FUNCTIONS(FAKE_FIND)
    return 0;
}

static void times_are_those_of_the_stream(void **state) {
    (void)state;
    cudaStream_t stream, other;
    cudaEvent_t from, to, silent;
    float ms = -1, back = -1;
    assert_int_equal(fake.cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
    assert_int_equal(fake.cudaStreamCreateWithFlags(&other, 0), cudaSuccess);
    assert_int_equal(fake.cudaEventCreateWithFlags(&from, 0), cudaSuccess);
    assert_int_equal(fake.cudaEventCreateWithFlags(&to, 0), cudaSuccess);
    assert_int_equal(fake.cudaEventCreateWithFlags(&silent, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(fake.cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle); /* never recorded */
    assert_int_equal(fake.cudaEventRecord(from, stream), cudaSuccess);
    assert_int_equal(fake.cudaStreamWaitEvent(other, from, 0), cudaSuccess);
    assert_int_equal(fake.cudaEventRecord(silent, other), cudaSuccess);
    assert_int_equal(fake.cudaEventRecord(to, other), cudaSuccess);
    assert_int_equal(fake.cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    assert_int_equal(fake.cudaStreamSynchronize(other), cudaSuccess);
    assert_int_equal(fake.cudaEventElapsedTime(&ms, from, to), cudaSuccess);
    assert_true(ms >= 2 * LATE_MS); /* two more pieces of the other stream */
    assert_int_equal(fake.cudaEventElapsedTime(&back, to, from), cudaSuccess);
    assert_true(back == -ms);
    assert_int_equal(fake.cudaEventElapsedTime(&ms, silent, to), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake.cudaEventElapsedTime(&ms, from, silent), cudaErrorInvalidResourceHandle);
    assert_int_equal(fake.cudaStreamDestroy(stream) || fake.cudaStreamDestroy(other), 0);
    assert_int_equal(fake.cudaEventDestroy(from) || fake.cudaEventDestroy(to) || fake.cudaEventDestroy(silent), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(times_are_those_of_the_stream)};
    return cmocka_run_group_tests(tests, find, NULL);
}
