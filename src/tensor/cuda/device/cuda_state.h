/* One CUDA device: its table for the library, its stream, its memory. */
#ifndef TT_TENSOR_CUDA_CUDA_STATE_H
#define TT_TENSOR_CUDA_CUDA_STATE_H

#include "tensor/core/tensor.h"
#include "tensor/cuda/cuda_kernels.h"
#include "tensor/cuda/device/cuda_arena.h"
#include "tensor/device/device_plugin.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

/* A piece of memory from the driver. Pieces are in order of address. */
typedef struct tt__cuda_piece {
    size_t bytes;
    uint64_t serial;
} tt__cuda_piece;

typedef struct tt__cuda_state {
    tt_device device; /* first: a tt_device of ours is one of these */
    int index;
    char name[16];
    cudaStream_t stream; /* all work of the device, in order */
    cudaStream_t sender; /* copies to the host that run beside it: cuda_queue.c */
    tt_device_properties properties;
    char model[256], uuid[48], bus_id[16]; /* texts of the device's properties */
    pthread_mutex_t lock;                  /* of what follows */
    tt__arena arena;
    tt__cuda_piece *pieces;
    size_t piece_count, piece_room;
    uint64_t last_serial;
    int refused;                /* the driver's error when it gave no more memory */
    struct tt__blas *blas;      /* cuda_blas.c; NULL: no product has used it */
    struct tt__dnn_device *dnn; /* cuda_dnn.c; NULL: nothing has used it */
    tt__cuda_fault *fault;      /* the first index out of range that is not reported yet; in memory of the host */
} tt__cuda_state;

/* A graph of the device's work: cuda_graph.c. */
typedef struct tt__cuda_graph {
    uint64_t *others; /* memory of other graphs that was freed while this one was captured: it is used until the end */
    size_t other_count;
    tt__cuda_state *state;
    cudaStream_t stream; /* the one that is captured; NULL after the capture */
    cudaGraphExec_t exec;
    tt__arena_pool pool;
} tt__cuda_graph;

/* The graph that this thread captures; NULL: none. */
extern _Thread_local tt__cuda_graph *tt__cuda_capturing;

static inline tt__cuda_graph *tt__cuda_captures(const tt__cuda_state *state) {
    return tt__cuda_capturing && tt__cuda_capturing->state == state ? tt__cuda_capturing : NULL;
}

/* Where this thread's work goes. */
static inline cudaStream_t tt__cuda_stream(const tt__cuda_state *state) {
    const tt__cuda_graph *graph = tt__cuda_captures(state);
    return graph ? graph->stream : state->stream;
}

/* The library's functions; set before anything else is called. */
extern const tt__device_host *tt__cuda_host;

static inline tt__cuda_state *tt__cuda_of(const tt_tensor *x) { return (tt__cuda_state *)(void *)x->storage->device; }

/* Is this a child of a process that has used CUDA? Then the driver can't be used, and locks may be held by threads that
 * the child doesn't have: none is taken there. */
bool tt__cuda_is_forked(void);

/* Has this process used CUDA? */
bool tt__cuda_is_used(void);

/* Fail with TT_ERR_UNSUPPORTED in such a child; `name` is what it wanted to use. */
tt_status tt__cuda_check_forked(const char *name);

/* The same; elsewhere note that this process has used CUDA. */
tt_status tt__cuda_check_process(const tt__cuda_state *state);

/* The same, and make `state` the device that this thread's calls of CUDA mean. */
tt_status tt__cuda_enter(const tt__cuda_state *state);

/* Record `error` of an action ("copying 4096 bytes to cuda:0"), and return TT_ERR_MEMORY or TT_ERR_SYSTEM. cudaSuccess:
 * return TT_OK, and record nothing. */
tt_status tt__cuda_check(cudaError_t error, const char *format, ...) TT_PRINTF(2, 3);

/* Count the devices, in this process, which has used CUDA from then on / without that (cuda_count.c). */
tt_status tt__cuda_count_here(int *count);
tt_status tt__cuda_count(int *count);

/* Find the driver's function `name` (a pointer to a function pointer of its type). */
tt_status tt__cuda_driver_function(const char *name, void *function);

/* For exchanges between ranks: cuda_queue.c. */
extern const tt__device_queue tt__cuda_queue;

/* Let *mark tell, like that of a send, when the work on the sender's stream so far is done. After a failure the work is
 * done. */
tt_status tt__cuda_mark_sender(const tt__cuda_state *state, void **mark);

/* For ranks of a host that add up each other's memory: cuda_sharing.c. */
extern const tt__device_sharing tt__cuda_sharing;

/* For capturing steps: cuda_graph.c. */
extern const tt__device_graphs tt__cuda_graphs;

/* Fail if this thread captures a graph of the device, because a replay could not repeat the action ("copying 8 bytes
 * from cuda:0"). */
tt_status tt__cuda_refuse(const tt__cuda_state *state, const char *format, ...) TT_PRINTF(2, 3);

/* The tables of kernels by dtype (TT__DTYPES). */
const struct tt__kernels *const *tt__cuda_kernels(void);

/* Memory of the device for a call's own use, in the order of its stream; NULL: none, with an error. */
void *tt__cuda_scratch(tt__cuda_state *state, size_t bytes);
void tt__cuda_scratch_free(tt__cuda_state *state, void *p);

/* ---- memory, and copies from and to the host: what its tt_device offers (cuda_memory.c) */

/* Take memory for `pool` (NULL: for none). Returns NULL and an error if there is none. */
void *tt__cuda_take(tt__cuda_state *state, tt__arena_pool *pool, size_t bytes);

/* Reserve the range of addresses. */
tt_status tt__cuda_memory_begin(tt__cuda_state *state);

/* Reserve addresses / map memory at some of them for the device to read and write, and release its handle, which the
 * mapping does not need / unmap it. */
CUresult tt__cuda_reserve(CUdeviceptr *base, size_t bytes);
CUresult tt__cuda_map(const tt__cuda_state *state, CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle);
void tt__cuda_unmap(CUdeviceptr at, size_t bytes);
void tt__cuda_release(CUmemGenericAllocationHandle handle);

/* The device's part of tt_device_memory_get(), tt_device_reset_peak() and tt_device_empty_cache(). */
tt_status tt__cuda_memory_get(tt__cuda_state *state, tt_device_memory *memory);
void tt__cuda_reset_peak(tt__cuda_state *state);
tt_status tt__cuda_empty_cache(tt__cuda_state *state);

/* Copy, behind what was enqueued before, and wait until the host's bytes may be read or changed. */
tt_status tt__cuda_to_host(tt__cuda_state *state, void *host, const void *from, size_t bytes);
tt_status tt__cuda_from_host(tt__cuda_state *state, void *to, const void *host, size_t bytes);

/* Wait until all that was enqueued is done; errors of that work come here, also indices that were out of range. */
tt_status tt__cuda_wait_for_stream(tt__cuda_state *state);

#endif
