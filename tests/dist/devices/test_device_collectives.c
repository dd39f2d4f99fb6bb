/* Collectives on tensors that lie on a device: staged over the host, on the fake of CUDA, and passed through to a back
 * end that takes the device's memory (tests/support/stream_backend.c). Results are those of the same call on the
 * cpu. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include "support/cuda_ranks.h"
#include "support/engines.h"
#include "support/stream_backend.h"

#include "tensor/device/device.h"

enum { ROWS = 6, COLUMNS = 3 };

/* (rows, COLUMNS) of numbers that each rank has others of, contiguous or a transposed view. */
static tt_tensor *drawn(int rank, int64_t rows, bool plain, tt_dtype dtype, const tt_device *device) {
    tt_manual_seed((uint64_t)rank + 5);
    tt_tensor *x = tt_to(tt_scale(tt_randn(TT_SHAPE(rows, COLUMNS), NULL), 100), dtype);
    if (plain)
        return tt_clone(tt_to_device(x, device));
    tt_tensor *turned = tt_transpose(tt_to_device(tt_zeros(TT_SHAPE(COLUMNS, rows), dtype), device), 0, 1);
    CHECK_OK(tt_copy(turned, x));
    return turned;
}

/* What all calls leave in their tensors, in one list on the cpu. */
typedef struct outcome {
    tt_tensor *x[16];
    int count;
} outcome;

static void note(outcome *o, tt_tensor *x) { o->x[o->count++] = tt_clone(tt_to_device(x, TT_CPU)); }

/* The status of a call that may be asynchronous. */
static tt_status ended(tt_status status, tt_work **work) {
    if (!work || status)
        return status;
    status = tt_work_wait(*work);
    tt_work_free(*work);
    return status;
}

/* Every call; `work` not NULL: asynchronously. */
static void every_call(tt_group *group, int rank, bool plain, tt_dtype dtype, const tt_device *device, tt_work **work,
                       outcome *o) {
    int world = tt_get_world_size(group), right = (rank + 1) % world, left = (rank + world - 1) % world;
    tt_tensor *x = drawn(rank, ROWS, plain, dtype, device), *y = drawn(9, ROWS, plain, dtype, device);
    tt_tensor *all = drawn(9, ROWS * world, plain, dtype, device), *part = drawn(9, ROWS / world, plain, dtype, device);
    CHECK_OK(ended(tt_tensor_broadcast(group, y, 1, .work = work), work));
    note(o, y);
    CHECK_OK(ended(tt_tensor_all_gather(group, x, all, .work = work), work));
    note(o, all);
    CHECK_OK(ended(tt_tensor_scatter(group, rank ? NULL : x, part, 0, .work = work), work));
    note(o, part);
    CHECK_OK(ended(tt_tensor_reduce_scatter(group, x, part, TT_SUM, .work = work), work));
    note(o, part);
    CHECK_OK(ended(tt_tensor_all_to_all(group, x, y, .work = work), work));
    note(o, y);
    CHECK_OK(ended(tt_tensor_gather(group, x, rank == 1 ? all : NULL, 1, .work = work), work));
    note(o, all);
    tt_work *sending;
    CHECK_OK(tt_tensor_send(group, tt_contiguous(x), right, .work = &sending));
    CHECK_OK(ended(tt_tensor_recv(group, y, left, .work = work), work));
    CHECK_OK(ended(TT_OK, &sending));
    note(o, y);
    CHECK_OK(ended(tt_tensor_reduce(group, y, TT_MAX, 0, .work = work), work));
    note(o, y);
    CHECK_OK(ended(tt_tensor_all_reduce(group, x, TT_SUM, .work = work), work));
    note(o, x);
}

static void compare(tt_group *group, int rank, bool plain, tt_dtype dtype) {
    TT_AUTO_SCOPE;
    outcome near = {.count = 0};
    every_call(group, rank, plain, dtype, TT_CPU, NULL, &near);
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        outcome far = {.count = 0};
        tt_work *work;
        every_call(group, rank, plain, dtype, TT_CUDA(rank % 2), asynchronous ? &work : NULL, &far);
        for (int i = 0; i < near.count; i++)
            CHECK(tt_equal(far.x[i], near.x[i]));
    }
}

static void on_devices(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_dtype types[] = {TT_F32, TT_BF16, TT_I64};
    for (int t = 0; t < 3; t++)
        for (int plain = 0; plain < 2; plain++)
            compare(group, rank, plain, types[t]);
}

static void results_are_the_cpus(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, on_devices, NULL), 0);
    assert_int_equal(run_ranks(3, on_devices, NULL), 0);
}

/* Copies have pinned memory, which is used again and given back when the program wants that. */
static void pinned_once(tt_group *group, int rank, void *user) {
    const tt_device *device = TT_CUDA(rank);
    (void)user;
    for (int i = 0; i < 10; i++) {
        TT_AUTO_SCOPE;
        tt_work *work;
        tt_tensor *x = tt_to_device(tt_full(TT_SHAPE(1000), TT_F32, i + 1), device);
        CHECK_OK(ended(tt_tensor_all_reduce(group, x, TT_SUM, .work = i % 2 ? &work : NULL), i % 2 ? &work : NULL));
        CHECK(tt_equal(tt_to_device(x, TT_CPU), tt_full(TT_SHAPE(1000), TT_F32, 2 * (i + 1))));
        CHECK(cuda_pinned_ranges() == 1);
    }
    CHECK_OK(tt_device_empty_cache(device));
    CHECK(cuda_pinned_ranges() == 0);
}

static void copies_are_pinned_once(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, pinned_once, NULL), 0);
}

/* ---- works */

static void note_call(tt_status status, int source, void *user) {
    (void)source;
    CHECK_OK(status);
    _Atomic bool **called = user;
    atomic_store(*called, true);
}

/* A work's result is in the tensor when the work is seen to be done, whoever sees it, and also when nobody does. Where
 * ranks exchange messages a thread of the library ends works. */
static void seen_when_done(tt_group *group, int rank, void *store) {
    (void)rank;
    (void)store;
    _Atomic bool called = false, *flag = &called;
    const tt_device *device = TT_CUDA(0);
    for (int i = 0; i < 200; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_to_device(tt_full(TT_SHAPE(1000), TT_F32, 1), device);
        tt_tensor *y = tt_to_device(tt_full(TT_SHAPE(1000), TT_F32, 2), device);
        tt_work *first, *second;
        CHECK_OK(tt_tensor_all_reduce(group, x, TT_SUM, .work = &first));
        CHECK_OK(tt_tensor_all_reduce(group, y, TT_SUM, .work = &second));
        atomic_store(&called, false);
        CHECK_OK(tt_work_add_done_callback(second, note_call, &flag));
        tt_work_free(second); /* it goes on */
        while (i % 2 && !tt_work_is_completed(first))
            ;
        CHECK(i % 2 || tt_work_wait(first) == TT_OK);
        CHECK(tt_equal(tt_to_device(x, TT_CPU), tt_full(TT_SHAPE(1000), TT_F32, 2)));
        CHECK_OK(tt_work_wait(first));
        tt_work_free(first);
        CHECK_OK(tt_barrier(group)); /* behind the second, whose callbacks another thread may call */
        while (!atomic_load(&called))
            sched_yield();
        CHECK(tt_equal(tt_to_device(y, TT_CPU), tt_full(TT_SHAPE(1000), TT_F32, 4)));
    }
}

static void results_are_there_when_works_are_done(void **state) {
    (void)state;
    on_engines(ENGINE_PLUGIN, 2, seen_when_done); /* shared memory, and messages */
}

static void wrong(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_device(tt_ones(TT_SHAPE(2, 2), TT_F32), TT_CUDA(0));
    tt_tensor *all = tt_to_device(tt_ones(TT_SHAPE(4, 2), TT_F32), TT_CUDA(1));
    tt_work *work = NULL;
    CHECK(tt_tensor_all_gather(group, x, all) == TT_ERR_INVALID);
    CHECK_TEXT("expected tensors on one device, got f32 (2, 2) on cuda:0 and f32 (4, 2) on cuda:1");
    CHECK(tt_tensor_all_gather(group, tt_ones(TT_SHAPE(2, 2), TT_F32), all, .work = &work) == TT_ERR_INVALID);
    CHECK_TEXT("on cpu and f32 (4, 2) on cuda:1");
    CHECK_OK(tt_tensor_broadcast(group, x, 0)); /* the group lives on */
}

static void several_devices_are_an_error(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, wrong, NULL), 0);
}

/* Rank 1 goes while the others' works wait for it: they fail, and their copies are freed. */
static int one_goes(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_device(tt_full(TT_SHAPE(8), TT_F32, 7), TT_CUDA(0));
    tt_work *work = NULL;
    if (rank == 1)
        raise(SIGKILL);
    CHECK_OK(tt_tensor_all_reduce(group, x, TT_SUM, .work = &work));
    CHECK(tt_work_wait(work) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    CHECK(tt_equal(tt_to_device(x, TT_CPU), tt_full(TT_SHAPE(8), TT_F32, 7)));
    tt_work_free(work);
    tt_destroy_process_group(group);
    return 0;
}

static void a_failed_work_changes_nothing(void **state) {
    (void)state;
    ranks ranks;
    start_ranks(&ranks, 2, one_goes, NULL);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    assert_int_equal(end_of_rank(&ranks, 1), 128 + SIGKILL);
    tt_store_server_free(ranks.server);
}

/* ---- a back end that takes the device's memory: tensors on its device */

static const stream_device *streams;
static lane *own_lane;

static void *lane_alloc(const tt_device *device, size_t bytes) {
    (void)device;
    return streams->alloc(bytes);
}

static void lane_free(const tt_device *device, void *p) {
    (void)device;
    (void)p;
}

static tt_status lane_synchronize(const tt_device *device) {
    (void)device;
    while (!streams->is_empty(own_lane))
        sched_yield();
    return TT_OK;
}

static tt_status lane_to_host(const tt_device *device, void *host, const void *from, size_t bytes) {
    CHECK_OK(lane_synchronize(device));
    streams->to_host(host, from, bytes);
    return TT_OK;
}

static tt_status lane_from_host(const tt_device *device, void *to, const void *host, size_t bytes) {
    CHECK_OK(lane_synchronize(device));
    streams->to_device(to, host, bytes);
    return TT_OK;
}

static void *lane_stream(const tt_device *device) {
    (void)device;
    return own_lane;
}

static const struct tt__kernels *const no_kernels[TT__DTYPES];
static const tt__device_queue lane_queue = {.stream = lane_stream};
static const tt_device lane_device = {.name = "lane",
                                      .type = TT_DEVICE_CUDA,
                                      .index = 3,
                                      .alloc = lane_alloc,
                                      .free = lane_free,
                                      .to_host = lane_to_host,
                                      .from_host = lane_from_host,
                                      .synchronize = lane_synchronize,
                                      .queue = &lane_queue,
                                      .kernels = no_kernels};

static void load_streams(void) {
    stream_device_fn *functions;
    void *object = dlopen(stream_backend_path(), RTLD_NOW);
    CHECK(object);
    *(void **)&functions = dlsym(object, "stream_device_functions");
    CHECK(functions);
    streams = functions();
    own_lane = streams->lane_new();
    CHECK_OK(tt__device_register(&lane_device));
}

static void passes_through(tt_group *group, int rank, void *store) {
    (void)store;
    load_streams();
    TT_AUTO_SCOPE;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        tt_work *work = NULL;
        tt_tensor *x = tt_to_device(tt_full(TT_SHAPE(4, 3), TT_F32, rank + 1), &lane_device);
        tt_status status = tt_tensor_all_reduce(group, x, TT_SUM, .work = asynchronous ? &work : NULL);
        CHECK_OK(ended(status, asynchronous ? &work : NULL));
        seen_call seen = streams->seen();
        CHECK(seen.op == TT_OP_ALL_REDUCE && seen.device == TT_DEVICE_CUDA && seen.device_index == 3);
        CHECK(seen.stream == own_lane);
        CHECK(tt_equal(tt_to_device(x, TT_CPU), tt_full(TT_SHAPE(4, 3), TT_F32, 3)));
    }
    tt_tensor *turned = tt_transpose(tt_to_device(tt_zeros(TT_SHAPE(4, 3), TT_F32), &lane_device), 0, 1);
    tt_work *work = NULL;
    CHECK(tt_tensor_all_reduce(group, turned, TT_SUM, .work = &work) == TT_ERR_UNSUPPORTED && !work);
    CHECK_TEXT("f32 (3, 4) on \"lane\" is not contiguous");
}

static int on_stream_backend(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_engine(ENGINE_PLUGIN, store, rank, world);
    passes_through(group, rank, store);
    tt_destroy_process_group(group);
    return 0;
}

static void a_back_end_gets_memory_and_stream(void **state) {
    (void)state;
    with_ranks(2, on_stream_backend, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_cpus),
        cmocka_unit_test(copies_are_pinned_once),
        cmocka_unit_test(results_are_there_when_works_are_done),
        cmocka_unit_test(several_devices_are_an_error),
        cmocka_unit_test(a_failed_work_changes_nothing),
        cmocka_unit_test(a_back_end_gets_memory_and_stream),
    };
    return cuda_choose_fake() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
