/* The nccl back end's device times, with a host's clock and a device's that the test moves: what is written of a call,
 * from which anchor, and what becomes of failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static int64_t host_ns; /* what clock_gettime() says */

static void tell_host_time(struct timespec *at) {
    *at = (struct timespec){.tv_sec = host_ns / 1000000000, .tv_nsec = host_ns % 1000000000};
}

#define clock_gettime(clock, at) tell_host_time(at)
#include "../../../plugins/nccl/times.c"
#undef clock_gettime

/* The device's clock has another zero, and may run ahead by some parts in a million. */
enum { ZERO_NS = 123456, EVENTS = 16 };
static int ppm;

static struct {
    bool recorded, happened;
    int64_t at_ns;
} events[EVENTS];

static nccl_event given[EVENTS];
static int made, streams;
static int calls, fail_at; /* CUDA was called so often; which call of it fails, from 1 on; 0: none */

static bool call_fails(void) { return ++calls == fail_at; }

static int64_t device_ns(void) { return ZERO_NS + host_ns + host_ns / 1000000 * ppm; }

static CUresult stream_create(CUstream *stream, unsigned flags) {
    (void)flags;
    *stream = (CUstream)(uintptr_t)(0x100 + ++streams);
    return call_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

/* Happens at once on the clock's stream; on the lane's when the test says so. */
static CUresult event_record(CUevent event, CUstream stream) {
    uintptr_t i = (uintptr_t)event;
    events[i].recorded = true;
    events[i].happened = (uintptr_t)stream > 0x100;
    events[i].at_ns = device_ns();
    return call_fails() ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent a, CUevent b) {
    uintptr_t from = (uintptr_t)a, to = (uintptr_t)b;
    if (call_fails() || !events[from].happened || !events[to].happened)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(events[to].at_ns - events[from].at_ns) / 1e6);
    return CUDA_SUCCESS;
}

cuda_functions cuda = {
    .cuStreamCreate = stream_create, .cuEventRecord = event_record, .cuEventElapsedTime = event_elapsed};

CUresult nccl_take_event(nccl_engine *e, bool timed, nccl_event **out) {
    (void)e;
    assert_true(timed);
    if (call_fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 1; i < EVENTS; i++)
        if (!given[i].event) {
            given[i].event = (CUevent)(uintptr_t)i;
            events[i].recorded = events[i].happened = false;
            *out = &given[i];
            made++;
            return CUDA_SUCCESS;
        }
    fail();
    return CUDA_ERROR_UNKNOWN;
}

void nccl_give_event(nccl_engine *e, nccl_event **event) {
    (void)e;
    if (*event) {
        (*event)->event = NULL;
        made--;
    }
    *event = NULL;
}

static nccl_engine engine;
static nccl_lane lane = {.stream = (CUstream)(uintptr_t)1};

static int setup(void **state) {
    (void)state;
    memset(given, 0, sizeof given);
    engine = (nccl_engine){.rank = 0};
    host_ns = 1000000000;
    made = streams = calls = fail_at = ppm = 0;
    return 0;
}

static void happens(const nccl_event *event) {
    uintptr_t i = (uintptr_t)event->event;
    events[i].happened = true;
    events[i].at_ns = device_ns();
}

/* A call that waits on the device and then runs there, and is seen as done some time later. */
static tt_call_times run_call(int64_t waits, int64_t runs, int64_t seen_after, int64_t *began) {
    tt_call_times times = {0};
    nccl_request r = {.call = {.times = &times}};
    nccl_times_begin(&engine, &lane, &r);
    host_ns += waits;
    *began = host_ns;
    if (r.start)
        happens(r.start);
    host_ns += runs;
    nccl_times_take_end(&engine, &r);
    if (r.end)
        happens(r.end);
    host_ns += seen_after;
    nccl_times_end(&r);
    if (r.end)
        nccl_give_event(&engine, &r.end);
    nccl_times_forget(&engine, &r);
    return times;
}

static bool is_near(int64_t a, int64_t b, int64_t within) { return a - b <= within && b - a <= within; }

/* Over minutes, in which the clocks part: a renewed anchor keeps within what they part in some seconds. */
static void calls_have_their_moment(void **state) {
    (void)state;
    ppm = 100;
    for (int i = 0; i < 100; i++) {
        int64_t began;
        tt_call_times times = run_call(3000000, 7000000, 20000000, &began);
        assert_true(is_near(times.duration_ns, 7000000, 2000));
        assert_true(is_near(times.begin_ns, began, 600000));
        host_ns += INT64_C(3000000000);
    }
    assert_int_equal(streams, 1);
    assert_int_equal(made, 2); /* the anchors */
}

/* While a call is under way its anchor stays, however long that takes. */
static void anchors_stay_while_they_are_used(void **state) {
    (void)state;
    tt_call_times times = {0};
    int64_t began;
    nccl_request r = {.call = {.times = &times}};
    nccl_times_begin(&engine, &lane, &r);
    host_ns += 1000000;
    int64_t at = host_ns;
    happens(r.start);
    for (int i = 0; i < 10; i++) {
        host_ns += INT64_C(6000000000);
        run_call(0, 1000, 0, &began);
    }
    nccl_times_take_end(&engine, &r);
    happens(r.end);
    host_ns += 5000000;
    nccl_times_end(&r);
    assert_true(is_near(times.begin_ns, at, 10000));
    nccl_give_event(&engine, &r.end);
    nccl_times_forget(&engine, &r);
    assert_true(engine.anchors[0].users == 0 && engine.anchors[1].users == 0);
}

/* Nothing begins before the host has issued it, or ends after the host has seen it done. */
static void moments_lie_within_the_hosts(void **state) {
    (void)state;
    int64_t began;
    run_call(0, 1000, 0, &began);
    engine.anchors[engine.anchor].at_ns += 500000000; /* too late */
    tt_call_times times = run_call(0, 1000000, 5000, &began);
    assert_true(is_near(times.begin_ns, began + 5000, 1000));
    engine.anchors[engine.anchor].at_ns -= 1000000000; /* too early */
    times = run_call(0, 1000000, 5000, &began);
    assert_int_equal(times.begin_ns, began);
}

static void nobody_asks(void **state) {
    (void)state;
    nccl_request r = {.start = NULL};
    nccl_times_begin(&engine, &lane, &r);
    nccl_times_take_end(&engine, &r);
    nccl_times_end(&r);
    assert_true(!r.start && !r.end && !made && !calls);
}

/* Whichever call fails, nothing is lost, and what is written is right. */
static void failures_leave_times_unknown(void **state) {
    (void)state;
    int n = 0, known = 0;
    do {
        int64_t began;
        setup(NULL);
        fail_at = ++n;
        tt_call_times times = run_call(1000, 7000000, 1000, &began);
        if (times.begin_ns) {
            known++;
            assert_true(is_near(times.duration_ns, 7000000, 2000) && is_near(times.begin_ns, began, 9000));
        }
        assert_true(engine.anchors[0].users == 0 && engine.anchors[1].users == 0);
        assert_int_equal(made, (engine.anchors[0].event != NULL) + (engine.anchors[1].event != NULL));
    } while (calls >= n);
    assert_true(n > 6 && known >= 3 && known < n); /* without an anchor, and at last without a failure */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(calls_have_their_moment, setup),
        cmocka_unit_test_setup(anchors_stay_while_they_are_used, setup),
        cmocka_unit_test_setup(moments_lie_within_the_hosts, setup),
        cmocka_unit_test_setup(nobody_asks, setup),
        cmocka_unit_test_setup(failures_leave_times_unknown, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
