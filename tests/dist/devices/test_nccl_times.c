/* When calls ran on the device, as the back end nccl has it measured: in the flight recorder, in `tutti trace` and in
 * `tutti top`. On the fake of CUDA, each piece of whose work may come late. */
#include "support/nccl.h"

#include "base/machine/clock.h"
#include "cli/look/job_view.h"
#include "comm/backend/plugin.h"
#include "comm/native_group.h"

#include <dlfcn.h>
#include <sched.h>

enum { LATE_MS = 30, N = 100 };

static tt__recorder *recorder_of(const tt_group *group) {
    return &tt__world_control(tt__plugin_of(group)->control->native->world)->recorder;
}

/* The newest call of this kind. */
static tt__call_record last_record(const tt_group *group, tt_op op) {
    const tt__recorder *recorder = recorder_of(group);
    tt__call_record record;
    for (uint32_t n = atomic_load(&recorder->calls); n > 0; n--)
        if (tt__record_read(recorder, n, &record) && record.op == op)
            return record;
    CHECK(!"a record");
    return record;
}

static int64_t ns_of(const tt_group *group, uint64_t ticks) {
    tt__moment now = tt__moment_now();
    tt__ticks_line line = tt__ticks_line_through(&recorder_of(group)->begin, &now);
    return tt__ticks_ns(&line, ticks);
}

static void all_reduce_to_end(tt_group *group, tt_tensor *x, int rank) {
    tt_work *work;
    CHECK_OK(tt_all_reduce(group, gpu_at(x), N, TT_F32, TT_SUM, .work = &work, ON_GPU(rank)));
    CHECK_OK(tt_work_wait(work));
    while (!tt_work_is_completed(work))
        sched_yield();
    tt_work_free(work);
}

static tt_tensor *some_floats(int rank) {
    float x[N] = {1};
    return gpu_new(rank, x, sizeof x);
}

/* The device has the call's own work, and then its end: two late pieces after the beginning. The host's record is over
 * when all ranks have come, before that. */
static void check_times(const tt_group *group, tt_op op, int64_t least_ms, int64_t before_ns) {
    tt__call_record record = last_record(group, op);
    tt__record_device ran = {0};
    CHECK(tt__record_read_device(recorder_of(group), record.number, &ran));
    CHECK(ran.type == TT_DEVICE_CUDA && ran.index == tt_get_rank(group));
    CHECK(ran.duration_ns >= least_ms * 1000000);
    CHECK(ran.begin_ns >= before_ns && ran.begin_ns + ran.duration_ns <= tt__now_ns());
    CHECK(ran.begin_ns >= ns_of(group, record.end) - 1000000);
    CHECK(record.state == TT__CALL_DONE);
}

/* ---- as people see it */

static char *show(tt__view *view, bool json) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    CHECK(out);
    CHECK_OK(json ? tt__top_json(view, out) : tt__top_text(view, &(tt__top_page){.columns = 0}, out));
    fclose(out);
    return text;
}

static char *show_trace(tt__view *view, int rank) {
    char path[64], *text = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "/tmp/tutti-times-%d-%d.json", (int)getpid(), rank);
    CHECK_OK(tt__trace_write(view, path));
    FILE *file = fopen(path, "r");
    CHECK(file && text && fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    unlink(path);
    return text;
}

static tt__view view_of(const tt_group *group) {
    tt__view view;
    tt__seen_rank *seen = calloc(1, sizeof *seen);
    CHECK(seen);
    *seen = (tt__seen_rank){
        .rank = {.rank = tt_get_rank(group), .pid = getpid(), .state = TT__JOB_RUNNING, .now = tt__moment_now()},
        .memory = -1,
        .recorder = recorder_of(group)};
    seen->rank.at.size = sizeof(tt__recorder);
    tt__snapshot snapshot = {.ranks = seen, .n = 1};
    CHECK_OK(tt__view_make(&view, &snapshot));
    return view;
}

static void check_shown(tt_group *group, bool on_device) {
    char device[32], name[64];
    int rank = tt_get_rank(group);
    tt__view view = view_of(group);
    char *top = show(&view, false), *json = show(&view, true), *trace = show_trace(&view, rank);
    snprintf(device, sizeof device, "s on cuda:%d", rank);
    CHECK(on_device == (strstr(top, "comm  gpu  call") != NULL));
    CHECK(on_device == (strstr(top, device) != NULL));
    snprintf(device, sizeof device, "\"device\":\"cuda:%d\"", rank);
    CHECK(on_device == (strstr(json, "\"gpu\":") != NULL) &&
          on_device == (strstr(json, "\"device_seconds\":") != NULL));
    CHECK(on_device == (strstr(json, device) != NULL) && on_device == (strstr(trace, device) != NULL));
    snprintf(name, sizeof name, "\"name\":\"thread_name\",\"pid\":%d,\"tid\":33,\"args\":{\"name\":\"cuda:%d\"}",
             rank + 1, rank);
    CHECK(on_device == (strstr(trace, name) != NULL));
    CHECK(on_device == (strstr(trace, "\"cat\":\"device\",\"name\":\"all_reduce\"") != NULL));
    CHECK(strstr(trace, "\"cat\":\"comm\",\"name\":\"all_reduce\""));
    free(top);
    free(json);
    free(trace);
    tt__view_free(&view);
}

/* ---- late work */

/* A call begins on the device behind what its stream holds; an anchor that is late itself is as much too early. */
static void behind_earlier_work(tt_group *group, tt_tensor *x, int rank) {
    enum { PIECES = 10 };
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_ones(TT_SHAPE(N), TT_F32);
    y = tt_to_device(y, TT_CUDA(rank));
    int64_t before_ns = tt__now_ns();
    for (int i = 0; i < PIECES; i++)
        y = tt_scale(y, 0.5);
    CHECK(y);
    all_reduce_to_end(group, x, rank);
    check_times(group, TT_OP_ALL_REDUCE, 2 * LATE_MS, before_ns + (PIECES - 1) * LATE_MS * INT64_C(1000000));
}

static int late(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = some_floats(rank), *y = some_floats(rank);
    void *bufs[] = {gpu_at(x), gpu_at(y)};
    tt_work *work;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        int64_t before_ns = tt__now_ns();
        all_reduce_to_end(group, x, rank);
        check_times(group, TT_OP_ALL_REDUCE, 2 * LATE_MS, before_ns);
    }
    behind_earlier_work(group, x, rank);
    check_shown(group, true);
    int64_t before_ns = tt__now_ns();
    CHECK_OK(tt_all_reduce_coalesced(group, bufs, ((int64_t[]){N, N}), 2, TT_F32, TT_MAX, .work = &work, ON_GPU(rank)));
    CHECK_OK(tt_work_wait(work));
    while (!tt_work_is_completed(work))
        sched_yield();
    tt_work_free(work);
    check_times(group, TT_OP_ALL_REDUCE_COALESCED, 4 * LATE_MS, before_ns); /* from the first's beginning on */
    tt_tensor_free(x);
    tt_tensor_free(y);
    tt_destroy_process_group(group);
    return 0;
}

static void the_devices_time_is_apart(void **state) {
    (void)state;
    setenv("FAKE_CUDA_LATE", "30000", 1);
    setenv("FAKE_CUDA_SEED", "0", 1);
    with_ranks(2, late, NULL);
    unsetenv("FAKE_CUDA_LATE");
    unsetenv("FAKE_CUDA_SEED");
}

/* ---- events */

static int steady(tt_store *store, int rank, int world, void *arg) {
    enum { CALLS = 50 };
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = some_floats(rank);
    unsigned long (*events)(void), before = 0;
    char path[4096];
    (void)arg;
    snprintf(path, sizeof path, "%s/tests/fake_cuda/libcuda.so.1", getenv("TT_BUILD"));
    *(void **)&events = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "fake_cuda_events");
    CHECK(events);
    for (int i = 0; i < CALLS; i++) {
        all_reduce_to_end(group, x, rank);
        if (i == 0)
            before = events();
    }
    CHECK(before == 3);            /* an anchor, a beginning and an end */
    CHECK(events() <= before + 1); /* another anchor, if this has taken seconds */
    tt_tensor_free(x);
    tt_destroy_process_group(group);
    return 0;
}

static void events_are_used_again(void **state) {
    (void)state;
    with_ranks(2, steady, NULL);
}

/* ---- failures */

static int unmeasured(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = some_floats(rank);
    tt__record_device ran;
    float sums[N];
    tt_clear_error();
    for (int i = 0; i < 3; i++) {
        all_reduce_to_end(group, x, rank);
        tt__call_record record = last_record(group, TT_OP_ALL_REDUCE);
        CHECK(tt__record_read_device(recorder_of(group), record.number, &ran) == (arg != NULL));
        CHECK(record.state == TT__CALL_DONE);
    }
    CHECK(tt_last_status() == TT_OK);
    gpu_read(x, sums);
    CHECK(sums[0] == 8);
    check_shown(group, arg != NULL);
    tt_tensor_free(x);
    tt_destroy_process_group(group);
    return 0;
}

static void calls_survive_what_is_not_measured(void **state) {
    (void)state;
    setenv("FAKE_CUDA_NO_TIMES", "1", 1);
    with_ranks(2, unmeasured, NULL);
    unsetenv("FAKE_CUDA_NO_TIMES");
    for (int n = 0; n < 3; n++) {
        setenv("FAKE_CUDA_TIMED_EVENTS", (const char *[]){"0", "1", "2"}[n], 1);
        with_ranks(2, unmeasured, NULL);
    }
    setenv("FAKE_CUDA_TIMED_EVENTS", "3", 1);
    with_ranks(2, unmeasured, "measured");
    unsetenv("FAKE_CUDA_TIMED_EVENTS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_time_is_apart),
        cmocka_unit_test(events_are_used_again),
        cmocka_unit_test(calls_survive_what_is_not_measured),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
