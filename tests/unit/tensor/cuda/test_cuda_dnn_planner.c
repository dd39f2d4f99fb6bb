/* What NVIDIA's own cuDNN says of the descriptors that the CUDA device makes, and which plans it finds for them,
 * without a GPU: since 9.8 it plans for a device that is described in a text. Kernels of attention are compiled for it
 * and given to a driver that only says that it has loaded them (planner_driver.cc). Skipped where cuDNN is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "base/files/nvidia_library.h"
#include "tensor/cuda/libraries/cuda_dnn_graph.h"

enum { DEVICE = 38, DEVICE_TEXT = 2702, AS_CHAR = 24, HEUR_DEVICE = 204, PLAN_DEVICE = 407 };

static const char described[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
    "\"multiProcessorCount\": 132, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
    "\"l2CacheSize\": 52428800, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
    "\"maxSharedMemoryPerBlockOptin\": %d, \"reservedSharedMemoryPerBlock\": 1024, "
    "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
    "\"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"driverVer\": 13000, "
    "\"deviceVer\": %d, \"cudaDeviceId\": 0, \"totalGlobalMem\": 85029158912, \"deviceName\": \"%s\"}";

static const struct {
    const char *name;
    int version, shared_memory;
} gpus[] = {
    {"NVIDIA H100 80GB HBM3", 900, 232448}, {"NVIDIA A100-SXM4-80GB", 800, 166912}, {"NVIDIA B200", 1000, 232448}};
enum { GPUS = sizeof gpus / sizeof *gpus };

static tt__dnn real, planner;
static tt__dnn_object devices[GPUS], device;
static tt__dnn_plans plans;
static bool has_driver;

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

static bool describe_gpu(int i) {
    char text[2048];
    const int length = snprintf(text, sizeof text, described, gpus[i].shared_memory, gpus[i].version, gpus[i].name);
    return !real.BackendCreateDescriptor(DEVICE, &devices[i]) &&
           !real.BackendSetAttribute(devices[i], DEVICE_TEXT, AS_CHAR, length, text) &&
           !real.BackendFinalize(devices[i]);
}

/* What is loaded under this name is what cuDNN finds. Without it kernels are not compiled, or are loaded onto a GPU. */
static void load_planner_driver(void) {
    const char *build = getenv("TT_BUILD");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fake_cuda/planner/libcuda.so.1", build ? build : ".");
    has_driver = dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
}

static bool find_planner(void) {
    char text[2048];
    load_planner_driver();
    void *object = tt__nvidia_open(&tt__nvidia_cudnn, text, sizeof text);
    if (!object)
        return false;
#define ENTRY(function, result, arguments) *(void **)&real.function = dlsym(object, "cudnn" #function);
    TT__DNN_FUNCTIONS(ENTRY)
#undef ENTRY
    if (!real.BackendCreateDescriptor)
        return false;
    planner = real;
    planner.BackendSetAttribute = set_without_handle;
    plans.use.dnn = &planner;
    for (int i = 0; i < GPUS; i++)
        if (!describe_gpu(i))
            return false;
    device = devices[0];
    return true;
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

typedef struct planned_attention {
    const char *name;
    int64_t T, S, D, Dv;
    bool causal, packed; /* packed: rows of q, k and v lie side by side */
} planned_attention;

static const planned_attention attentions[] = {
    {"GPT-2's", 1024, 1024, 64, 64, true, true}, {"no mask", 128, 128, 128, 128, false, false},
    {"odd rows", 77, 130, 40, 40, false, false}, {"more rows", 9, 5, 8, 8, true, false},
    {"one row", 1, 77, 64, 64, true, true},      {"narrow results", 100, 130, 64, 32, true, false},
};

/* Heads beside each other in a row, as layers have them. */
static void set_steps(tt__dnn_heads *h, int m, int64_t rows, int64_t columns, bool packed) {
    const int64_t row = (packed ? 3 : 1) * h->H * columns;
    h->step[m][0] = rows * row;
    h->step[m][1] = columns;
    h->step[m][2] = row;
}

static tt__dnn_key key_of_attention(const planned_attention *a, bool backward, tt_dtype dtype) {
    tt__dnn_heads h = {.B = 4, .H = 3, .T = a->T, .S = a->S, .D = a->D, .Dv = a->Dv, .causal = a->causal};
    for (int m = 0; m < (backward ? TT__DNN_MATRICES : TT__DNN_MATRICES_FORWARD); m++) {
        const bool of_keys = m == TT__DNN_K || m == TT__DNN_V || m == TT__DNN_DK || m == TT__DNN_DV;
        const bool wide = m == TT__DNN_V || m == TT__DNN_O || m == TT__DNN_G || m == TT__DNN_DV;
        set_steps(&h, m, of_keys ? a->S : a->T, wide ? a->Dv : a->D, a->packed && m < TT__DNN_O);
    }
    return (tt__dnn_key){.direction = backward ? TT__DNN_ATTENDS_BACK : TT__DNN_ATTENDS, .dtype = dtype, .heads = h};
}

static void expect_attention(const planned_attention *a, bool backward, tt_dtype dtype) {
    const tt__dnn_key key = key_of_attention(a, backward, dtype);
    tt__dnn_plan *plan = NULL;
    int notes[16], status = tt__dnn_plan_for(&plans, &key, &plan);
    if (status)
        fail_msg("%s, %s: %s of %s: %s", a->name, backward ? "backward" : "forward", plans.use.function,
                 plans.use.object, real.GetErrorString(status));
    if (plan->refused)
        fail_msg("%s, %s: no plan", a->name, backward ? "backward" : "forward");
    for (int n = notes_of(plan, notes); n > 0; n--)
        assert_int_not_equal(notes[n - 1], TT__DNN_NOTE_NONDETERMINISTIC);
    /* That of gradients of all scores: dq is added up in one order, not as parts come. */
    if (backward)
        assert_true(plan->workspace >= (size_t)(key.heads.B * key.heads.H * a->T * a->S * 2));
}

static void cudnn_attends_on(int i) {
    if (!has_driver || real.GetVersion() < 91800)
        skip();
    device = devices[i];
    for (size_t c = 0; c < (i ? 3 : sizeof attentions / sizeof *attentions); c++) /* to compile takes time */
        for (int backward = 0; backward < 2; backward++)
            expect_attention(&attentions[c], backward, c % 2 ? TT_BF16 : TT_F16);
    memset(plans.plan, 0, sizeof plans.plan);
}

static void cudnn_attends_on_hopper(void **state) {
    (void)state;
    cudnn_attends_on(0);
}

static void cudnn_attends_on_ampere(void **state) {
    (void)state;
    cudnn_attends_on(1);
}

static void cudnn_attends_on_blackwell(void **state) {
    (void)state;
    cudnn_attends_on(2);
}

int main(void) {
    if (getenv("TT_SANITIZED") || !find_planner())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn_plans_what_is_described), cmocka_unit_test(cudnn_refuses_wrong_sizes),
        cmocka_unit_test(cudnn_attends_on_hopper),       cmocka_unit_test(cudnn_attends_on_ampere),
        cmocka_unit_test(cudnn_attends_on_blackwell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
