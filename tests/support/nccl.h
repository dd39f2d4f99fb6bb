/* Ranks on the back end nccl, on a fake of CUDA and NCCL: memory of the device, and drawn calls on it. */
#ifndef TESTS_SUPPORT_NCCL_H
#define TESTS_SUPPORT_NCCL_H

#include "support/calls.h"
#include "support/ranks.h"

#include "tensor/core/tensor.h"

#include <tutti/tutti.h>

/* Begin main(): let processes find the fakes, with a device for each of eight ranks. */
static inline void nccl_begin(void) {
    static const char *const changing[] = {"FAKE_NCCL_FAIL", "FAKE_NCCL_HANG", "FAKE_NCCL_ASYNC", "FAKE_CUDA_FAIL"};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/tests/fake_cuda", getenv("TT_BUILD"));
    setenv("TT_CUDA_PATH", folder, 1);
    setenv("TT_BACKEND_PATH", folder, 1);
    setenv("FAKE_CUDA_DEVICES", "8", 1);
    /* Variables that exist can later be changed while other threads read the environment. */
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
        setenv(changing[i], "", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static inline tt_status nccl_try(tt_group **group, tt_store *store, int rank, int world, int64_t timeout_ms) {
    return tt_init_process_group(group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                                 .timeout_ms = timeout_ms, .heartbeat_ms = CALM_MS, .device = TT_DEVICE_CUDA,
                                 .device_index = rank);
}

static inline tt_group *nccl_join(tt_store *store, int rank, int world) {
    tt_group *group = NULL;
    CHECK_OK(nccl_try(&group, store, rank, world, PATIENCE_MS));
    return group;
}

/* Where calls lie, as options. */
#define ON_GPU(index) .device = TT_DEVICE_CUDA, .device_index = (index), .stream = tt_device_stream(TT_CUDA(index))

/* Groups of the same ranks by the native engine and by nccl. */
typedef struct both_engines {
    tt_store *stores[2];
    tt_group *native, *nccl;
} both_engines;

static inline both_engines both_join(tt_store *store, int rank, int world) {
    both_engines b = {.native = NULL};
    CHECK_OK(tt_prefix_store(&b.stores[0], "native", store));
    CHECK_OK(tt_prefix_store(&b.stores[1], "nccl", store));
    b.native = join_group(b.stores[0], rank, world);
    b.nccl = nccl_join(b.stores[1], rank, world);
    return b;
}

static inline void both_leave(both_engines *b) {
    tt_destroy_process_group(b->nccl);
    tt_destroy_process_group(b->native);
    for (int i = 0; i < 2; i++)
        tt_store_free(b->stores[i]);
}

/* A rank's memory on its device, as bytes. */
static inline tt_tensor *gpu_new(int index, const void *bytes, size_t size) {
    TT_AUTO_SCOPE;
    tt_tensor *host = tt_zeros(TT_SHAPE((int64_t)size), TT_U8);
    CHECK(host);
    memcpy(tt_tensor_data(host), bytes, size);
    tt_tensor *x = tt_keep(tt_to_device(host, TT_CUDA(index)));
    CHECK(x);
    return x;
}

static inline void *gpu_at(const tt_tensor *x) { return x->data; }

/* Read it, behind what the device's stream holds. */
static inline void gpu_read(tt_tensor *x, void *bytes) {
    TT_AUTO_SCOPE;
    tt_tensor *host = tt_to_device(x, TT_CPU);
    CHECK(host);
    memcpy(bytes, tt_tensor_data(host), (size_t)tt_tensor_numel(host));
}

static inline tt_status gpu_make_uneven(tt_group *group, const drawn *call, int rank, int world, const void *send,
                                        void *recv, tt_work **work) {
    int64_t sends[CALLS_RANKS], gets[CALLS_RANKS];
    for (int r = 0; r < world; r++) {
        sends[r] = (int64_t)drawn_part(call, rank, r);
        gets[r] = (int64_t)drawn_part(call, r, rank);
    }
    if (call->op == TT_OP_ALL_GATHER_V)
        return tt_all_gather_v(group, send, recv, gets, NULL, call->dtype, .work = work, ON_GPU(rank));
    return tt_all_to_all_v(group, send, sends, NULL, recv, gets, NULL, call->dtype, .work = work, ON_GPU(rank));
}

/* drawn_make() on the device. */
static inline tt_status gpu_make(tt_group *group, const drawn *c, int rank, int world, const void *send, void *recv,
                                 tt_work **work) {
    size_t n = c->count;
    switch (c->op) {
    case TT_OP_BARRIER:
        return tt_barrier(group, .work = work, ON_GPU(rank));
    case TT_OP_ALL_REDUCE:
        return tt_all_reduce(group, recv, n, c->dtype, c->reduce, .factor = drawn_factor(rank), .work = work,
                             ON_GPU(rank));
    case TT_OP_REDUCE:
        return tt_reduce(group, recv, n, c->dtype, c->reduce, c->root, .factor = drawn_factor(rank), .work = work,
                         ON_GPU(rank));
    case TT_OP_REDUCE_SCATTER:
        return tt_reduce_scatter(group, send, recv, n, c->dtype, c->reduce, .factor = drawn_factor(rank), .work = work,
                                 ON_GPU(rank));
    case TT_OP_BROADCAST:
        return tt_broadcast(group, recv, n, c->dtype, c->root, .work = work, ON_GPU(rank));
    case TT_OP_ALL_GATHER:
        return tt_all_gather(group, send, recv, n, c->dtype, .work = work, ON_GPU(rank));
    case TT_OP_GATHER:
        return tt_gather(group, send, recv, n, c->dtype, c->root, .work = work, ON_GPU(rank));
    case TT_OP_SCATTER:
        return tt_scatter(group, send, recv, n, c->dtype, c->root, .work = work, ON_GPU(rank));
    case TT_OP_ALL_TO_ALL:
        return tt_all_to_all(group, send, recv, n, c->dtype, .work = work, ON_GPU(rank));
    default:
        return gpu_make_uneven(group, c, rank, world, send, recv, work);
    }
}

#endif
