/* CUDA devices as the library sees them: begun when first asked for, one table each. */
#include "tensor/cuda/device/cuda_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt__cuda_state *state_of(const tt_device *device) { return (tt__cuda_state *)(void *)device; }

static void *device_alloc(const tt_device *device, size_t bytes) { return tt__cuda_scratch(state_of(device), bytes); }
static void device_free(const tt_device *device, void *p) { tt__cuda_scratch_free(state_of(device), p); }
static tt_status device_to_host(const tt_device *device, void *host, const void *from, size_t bytes) {
    return tt__cuda_to_host(state_of(device), host, from, bytes);
}
static tt_status device_from_host(const tt_device *device, void *to, const void *host, size_t bytes) {
    return tt__cuda_from_host(state_of(device), to, host, bytes);
}

static tt_status device_memory(const tt_device *device, tt_device_memory *memory) {
    return tt__cuda_memory_get(state_of(device), memory);
}
static void device_reset_peak(const tt_device *device) { tt__cuda_reset_peak(state_of(device)); }
static tt_status device_empty_cache(const tt_device *device) { return tt__cuda_empty_cache(state_of(device)); }

static tt_status device_synchronize(const tt_device *device) { return tt__cuda_wait_for_stream(state_of(device)); }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt__cuda_state **states;
static int state_count;

/* "GPU-8f6a1b2c-...", as nvidia-smi writes it. */
static void write_uuid(const tt__cuda_state *state, const cudaUUID_t *id, char *text) {
    int n = snprintf(text, sizeof state->uuid, "GPU");
    for (int i = 0; i < 16; i++)
        n +=
            snprintf(text + n, sizeof state->uuid - (size_t)n, "%s%02x",
                     i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned)(unsigned char)id->bytes[i]);
}

static tt_status describe_device(tt__cuda_state *state) {
    struct cudaDeviceProp prop;
    tt_status status =
        tt__cuda_check(cudaGetDeviceProperties(&prop, state->index), "asking for the properties of %s", state->name);
    if (status)
        return status;
    snprintf(state->model, sizeof state->model, "%.255s", prop.name);
    snprintf(state->bus_id, sizeof state->bus_id, "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID & 0xffffU,
             (unsigned)prop.pciBusID & 0xffU, (unsigned)prop.pciDeviceID & 0xffU);
    write_uuid(state, &prop.uuid, state->uuid);
    state->properties = (tt_device_properties){.size = sizeof state->properties,
                                               .name = state->model,
                                               .total_memory = (int64_t)prop.totalGlobalMem,
                                               .major = prop.major,
                                               .minor = prop.minor,
                                               .multiprocessors = prop.multiProcessorCount,
                                               .uuid = state->uuid,
                                               .pci_bus_id = state->bus_id};
    return TT_OK;
}

static tt_status begin_device(tt__cuda_state *state) {
    tt_status status = tt__cuda_enter(state);
    if (!status)
        status = describe_device(state);
    cudaStream_t *const streams[] = {&state->stream, &state->sender};
    for (int i = 0; i < 2 && !status; i++)
        status = tt__cuda_check(cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking), "making a stream on %s",
                                state->name);
    if (!status)
        status = tt__cuda_check(cudaMallocHost((void **)&state->fault, sizeof *state->fault),
                                "getting %zu bytes of pinned memory for %s", sizeof *state->fault, state->name);
    if (status)
        return status;
    *state->fault = (tt__cuda_fault){.set = false};
    return tt__cuda_memory_begin(state);
}

static tt__cuda_state *new_state(int index) {
    tt__cuda_state *state = calloc(1, sizeof *state);
    if (!state) {
        tt__cuda_host->fail(TT_ERR_MEMORY, "no memory for the device cuda:%d", index);
        return NULL;
    }
    state->index = index;
    snprintf(state->name, sizeof state->name, "cuda:%d", index);
    pthread_mutex_init(&state->lock, NULL);
    state->device = (tt_device){.name = state->name,
                                .type = TT_DEVICE_CUDA,
                                .index = index,
                                .alloc = device_alloc,
                                .free = device_free,
                                .to_host = device_to_host,
                                .from_host = device_from_host,
                                .synchronize = device_synchronize,
                                .queue = &tt__cuda_queue,
                                .graphs = &tt__cuda_graphs,
                                .sharing = &tt__cuda_sharing,
                                .properties = &state->properties,
                                .memory = device_memory,
                                .reset_peak = device_reset_peak,
                                .empty_cache = device_empty_cache,
                                .kernels = tt__cuda_kernels()};
    if (begin_device(state)) {
        if (state->stream)
            (void)cudaStreamDestroy(state->stream);
        if (state->sender)
            (void)cudaStreamDestroy(state->sender);
        if (state->fault)
            (void)cudaFreeHost(state->fault);
        pthread_mutex_destroy(&state->lock);
        free(state);
        return NULL;
    }
    return state;
}

static bool list_has_room(int count) {
    if (states)
        return true;
    states = calloc((size_t)count, sizeof *states);
    state_count = states ? count : 0;
    if (!states)
        tt__cuda_host->fail(TT_ERR_MEMORY, "no memory for a list of %d devices", count);
    return states != NULL;
}

static const tt_device *begin(int index) {
    int count = 0;
    char name[16];
    snprintf(name, sizeof name, "cuda:%d", index);
    if (tt__cuda_check_forked(name) || tt__cuda_count_here(&count))
        return NULL;
    if (index < 0 || index >= count) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        tt__cuda_host->fail(TT_ERR_NOT_FOUND, "there is no device cuda:%d: CUDA has %d%s%s%s", index, count,
                            visible ? " (CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "", visible ? ")" : "");
        return NULL;
    }
    pthread_mutex_lock(&lock);
    tt__cuda_state *state = list_has_room(count) && index < state_count ? states[index] : NULL;
    if (!state && states && index < state_count)
        state = states[index] = new_state(index);
    pthread_mutex_unlock(&lock);
    return state ? &state->device : NULL;
}

static const tt__device_plugin plugin = {.build = TT__DEVICE_BUILD, .count = tt__cuda_count, .device = begin};

__attribute__((visibility("default"))) tt__device_entry tutti_devices;

const tt__device_plugin *tutti_devices(const tt__device_host *host) {
    tt__cuda_host = host;
    return &plugin;
}
