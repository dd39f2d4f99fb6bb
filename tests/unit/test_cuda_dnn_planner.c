/* What NVIDIA's own cuDNN says of the descriptors that the CUDA device makes, and which plans it finds for them,
 * without a GPU: since 9.8 it plans for a device that is described in a text. Skipped where cuDNN is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "base/nvidia_library.h"
#include "tensor/cuda/cuda_dnn_plan.h"

enum { DEVICE = 38, DEVICE_TEXT = 2702, AS_CHAR = 24, HEUR_DEVICE = 204, PLAN_DEVICE = 407 };

static const char h100[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
    "\"multiProcessorCount\": 132, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
    "\"l2CacheSize\": 52428800, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
    "\"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024, "
    "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
    "\"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"driverVer\": 13000, "
    "\"deviceVer\": 900, \"cudaDeviceId\": 0, \"totalGlobalMem\": 85029158912, "
    "\"deviceName\": \"NVIDIA H100 80GB HBM3\"}";

static tt__dnn real, planner;
static tt__dnn_object device;
static tt__dnn_plans plans;

/* A handle needs a GPU: where the code names one, the device is named. */
static int set_without_handle(tt__dnn_object object, int name, int type, int64_t count, const void *list) {
    if (name == TT__DNN_GRAPH_HANDLE)
        return TT__DNN_OK;
    if (name == TT__DNN_PLAN_HANDLE)
        return real.BackendSetAttribute(object, PLAN_DEVICE, TT__DNN_AS_DESCRIPTOR, 1, &device);
    int status = real.BackendSetAttribute(object, name, type, count, list);
    if (!status && name == TT__DNN_HEUR_GRAPH)
        status = real.BackendSetAttribute(object, HEUR_DEVICE, TT__DNN_AS_DESCRIPTOR, 1, &device);
    return status;
}

static bool find_planner(void) {
    char text[2048];
    void *object = tt__nvidia_open(&tt__nvidia_cudnn, text, sizeof text);
    if (!object)
        return false;
#define ENTRY(function, result, arguments) *(void **)&real.function = dlsym(object, "cudnn" #function);
    TT__DNN_FUNCTIONS(ENTRY)
#undef ENTRY
    if (!real.BackendCreateDescriptor || real.BackendCreateDescriptor(DEVICE, &device))
        return false;
    planner = real;
    planner.BackendSetAttribute = set_without_handle;
    plans.use.dnn = &planner;
    return !real.BackendSetAttribute(device, DEVICE_TEXT, AS_CHAR, (int64_t)strlen(h100), h100) &&
           !real.BackendFinalize(device);
}

typedef struct planned {
    const char *name;
    tt__dnn_direction direction;
    tt_dtype dtype;
    bool channels_last;
    int64_t C, K, groups, R, stride, padding, dilation;
} planned;

static const planned planned_cases[] = {
    {"y, f16, channels last", TT__DNN_MAKES_Y, TT_F16, true, 64, 32, 1, 3, 1, 1, 1},
    {"dx, f16, channels last", TT__DNN_MAKES_DX, TT_F16, true, 64, 32, 1, 3, 2, 1, 1},
    {"dw, f16, channels last", TT__DNN_MAKES_DW, TT_F16, true, 64, 32, 1, 3, 1, 2, 2},
    {"y, bf16, contiguous", TT__DNN_MAKES_Y, TT_BF16, false, 64, 32, 1, 1, 1, 0, 1},
    {"dw, bf16, contiguous", TT__DNN_MAKES_DW, TT_BF16, false, 64, 32, 1, 3, 1, 1, 1},
    {"y, f32, contiguous", TT__DNN_MAKES_Y, TT_F32, false, 3, 16, 1, 5, 2, 2, 1},
    {"dx, f32, contiguous", TT__DNN_MAKES_DX, TT_F32, false, 16, 32, 1, 3, 1, 1, 1},
    {"dw, f32, contiguous", TT__DNN_MAKES_DW, TT_F32, false, 16, 32, 1, 3, 1, 1, 1},
    {"y, f32, groups", TT__DNN_MAKES_Y, TT_F32, false, 16, 32, 4, 3, 1, 1, 1},
    {"y, f16, a group a channel", TT__DNN_MAKES_Y, TT_F16, true, 32, 32, 32, 3, 1, 1, 1},
};

static tt__dnn_key key_of_case(const planned *c) {
    const int64_t out = (20 + 2 * c->padding - c->dilation * (c->R - 1) - 1) / c->stride + 1;
    return (tt__dnn_key){.direction = c->direction,
                         .dtype = c->dtype,
                         .channels_last = c->channels_last,
                         .x = {8, c->C, 20, 20},
                         .y = {8, c->K, out, out},
                         .w = {c->K, c->C / c->groups, c->R, c->R},
                         .stride = {c->stride, c->stride},
                         .padding = {c->padding, c->padding},
                         .dilation = {c->dilation, c->dilation},
                         .alignment = {16, 16, 16}};
}

/* The numerical notes of a plan's engine. */
static int notes_of(const tt__dnn_plan *plan, int list[16]) {
    tt__dnn_object engine;
    int64_t count = 0;
    assert_int_equal(real.BackendCreateDescriptor(TT__DNN_ENGINE, &engine), 0);
    assert_int_equal(
        real.BackendGetAttribute(plan->config, TT__DNN_CONFIG_ENGINE, TT__DNN_AS_DESCRIPTOR, 1, &count, &engine), 0);
    assert_int_equal(real.BackendGetAttribute(engine, TT__DNN_ENGINE_NOTES, TT__DNN_AS_NOTE, 16, &count, list), 0);
    real.BackendDestroyDescriptor(engine);
    return (int)count;
}

static void cudnn_plans_what_is_described(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof planned_cases / sizeof *planned_cases; i++) {
        const tt__dnn_key key = key_of_case(&planned_cases[i]);
        tt__dnn_plan *plan = NULL;
        int notes[16], status = tt__dnn_plan_for(&plans, &key, &plan);
        if (status)
            fail_msg("%s: %s of %s: %s", planned_cases[i].name, plans.use.function, plans.use.object,
                     real.GetErrorString(status));
        if (plan->refused)
            fail_msg("%s: no plan", planned_cases[i].name);
        for (int n = notes_of(plan, notes); n > 0; n--)
            if (notes[n - 1] == TT__DNN_NOTE_NONDETERMINISTIC ||
                (notes[n - 1] == TT__DNN_NOTE_TENSOR_CORE && key.dtype == TT_F32))
                fail_msg("%s: an engine with note %d", planned_cases[i].name, notes[n - 1]);
    }
}

/* What doesn't fit together is refused, not failed. */
static void cudnn_refuses_wrong_sizes(void **state) {
    (void)state;
    tt__dnn_key key = key_of_case(&planned_cases[0]);
    tt__dnn_plan *plan = NULL;
    key.y[3]++;
    assert_int_equal(tt__dnn_plan_for(&plans, &key, &plan), 0);
    assert_true(plan->refused);
}

int main(void) {
    if (getenv("TT_SANITIZED") || !find_planner())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn_plans_what_is_described),
        cmocka_unit_test(cudnn_refuses_wrong_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
