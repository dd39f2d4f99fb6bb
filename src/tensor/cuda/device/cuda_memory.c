/* The range of addresses of a device, copies from and to the host, and waiting for its stream. */
#include "tensor/cuda/device/cuda_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's functions for virtual memory: the runtime has none. */
typedef CUresult (*reserve_function)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
typedef CUresult (*create_function)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                    unsigned long long);
typedef CUresult (*release_function)(CUmemGenericAllocationHandle);
typedef CUresult (*map_function)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
typedef CUresult (*unmap_function)(CUdeviceptr, size_t);
typedef CUresult (*access_function)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
typedef CUresult (*granularity_function)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);

static struct {
    reserve_function reserve;
    create_function create;
    release_function release;
    map_function map;
    unmap_function unmap;
    access_function access;
    granularity_function granularity;
} driver;

/* Memory is taken from the driver in pieces of this size at least: a call takes about a millisecond. */
enum { PIECE = 32 << 20 };

static CUmemAllocationProp wanted_memory(const tt__cuda_state *state) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = state->index;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; /* so that NCCL and other ranks can map it */
    return prop;
}

static bool pieces_have_room(tt__cuda_state *state) {
    if (state->piece_count < state->piece_room)
        return true;
    size_t room = state->piece_room ? 2 * state->piece_room : 64;
    tt__cuda_piece *pieces = realloc(state->pieces, room * sizeof *pieces);
    if (!pieces)
        return false;
    state->pieces = pieces;
    state->piece_room = room;
    return true;
}

CUresult tt__cuda_reserve(CUdeviceptr *base, size_t bytes) { return driver.reserve(base, bytes, 0, 0, 0); }

void tt__cuda_release(CUmemGenericAllocationHandle handle) { driver.release(handle); }

void tt__cuda_unmap(CUdeviceptr at, size_t bytes) { driver.unmap(at, bytes); }

CUresult tt__cuda_map(const tt__cuda_state *state, CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle) {
    const CUmemAccessDesc access = {.location = wanted_memory(state).location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver.map(at, bytes, 0, handle, 0);
    driver.release(handle);
    if (result)
        return result;
    result = driver.access(at, bytes, &access, 1);
    if (result)
        driver.unmap(at, bytes);
    return result;
}

/* Map a new piece of memory. */
static CUresult map_piece(const tt__cuda_state *state, CUdeviceptr at, size_t bytes) {
    const CUmemAllocationProp prop = wanted_memory(state);
    CUmemGenericAllocationHandle handle;
    CUresult result = driver.create(&handle, bytes, &prop, 0);
    return result ? result : tt__cuda_map(state, at, bytes, handle);
}

/* Back more of the range. */
static bool back(tt__arena *arena, size_t bytes) {
    tt__cuda_state *state = arena->user;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (!pieces_have_room(state))
        return false;
    (void)cudaThreadExchangeStreamCaptureMode(&mode); /* a capture must not see the mapping */
    state->refused = (int)map_piece(state, (CUdeviceptr)(arena->base + arena->backed), bytes);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    if (!state->refused)
        state->pieces[state->piece_count++] = (tt__cuda_piece){bytes, ++state->last_serial};
    return !state->refused;
}

static tt_status find_functions(void) {
    static const struct {
        const char *name;
        void *function;
    } all[] = {{"cuMemAddressReserve", &driver.reserve},
               {"cuMemCreate", &driver.create},
               {"cuMemRelease", &driver.release},
               {"cuMemMap", &driver.map},
               {"cuMemUnmap", &driver.unmap},
               {"cuMemSetAccess", &driver.access},
               {"cuMemGetAllocationGranularity", &driver.granularity}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_status status = tt__cuda_driver_function(all[i].name, all[i].function);
        if (status)
            return status;
    }
    return TT_OK;
}

tt_status tt__cuda_memory_begin(tt__cuda_state *state) {
    size_t free_bytes = 0, total = 0, granularity = 0;
    tt_status status = find_functions();
    if (!status)
        status = tt__cuda_check(cudaMemGetInfo(&free_bytes, &total), "asking for the memory of %s", state->name);
    if (status)
        return status;
    const CUmemAllocationProp prop = wanted_memory(state);
    CUdeviceptr base = 0;
    CUresult result = driver.granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    size_t step = granularity > PIECE ? granularity : PIECE, range = (total + step - 1) / step * step;
    if (!result)
        result = driver.reserve(&base, range, granularity, 0, 0);
    if (result)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no range of addresses for its %zu MiB of memory (CUDA error %d)",
                                   state->name, total >> 20, (int)result);
    state->arena = (tt__arena){.base = (uint64_t)base, .reserved = range, .step = step, .back = back, .user = state};
    return TT_OK;
}

/* ---- taking and giving ---- */

/* Write "; the largest: 2 of 1048576 bytes, 1 of 512 bytes", and why there is no more, unless memory is simply out. */
static void held_text(const tt__cuda_state *state, char *text, size_t size) {
    size_t bytes[4], count[4], n = 0;
    int sizes = tt__arena_largest_used(&state->arena, 4, bytes, count);
    text[0] = '\0';
    for (int i = 0; i < sizes && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%zu of %zu bytes", i ? ", " : "; the largest: ", count[i],
                              bytes[i]);
    if (state->refused && state->refused != CUDA_ERROR_OUT_OF_MEMORY && n < size)
        snprintf(text + n, size - n, "; the driver refused more (CUDA error %d)", state->refused);
}

static tt_status fail_out_of_memory(const tt__cuda_state *state, size_t bytes) {
    const tt__arena *a = &state->arena;
    size_t free_bytes = 0, total = 0;
    char held[256];
    (void)cudaMemGetInfo(&free_bytes, &total);
    (void)cudaGetLastError();
    held_text(state, held, sizeof held);
    return tt__cuda_host->fail(TT_ERR_MEMORY,
                               "%s is out of memory: %zu bytes were asked for; of its %zu MiB this process has %zu MiB "
                               "in %zu tensors (%zu MiB at most until now) and %zu MiB free in its cache, the largest "
                               "piece %zu MiB; %zu MiB are free on the device%s",
                               state->name, bytes, (size_t)state->properties.total_memory >> 20, a->used >> 20,
                               a->used_blocks, a->most_used >> 20, (a->backed - a->used) >> 20,
                               tt__arena_largest_free(a) >> 20, free_bytes >> 20, held);
}

void *tt__cuda_scratch(tt__cuda_state *state, size_t bytes) {
    tt__cuda_graph *graph = tt__cuda_captures(state);
    return tt__cuda_take(state, graph ? &graph->pool : NULL, bytes);
}

void *tt__cuda_take(tt__cuda_state *state, tt__arena_pool *pool, size_t bytes) {
    if (tt__cuda_enter(state))
        return NULL;
    pthread_mutex_lock(&state->lock);
    uint64_t address = tt__arena_take_for(&state->arena, pool, bytes);
    if (!address)
        fail_out_of_memory(state, bytes);
    pthread_mutex_unlock(&state->lock);
    return (void *)address;
}

/* Does the graph keep memory that is given back in its capture? It keeps that of another graph's pool, which would be
 * free for all after that graph's end, while this one's work still uses it. */
static bool graph_keeps(tt__cuda_graph *graph, const tt__arena *arena, uint64_t address) {
    const tt__arena_pool *pool = graph ? tt__arena_pool_of(arena, address) : NULL;
    if (!pool || pool == &graph->pool)
        return false;
    uint64_t *others = realloc(graph->others, (graph->other_count + 1) * sizeof *others);
    if (!others)
        return true; /* kept, but not noted: it is never free again */
    graph->others = others;
    graph->others[graph->other_count++] = address;
    return true;
}

void tt__cuda_scratch_free(tt__cuda_state *state, void *p) {
    if (!p || tt__cuda_is_forked()) /* the memory is the parent's */
        return;
    tt__cuda_graph *graph = tt__cuda_captures(state); /* captured work may use what was there before, too */
    pthread_mutex_lock(&state->lock);
    if (!graph_keeps(graph, &state->arena, (uint64_t)p))
        tt__arena_give_to(&state->arena, graph ? &graph->pool : NULL, (uint64_t)p);
    pthread_mutex_unlock(&state->lock);
}

/* ---- what there is, and giving it back ---- */

tt_status tt__cuda_memory_get(tt__cuda_state *state, tt_device_memory *memory) {
    size_t free_bytes = 0, total = 0;
    tt_status status = tt__cuda_check_forked(state->name);
    if (status)
        return status;
    pthread_mutex_lock(&state->lock);
    const tt__arena *a = &state->arena;
    memory->allocated = (int64_t)a->used;
    memory->peak = (int64_t)a->most_used;
    memory->reserved = (int64_t)a->backed;
    memory->blocks = (int64_t)a->used_blocks;
    memory->allocations = (int64_t)a->takes;
    pthread_mutex_unlock(&state->lock);
    status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(cudaMemGetInfo(&free_bytes, &total), "asking for the memory of %s", state->name);
    memory->free = (int64_t)free_bytes;
    memory->total = (int64_t)total;
    return status;
}

void tt__cuda_reset_peak(tt__cuda_state *state) {
    if (tt__cuda_is_forked())
        return;
    pthread_mutex_lock(&state->lock);
    state->arena.most_used = state->arena.used;
    pthread_mutex_unlock(&state->lock);
}

/* Unmap the last pieces that nothing lies in. */
static tt_status unmap_free_pieces(tt__cuda_state *state) {
    tt__arena *a = &state->arena;
    while (state->piece_count && state->pieces[state->piece_count - 1].bytes <= tt__arena_free_at_end(a)) {
        size_t bytes = state->pieces[state->piece_count - 1].bytes;
        CUresult result = driver.unmap((CUdeviceptr)(a->base + a->backed - bytes), bytes);
        if (result)
            return tt__cuda_host->fail(TT_ERR_SYSTEM, "giving back %zu bytes of %s failed: CUDA error %d", bytes,
                                       state->name, (int)result);
        tt__arena_cut(a, bytes);
        state->piece_count--;
    }
    return TT_OK;
}

/* ---- copies ---- */

tt_status tt__cuda_to_host(tt__cuda_state *state, void *host, const void *from, size_t bytes) {
    tt_status status = tt__cuda_refuse(state, "copying %zu bytes from %s", bytes, state->name);
    if (!status)
        status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, state->stream),
                                "copying %zu bytes from %s", bytes, state->name);
    return status ? status : tt__cuda_wait_for_stream(state);
}

tt_status tt__cuda_from_host(tt__cuda_state *state, void *to, const void *host, size_t bytes) {
    tt_status status = tt__cuda_refuse(state, "copying %zu bytes to %s", bytes, state->name);
    if (!status)
        status = tt__cuda_enter(state);
    if (!status)
        status = tt__cuda_check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, state->stream),
                                "copying %zu bytes to %s", bytes, state->name);
    struct cudaPointerAttributes attributes;
    if (status)
        return status;
    if (cudaPointerGetAttributes(&attributes, host)) {
        (void)cudaGetLastError();
        return tt__cuda_wait_for_stream(state);
    }
    /* CUDA has already read memory that it doesn't know, but may still be reading pinned memory. */
    return attributes.type == cudaMemoryTypeUnregistered ? TT_OK : tt__cuda_wait_for_stream(state);
}

/* Report an index out of range, once. */
static tt_status tell_fault(tt__cuda_state *state) {
    pthread_mutex_lock(&state->lock);
    const tt__cuda_fault fault = *state->fault;
    state->fault->set = false;
    pthread_mutex_unlock(&state->lock);
    if (!fault.set)
        return TT_OK;
    return tt__cuda_host->fail(TT_ERR_INVALID, "%s[%lld] = %lld", fault.text, (long long)fault.index,
                               (long long)fault.value);
}

static tt_status wait_for_stream(const tt__cuda_state *state) {
    tt_status status = tt__cuda_refuse(state, "waiting for %s", state->name);
    if (!status)
        status = tt__cuda_check_process(state);
    if (status)
        return status;
    status = tt__cuda_enter(state); /* wait even if that fails: callers free what the work used */
    cudaError_t error = cudaStreamSynchronize(state->stream);
    return status ? status : tt__cuda_check(error, "the work on %s", state->name);
}

tt_status tt__cuda_wait_for_stream(tt__cuda_state *state) {
    tt_status status = wait_for_stream(state);
    return status ? status : tell_fault(state);
}

tt_status tt__cuda_empty_cache(tt__cuda_state *state) {
    tt_status status = tt__cuda_check_forked(state->name);
    if (status)
        return status;
    pthread_mutex_lock(&state->lock); /* while we wait nothing is freed that work still uses */
    status = wait_for_stream(state);
    if (!status)
        status = unmap_free_pieces(state);
    pthread_mutex_unlock(&state->lock);
    return status ? status : tell_fault(state);
}
