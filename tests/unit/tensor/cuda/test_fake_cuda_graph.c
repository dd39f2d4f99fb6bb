/* Captures and graphs of the fake of CUDA (tests/support/fake_cuda/graph.cc): what is captured runs at each launch and
 * not before, and what must not be captured gets CUDA's own errors, as the programming guide and the runtime's manual
 * have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "support/fake_cuda/include/cuda_runtime_api.h"

/* The fake's functions, by name. */
#define FAKE_FUNCTIONS(X)                  \
    X(cudaStreamCreateWithFlags)           \
    X(cudaStreamDestroy)                   \
    X(cudaStreamSynchronize)               \
    X(cudaStreamWaitEvent)                 \
    X(cudaEventCreateWithFlags)            \
    X(cudaEventDestroy)                    \
    X(cudaEventRecord)                     \
    X(cudaEventQuery)                      \
    X(cudaEventSynchronize)                \
    X(cudaMemcpyAsync)                     \
    X(cudaMallocHost)                      \
    X(cudaFreeHost)                        \
    X(cudaStreamBeginCapture)              \
    X(cudaStreamEndCapture)                \
    X(cudaThreadExchangeStreamCaptureMode) \
    X(cudaGraphInstantiate)                \
    X(cudaGraphLaunch)                     \
    X(cudaGraphDestroy)                    \
    X(cudaGraphExecDestroy)

static struct {
#define FAKE_FIELD(name) __typeof__(&name) name;
    FAKE_FUNCTIONS(FAKE_FIELD)
} fake;

static cudaStream_t stream, side;
static cudaEvent_t event, join;

static int find(void **state) {
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/tests/fake_cuda/libcuda.so.1", getenv("TT_BUILD"));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -1;
#define FAKE_FIND(name) *(void **)&fake.name = dlsym(library, #name);
    FAKE_FUNCTIONS(FAKE_FIND)
    return fake.cudaStreamCreateWithFlags(&stream, 0) || fake.cudaStreamCreateWithFlags(&side, 0) ||
           fake.cudaEventCreateWithFlags(&event, 0) || fake.cudaEventCreateWithFlags(&join, 0);
}

static int give_back(void **state) {
    (void)state;
    return fake.cudaStreamDestroy(stream) || fake.cudaStreamDestroy(side) || fake.cudaEventDestroy(event) ||
           fake.cudaEventDestroy(join);
}

static void begin(void) {
    assert_int_equal(fake.cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
}

/* End a capture that is to have failed; the stream is usable again. */
static void end_failed(cudaError_t error) {
    cudaGraph_t graph = (cudaGraph_t)&stream;
    assert_int_equal(fake.cudaStreamEndCapture(stream, &graph), error);
    assert_null(graph);
    assert_int_equal(fake.cudaStreamSynchronize(stream), cudaSuccess);
}

static void copy(cudaStream_t on, int64_t *to, const int64_t *from) {
    assert_int_equal(fake.cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDeviceToDevice, on), cudaSuccess);
}

static void what_is_captured_runs_at_each_launch(void **state) {
    (void)state;
    int64_t a = 1, b = 0, c = 0;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin();
    copy(stream, &b, &a);
    assert_int_equal(fake.cudaEventRecord(event, stream), cudaSuccess);
    assert_int_equal(fake.cudaStreamWaitEvent(side, event, 0), cudaSuccess); /* the other stream joins */
    copy(side, &c, &b);
    assert_int_equal(fake.cudaEventRecord(join, side), cudaSuccess);
    assert_int_equal(fake.cudaStreamWaitEvent(stream, join, 0), cudaSuccess);
    assert_int_equal(fake.cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(fake.cudaStreamSynchronize(side), cudaSuccess);
    assert_true(b == 0 && c == 0);
    assert_int_equal(fake.cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    assert_int_equal(fake.cudaGraphDestroy(graph), cudaSuccess);
    for (int64_t i = 1; i < 4; i++) {
        a = 10 * i;
        assert_int_equal(fake.cudaGraphLaunch(exec, stream), cudaSuccess);
        assert_int_equal(fake.cudaStreamSynchronize(stream), cudaSuccess);
        assert_true(b == 10 * i && c == 10 * i);
    }
    assert_int_equal(fake.cudaGraphLaunch(exec, stream), cudaSuccess);
    assert_int_equal(fake.cudaGraphExecDestroy(exec), cudaSuccess); /* what is under way ends */
    assert_int_equal(fake.cudaStreamSynchronize(stream), cudaSuccess);
}

static void waiting_for_a_capture_ends_it(void **state) {
    (void)state;
    int64_t a = 1, b = 0;
    begin();
    assert_int_equal(fake.cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(fake.cudaMemcpyAsync(&b, &a, sizeof a, cudaMemcpyDeviceToDevice, stream),
                     cudaErrorStreamCaptureInvalidated);
    end_failed(cudaErrorStreamCaptureInvalidated);
    assert_int_equal(b, 0);
}

static void events_of_a_capture_are_its_own(void **state) {
    (void)state;
    begin();
    assert_int_equal(fake.cudaEventRecord(event, stream), cudaSuccess);
    assert_int_equal(fake.cudaEventQuery(event), cudaErrorCapturedEvent);
    assert_int_equal(fake.cudaEventSynchronize(event), cudaErrorCapturedEvent);
    assert_int_equal(fake.cudaStreamWaitEvent(side, event, 0), cudaSuccess);
    end_failed(cudaErrorStreamCaptureUnjoined);
    assert_int_equal(fake.cudaEventRecord(event, side), cudaSuccess);
    begin();
    assert_int_equal(fake.cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    end_failed(cudaErrorStreamCaptureInvalidated);
    assert_int_equal(fake.cudaEventSynchronize(event), cudaSuccess);
}

static void a_thread_that_captures_takes_no_memory(void **state) {
    (void)state;
    void *p;
    begin();
    assert_int_equal(fake.cudaMallocHost(&p, 64), cudaErrorStreamCaptureUnsupported);
    end_failed(cudaErrorStreamCaptureInvalidated);
    begin();
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    assert_int_equal(fake.cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    assert_int_equal(fake.cudaMallocHost(&p, 64), cudaSuccess);
    assert_int_equal(fake.cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    cudaGraph_t graph;
    assert_int_equal(fake.cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(fake.cudaGraphDestroy(graph), cudaSuccess);
    assert_int_equal(fake.cudaFreeHost(p), cudaSuccess);
}

static void *end_elsewhere(void *error) {
    cudaGraph_t graph;
    void *p;
    *(cudaError_t *)error = fake.cudaStreamEndCapture(stream, &graph);
    return fake.cudaMallocHost(&p, 64) || fake.cudaFreeHost(p) ? error : NULL; /* another's capture is none of it */
}

static void captures_begin_and_end_in_order(void **state) {
    (void)state;
    cudaGraph_t graph;
    cudaError_t error;
    pthread_t thread;
    void *failed;
    assert_int_equal(fake.cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    begin();
    assert_int_equal(fake.cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &error), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_true(error == cudaErrorStreamCaptureWrongThread && !failed);
    assert_int_equal(fake.cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(fake.cudaGraphDestroy(graph), cudaSuccess);
}

int main(void) {
    if (!getenv("TT_BUILD"))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_captured_runs_at_each_launch),
        cmocka_unit_test(waiting_for_a_capture_ends_it),
        cmocka_unit_test(events_of_a_capture_are_its_own),
        cmocka_unit_test(a_thread_that_captures_takes_no_memory),
        cmocka_unit_test(captures_begin_and_end_in_order),
    };
    return cmocka_run_group_tests(tests, find, give_back);
}
