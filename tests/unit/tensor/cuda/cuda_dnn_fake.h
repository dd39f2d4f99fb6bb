/* Calls into the fake of cuDNN (tests/support/fake_cuda/cudnn.h), for tests of convolutions and attention on the CUDA
 * device. After cmocka.h. */
#ifndef TT_TESTS_UNIT_CUDA_DNN_FAKE_H
#define TT_TESTS_UNIT_CUDA_DNN_FAKE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

static long (*dnn_calls)(const char *name);
static void (*let_dnn_fail)(const char *name, int n, int status);
static void (*let_dnn_refuse)(int nth);
static long (*dnn_objects)(void);
static void (*be_dnn)(size_t version);

static inline void find_fake_dnn(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/libcudnn.so.9", getenv("TT_CUDA_PATH"));
    void *fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(fake);
    *(void **)&dnn_calls = dlsym(fake, "fake_cudnn_calls");
    *(void **)&let_dnn_fail = dlsym(fake, "fake_cudnn_fail");
    *(void **)&let_dnn_refuse = dlsym(fake, "fake_cudnn_refuse");
    *(void **)&dnn_objects = dlsym(fake, "fake_cudnn_objects");
    *(void **)&be_dnn = dlsym(fake, "fake_cudnn_be");
    assert_true(dnn_calls && let_dnn_fail && let_dnn_refuse && dnn_objects && be_dnn);
}

static inline long dnn_executions(void) { return dnn_calls("cudnnBackendExecute"); }
static inline long dnn_graphs(void) { return dnn_calls("cudnnBackendCreateDescriptor"); }

static inline int64_t bytes_in_use(void) {
    tt_device_memory memory = TT_DEVICE_MEMORY_INIT;
    assert_int_equal(tt_device_memory_get(TT_CUDA(0), &memory), TT_OK);
    return memory.allocated;
}

#endif
