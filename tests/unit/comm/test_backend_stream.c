/* Calls on a device's memory: what reaches a back end, what its stream waits for, and what is refused. The device is
 * that of tests/support/stream_backend.c, whose memory plain pointers can't read. */
#include "support/engines.h"
#include "support/stream_backend.h"

#include "comm/group.h"

#include <sched.h>
#include <stdatomic.h>

enum { N = 500, INDEX = 3 };

static const stream_device *load_device(void) {
    stream_device_fn *functions;
    void *object = dlopen(stream_backend_path(), RTLD_NOW);
    CHECK(object);
    *(void **)&functions = dlsym(object, "stream_device_functions");
    CHECK(functions);
    return functions();
}

/* ---- what streams hold */

typedef struct gate {
    _Atomic bool open, passed;
} gate;

static void pass(void *arg) {
    gate *g = arg;
    while (!atomic_load(&g->open))
        sched_yield();
    atomic_store(&g->passed, true);
}

typedef struct copy {
    const stream_device *device;
    float *there;
    float here[N];
} copy;

static void write_there(void *arg) {
    copy *c = arg;
    c->device->to_device(c->there, c->here, sizeof c->here);
}

static void read_back(void *arg) {
    copy *c = arg;
    c->device->to_host(c->here, c->there, sizeof c->here);
}

static void fill(copy *c, int rank) {
    for (int i = 0; i < N; i++)
        c->here[i] = (float)(i + rank);
}

static void check_sum(const copy *c) {
    for (int i = 0; i < N; i++)
        CHECK(c->here[i] == (float)(2 * i + 1));
}

static void await_empty(const stream_device *device, lane *stream) {
    while (!device->is_empty(stream))
        sched_yield();
}

/* The call runs behind what the stream holds, and what follows behind the call; the host waits for neither. */
static void in_order(tt_group *group, int rank, void *store) {
    const stream_device *device = load_device();
    lane *stream = device->lane_new();
    gate g = {false, false};
    copy in = {device, device->alloc(N * sizeof(float)), {0}}, out = {device, in.there, {0}};
    (void)store;
    fill(&in, rank);
    device->put(stream, pass, &g);
    device->put(stream, write_there, &in);
    CHECK_OK(tt_all_reduce(group, in.there, N, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA, .device_index = INDEX,
                           .stream = stream));
    device->put(stream, read_back, &out);
    CHECK(!atomic_load(&g.passed) && !device->is_empty(stream));
    atomic_store(&g.open, true);
    await_empty(device, stream);
    check_sum(&out);
    seen_call seen = device->seen();
    CHECK(seen.op == TT_OP_ALL_REDUCE && seen.device == TT_DEVICE_CUDA && seen.device_index == INDEX);
    CHECK(seen.stream == stream && seen.send == in.there);
    CHECK_OK(tt_barrier(group));
    seen = device->seen();
    CHECK(seen.op == TT_OP_BARRIER && seen.device == TT_DEVICE_CPU && !seen.stream);
}

static void on_plugin(int world, group_fn fn) {
    engine_body body = {ENGINE_PLUGIN, fn};
    with_ranks(world, run_on_engine, &body);
}

static void a_call_runs_in_its_streams_order(void **state) {
    (void)state;
    on_plugin(2, in_order);
}

static void note(tt_status status, int source, void *user) {
    CHECK(status == TT_OK && source == -1);
    atomic_store((_Atomic bool *)user, true);
}

/* An asynchronous one leaves the stream alone until it is waited for. */
static void beside(tt_group *group, int rank, void *store) {
    static const char *const go[] = {"go"};
    const stream_device *device = load_device();
    lane *stream = device->lane_new();
    copy in = {device, device->alloc(N * sizeof(float)), {0}}, out = {device, in.there, {0}};
    gate g = {true, false};
    _Atomic bool called = false;
    tt_work *work = NULL;
    fill(&in, rank);
    device->put(stream, write_there, &in);
    if (rank == 1)
        CHECK_OK(tt_store_wait(store, go, 1, PATIENCE_MS));
    CHECK_OK(
        tt_all_reduce(group, in.there, N, TT_F32, TT_SUM, .work = &work, .device = TT_DEVICE_CUDA, .stream = stream));
    CHECK_OK(tt_work_add_done_callback(work, note, &called));
    if (rank == 0) { /* the other has not come, and yet */
        device->put(stream, pass, &g);
        await_empty(device, stream);
        CHECK(atomic_load(&g.passed) && !tt_work_is_completed(work) && !atomic_load(&called));
        CHECK_OK(tt_store_set(store, go[0], "", 0));
    }
    CHECK_OK(tt_work_wait(work));
    device->put(stream, read_back, &out);
    await_empty(device, stream);
    check_sum(&out);
    while (!tt_work_is_completed(work) || !atomic_load(&called)) /* another thread may find its end, and tell */
        sched_yield();
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
}

static void a_work_leaves_the_stream_alone(void **state) {
    (void)state;
    on_plugin(2, beside);
}

/* Several calls are under way at once, each behind the one before; the last stream is the default one. */
static void several(tt_group *group, int rank, void *store) {
    enum { CALLS = 20 };
    const stream_device *device = load_device();
    copy io = {device, device->alloc(N * sizeof(float)), {0}};
    float *bufs[] = {io.there, device->alloc(N * sizeof(float))};
    lane *stream = device->lane_new();
    (void)store;
    io.here[0] = rank == 0;
    write_there(&io);
    for (int k = 0; k < CALLS; k++)
        CHECK_OK(tt_all_reduce(group, io.there, N, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA, .stream = stream));
    device->put(stream, read_back, &io);
    await_empty(device, stream);
    CHECK(io.here[0] == (float)(1 << (CALLS - 1)));
    CHECK_OK(tt_all_reduce_coalesced(group, (void *const *)bufs, ((int64_t[]){N, N}), 2, TT_F32, TT_SUM,
                                     .device = TT_DEVICE_CUDA));
    CHECK_OK(tt_barrier(group)); /* the host's: it comes behind them all */
    read_back(&io);
    CHECK(io.here[0] == (float)(1 << CALLS));
    CHECK(!device->seen().stream);
}

static void calls_follow_each_other(void **state) {
    (void)state;
    on_plugin(2, several);
}

/* The stream never gets to the call: the group fails when its time is up, though nobody waits. */
static void late(tt_group *group, int rank, void *store) {
    const stream_device *device = load_device();
    lane *stream = device->lane_new();
    static gate shut;
    tt_status status = TT_OK;
    (void)rank, (void)store;
    device->put(stream, pass, &shut);
    CHECK_OK(tt_barrier(group, .device = TT_DEVICE_CUDA, .stream = stream, .timeout_ms = 200));
    while (!status)
        status = tt__group_progress(group);
    CHECK(status == TT_ERR_TIMEOUT);
    CHECK_TEXT("barrier() at test_backend_stream.c:");
    CHECK_TEXT("was not complete within 200 ms");
}

static void a_deadline_holds_without_waiters(void **state) {
    (void)state;
    on_plugin(2, late);
}

/* ---- what is refused, before anybody is told */

#define CHECK_REFUSED(call, status, text) \
    do {                                  \
        CHECK((call) == (status));        \
        CHECK_TEXT(text);                 \
    } while (0)

static void impossible(tt_group *group, int rank, void *store) {
    float x[4] = {1, 1, 1, 1};
    uint16_t half[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    bool is_stream = !strcmp(tt_get_backend(group), "stream");
    tt_work *work = NULL;
    (void)rank, (void)store;
    CHECK_REFUSED(tt_all_reduce(group, x, 4, TT_F32, TT_SUM, .stream = x), TT_ERR_INVALID, ".device says cpu");
    CHECK_REFUSED(tt_all_reduce(group, x, 4, TT_F32, TT_SUM, .device = (tt_device_type)7), TT_ERR_INVALID,
                  "all_reduce: expected a .device as tt_device_type has them, got 7");
    CHECK_REFUSED(tt_all_reduce(group, x, 4, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA, .device_index = -1),
                  TT_ERR_INVALID, "got -1");
    CHECK_REFUSED(tt_monitored_barrier(group, .device = TT_DEVICE_CUDA), TT_ERR_UNSUPPORTED, "takes no .device");
    const char *why = is_stream ? "back end stream has no broadcast"
                                : " takes memory of cpu, and the call says cuda:1. Copy the elements there";
    CHECK_REFUSED(tt_broadcast(group, x, 4, TT_F32, 0, .device = TT_DEVICE_CUDA, .device_index = 1, .work = &work),
                  TT_ERR_UNSUPPORTED, why);
    CHECK(!work);
    if (is_stream) { /* what is made up for on the host alone */
        CHECK_REFUSED(tt_all_reduce(group, half, 4, TT_F16, TT_SUM, .device = TT_DEVICE_CUDA), TT_ERR_UNSUPPORTED,
                      "back end stream has no all_reduce of f16 by sum in memory of cuda");
        CHECK_REFUSED(tt_all_reduce(group, x, 4, TT_F32, TT_AVG, .device = TT_DEVICE_CUDA), TT_ERR_UNSUPPORTED,
                      "of f32 by avg in memory of cuda");
    }
    CHECK_OK(tt_all_reduce(group, half, 4, TT_F16, TT_SUM));
    CHECK_OK(tt_all_reduce(group, x, 4, TT_F32, TT_AVG, .device_index = 9));
    CHECK(half[3] == 0x4000 && x[3] == 1);
}

static void what_makes_no_sense_is_refused(void **state) {
    tt_group *group = NULL;
    (void)state;
    on_all_engines(2, impossible);
    assert_int_equal(tt_init_process_group(&group, .rank = 0, .world_size = 1, .device = (tt_device_type)7),
                     TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "expected a .device as tt_device_type has them"));
    assert_int_equal(tt_init_process_group(&group, .rank = 0, .world_size = 1, .device_index = -1), TT_ERR_INVALID);
}

/* An engine without host memory: its ranks still agree, make groups, and stop each other. */
static void device_alone(tt_group *group, int rank, void *store) {
    const stream_device *device = load_device();
    copy io = {device, device->alloc(N * sizeof(float)), {0}};
    tt_group *pair = NULL;
    float x = 0;
    (void)store;
    CHECK_REFUSED(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM), TT_ERR_UNSUPPORTED,
                  "the back end stream takes memory of cuda, and the call says cpu");
    CHECK_OK(tt_new_group(&pair, group, ((int[]){2, 0}), 2));
    CHECK(!pair == (rank == 1));
    if (pair) {
        fill(&io, rank / 2);
        write_there(&io);
        CHECK_OK(tt_all_reduce(pair, io.there, N, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA));
        CHECK_OK(tt_barrier(pair));
        read_back(&io);
        check_sum(&io);
        tt_destroy_process_group(pair);
    }
    CHECK_OK(tt_barrier(group));
    CHECK(tt_all_reduce(group, io.there, rank ? N : N - 1, TT_F32, TT_SUM, .device = TT_DEVICE_CUDA) ==
          TT_ERR_MISMATCH);
}

static void an_engine_may_lack_the_host(void **state) {
    (void)state;
    setenv("STREAM_ONLY", "1", 1);
    on_plugin(3, device_alone);
    unsetenv("STREAM_ONLY");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_runs_in_its_streams_order), cmocka_unit_test(a_work_leaves_the_stream_alone),
        cmocka_unit_test(calls_follow_each_other),          cmocka_unit_test(a_deadline_holds_without_waiters),
        cmocka_unit_test(what_makes_no_sense_is_refused),   cmocka_unit_test(an_engine_may_lack_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
