/* Groups on the back end nccl when a rank dies, or NCCL hangs or fails, on a fake of it: each ends in bounded time with
 * an error that names the rank, also where the host waits for its device and not for the group. */
#include "support/nccl.h"

#include <pthread.h>
#include <time.h>

enum { SHORT_MS = 1500, COUNT = 100000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tt_status sum(tt_group *group, int rank, tt_tensor *x, int64_t timeout_ms) {
    return tt_all_reduce(group, gpu_at(x), COUNT, TT_F32, TT_SUM, ON_GPU(rank), .timeout_ms = timeout_ms);
}

static tt_tensor *new_floats(int rank) {
    static float zeros[COUNT];
    return gpu_new(rank, zeros, sizeof zeros);
}

/* The call returns as soon as the stream waits; then the host waits for the stream, until somebody ends that. */
static tt_status sum_and_wait(tt_group *group, int rank, tt_tensor *x, int64_t timeout_ms) {
    static float here[COUNT];
    tt_status status = sum(group, rank, x, timeout_ms);
    if (!status)
        gpu_read(x, here);
    return status ? status : tt_barrier(group);
}

static void leave(tt_group *group, tt_tensor *x, double begin) {
    CHECK(now() - begin < 15 + (double)leeway_ms() / 1e3);
    CHECK(tt_barrier(group) != TT_OK);
    CHECK_TEXT("failed before");
    tt_tensor_free(x);
    tt_destroy_process_group(group);
}

/* ---- a rank that dies ---- */

static int killed(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    CHECK_OK(sum_and_wait(group, rank, x, 0));
    wait_for_all(store, world);
    if (rank == 1 && !arg)
        raise(SIGKILL);
    double begin = now();
    CHECK(sum_and_wait(group, rank, x, 0) == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT(") ended, while rank ");
    leave(group, x, begin);
    return 0;
}

static void *die_soon(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    raise(SIGKILL);
    return arg;
}

/* Rank 1's NCCL hangs in the call, and then it is killed: the others' devices wait for it. */
static int killed_midway(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    pthread_t thread;
    (void)arg;
    setenv("FAKE_NCCL_HANG", "AllReduce@1", 1);
    wait_for_all(store, world);
    double begin = now();
    CHECK(rank != 1 || !pthread_create(&thread, NULL, die_soon, NULL));
    CHECK(sum_and_wait(group, rank, x, 0) == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT("all_reduce(f32 x 100000, sum) at test_nccl_peers.c:");
    leave(group, x, begin);
    return 0;
}

/* Rank 1 is killed while NCCL joins the ranks, and when a group of them is made: nobody waits for the timeout. */
static int killed_joining(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL, *sub = NULL;
    pthread_t thread;
    const bool first = !strncmp(arg, "CommInit", 8);
    if (!first)
        group = nccl_join(store, rank, world);
    setenv("FAKE_NCCL_HANG", (const char *)arg, 1);
    double begin = now();
    CHECK(rank != 1 || !pthread_create(&thread, NULL, die_soon, NULL));
    tt_status status = first ? nccl_try(&group, store, rank, world, PATIENCE_MS) : tt_group_split(&sub, group, 0, 0);
    CHECK(status == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT(") ended");
    CHECK(now() - begin < 15 + (double)leeway_ms() / 1e3);
    tt_destroy_process_group(group);
    return 0;
}

/* A group of a group's ranks is split again: by then its parent may be gone. */
static int killed_splitting_again(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *sub = NULL, *again = NULL;
    pthread_t thread;
    CHECK_OK(tt_group_split(&sub, group, 0, world - rank)); /* in the other order: rank 1 is its rank 1, too */
    tt_destroy_process_group(group);
    setenv("FAKE_NCCL_HANG", "CommSplit@1", 1);
    double begin = now();
    CHECK(rank != 1 || !pthread_create(&thread, NULL, die_soon, NULL));
    CHECK(tt_group_split(&again, sub, 0, 0) == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT(") ended, while ");
    CHECK(!again && now() - begin < 15 + (double)leeway_ms() / 1e3);
    tt_destroy_process_group(sub);
    (void)arg;
    return 0;
}

/* Rank 1 has a control group with the others, and dies before it tells of its device. */
static int killed_before_meeting(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    (void)arg;
    if (rank == 1)
        setenv("FAKE_CUDA_DIE", "1", 1);
    double begin = now();
    CHECK(nccl_try(&group, store, rank, world, PATIENCE_MS) == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK(!group && now() - begin < 15 + (double)leeway_ms() / 1e3);
    return 0;
}

static void check_killed(rank_body body, int world, void *arg) {
    ranks ranks;
    start_ranks(&ranks, world, body, arg);
    for (int r = 0; r < world; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == 1 ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

static void a_rank_killed_while_joining_is_named(void **state) {
    (void)state;
    check_killed(killed_joining, 3, "CommInitRankConfig@1");
    setenv("FAKE_NCCL_FAIL", "CommInitRankConfig@2", 1); /* as where a peer that has heard of it gives up first */
    check_killed(killed_joining, 3, "CommInitRankConfig@1");
    setenv("FAKE_NCCL_FAIL", "", 1);
    check_killed(killed_joining, 3, "CommSplit@1");
    check_killed(killed_splitting_again, 3, NULL);
    check_killed(killed_before_meeting, 3, NULL);
}

static void a_killed_rank_is_named(void **state) {
    (void)state;
    check_killed(killed, 3, NULL);
    check_killed(killed_midway, 3, NULL);
}

/* ---- a rank that freezes ---- */

static void *stop_soon(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    raise(SIGSTOP);
    return arg;
}

/* All ranks have come to the call, in which a rank's NCCL hangs, and then that rank is stopped. */
static int frozen_midway(tt_store *store, int rank, int world, void *arg) {
    const int whom = *(const int *)arg;
    tt_group *group = NULL;
    pthread_t thread;
    char text[32];
    CHECK_OK(tt_init_process_group(&group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                                   .timeout_ms = PATIENCE_MS, .heartbeat_ms = SHORT_MS, .device = TT_DEVICE_CUDA,
                                   .device_index = rank));
    tt_tensor *x = new_floats(rank);
    snprintf(text, sizeof text, "AllReduce@%d", whom);
    setenv("FAKE_NCCL_HANG", text, 1);
    wait_for_all(store, world);
    double begin = now();
    CHECK(rank != whom || !pthread_create(&thread, NULL, stop_soon, NULL));
    CHECK(sum_and_wait(group, rank, x, 0) == TT_ERR_PEER);
    snprintf(text, sizeof text, "rank %d (pid ", whom);
    CHECK_TEXT(text);
    CHECK_TEXT("is frozen");
    leave(group, x, begin);
    return 0;
}

static void a_frozen_rank_is_named(void **state) {
    (void)state;
    for (int whom = 0; whom < 2; whom++) {
        ranks ranks;
        start_ranks(&ranks, 3, frozen_midway, &whom);
        for (int r = 0; r < 3; r++)
            if (r != whom)
                assert_int_equal(end_of_rank(&ranks, r), 0);
        kill(ranks.pid[whom], SIGKILL);
        assert_int_equal(end_of_rank(&ranks, whom), 128 + SIGKILL);
        tt_store_server_free(ranks.server);
    }
}

/* ---- NCCL hangs ---- */

static int hanging_call(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    double begin = now();
    setenv("FAKE_NCCL_HANG", (const char *)arg, 1);
    CHECK(sum_and_wait(group, rank, x, SHORT_MS) == TT_ERR_TIMEOUT);
    CHECK_TEXT("all_reduce(f32 x 100000, sum) at test_nccl_peers.c:");
    CHECK_TEXT(" was not complete within 1500 ms");
    CHECK_TEXT("rank ");
    setenv("FAKE_NCCL_HANG", "", 1);
    leave(group, x, begin);
    return 0;
}

/* The message that is not received; nobody waits for it but the stream. */
static int hanging_message(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    static float here[COUNT];
    double begin = now();
    tt_status status = TT_OK;
    (void)arg;
    if (rank == 0)
        status = tt_send(group, gpu_at(x), COUNT, TT_F32, 1, ON_GPU(rank), .timeout_ms = SHORT_MS);
    if (!status)
        gpu_read(x, here);
    while (!status)
        status = tt_barrier(group);
    CHECK(status == TT_ERR_TIMEOUT);
    CHECK_TEXT("send(f32 x 100000");
    CHECK_TEXT("on rank 0 was not complete within 1500 ms");
    leave(group, x, begin);
    return 0;
}

/* ncclCommAbort() itself does not return: the program goes on all the same. */
static int hanging_abort(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    double begin = now();
    (void)arg;
    CHECK_OK(sum_and_wait(group, rank, x, 0));
    setenv("FAKE_NCCL_HANG", rank ? "CommFinalize@1" : "CommAbort@0", 1);
    tt_tensor_free(x);
    tt_destroy_process_group(group);
    CHECK(now() - begin < 12 + (double)leeway_ms() / 1e3);
    return 0;
}

static int hanging_init(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    double begin = now();
    char who[64];
    setenv("FAKE_NCCL_HANG", (const char *)arg, 1);
    CHECK(nccl_try(&group, store, rank, world, SHORT_MS) != TT_OK);
    snprintf(who, sizeof who, "has not joined rank ");
    CHECK_TEXT(who);
    CHECK_TEXT(" within 1500 ms");
    CHECK(!group && now() - begin < 15 + (double)leeway_ms() / 1e3);
    return 0;
}

static int missing(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *sub = NULL;
    double begin = now();
    (void)arg;
    setenv("FAKE_NCCL_HANG", "CommSplit@1", 1);
    CHECK(tt_group_split(&sub, group, 0, 0, .timeout_ms = SHORT_MS) == TT_ERR_TIMEOUT);
    CHECK_TEXT("making a group of some ranks: NCCL has not joined rank ");
    CHECK(!sub && now() - begin < 15 + (double)leeway_ms() / 1e3);
    tt_destroy_process_group(group);
    return 0;
}

static void what_hangs_ends(void **state) {
    (void)state;
    with_ranks(2, hanging_call, "AllReduce@1");
    with_ranks(2, hanging_message, NULL);
    with_ranks(2, hanging_abort, NULL);
    with_ranks(3, hanging_init, "CommInitRankConfig@1");
    with_ranks(3, hanging_init, "CommSplit@2");
    with_ranks(3, missing, NULL);
}

/* ---- NCCL fails ---- */

static int failing_call(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    double begin = now();
    tt_status status = TT_OK;
    setenv((const char *)arg, "AllReduce@1", 1);
    while (!status)
        status = sum_and_wait(group, rank, x, 0);
    CHECK_TEXT("nccl: all_reduce on rank 1 failed: ");
    CHECK_TEXT(!strcmp(arg, "FAKE_NCCL_FAIL") ? "unhandled system error"
                                              : "remote process exited or there was a network error: socket closed");
    leave(group, x, begin);
    return 0;
}

static int failing_init(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    double begin = now();
    setenv("FAKE_NCCL_FAIL", (const char *)arg, 1);
    CHECK(nccl_try(&group, store, rank, world, PATIENCE_MS) != TT_OK);
    CHECK_TEXT("nccl: ");
    CHECK_TEXT(" failed: unhandled system error");
    CHECK(strstr(tt_last_error(), strchr(arg, '@')[1] == '1' ? "on rank 1 " : "on rank 0 "));
    CHECK(!group && now() - begin < 15 + (double)leeway_ms() / 1e3);
    return 0;
}

/* Rank 1's split fails; nobody waits for it until the timeout. arg: in a group of a group's ranks. */
static int failing_split(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *sub = NULL, *again = NULL;
    if (arg)
        CHECK_OK(tt_group_split(&sub, group, 0, 0));
    double begin = now();
    setenv("FAKE_NCCL_FAIL", "CommSplit@1", 1);
    CHECK(tt_group_split(&again, arg ? sub : group, 0, 0) == TT_ERR_NET);
    CHECK_TEXT("nccl: making a group of some ranks on rank 1 failed: unhandled system error");
    CHECK(!again && now() - begin < 15 + (double)leeway_ms() / 1e3);
    CHECK(tt_barrier(arg ? sub : group) == TT_ERR_NET);
    tt_destroy_process_group(sub);
    tt_destroy_process_group(group);
    return 0;
}

static void a_failure_is_told_to_all(void **state) {
    (void)state;
    with_ranks(3, failing_call, "FAKE_NCCL_FAIL");
    with_ranks(3, failing_call, "FAKE_NCCL_ASYNC");
    with_ranks(3, failing_init, "CommInitRankConfig@1");
    with_ranks(3, failing_init, "GetUniqueId@0");
    with_ranks(3, failing_split, NULL);
    with_ranks(3, failing_split, "again");
}

/* CUDA's calls fail from the nth on: an error with a text, or none, and an end. */
static int failing_cuda(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    float x[4] = {1, 2, 3, 4}; /* the device would make calls, too */
    setenv("FAKE_CUDA_ANY_MEMORY", "1", 1);
    setenv("FAKE_CUDA_FAIL", (const char *)arg, 1);
    tt_status status = nccl_try(&group, store, rank, world, PATIENCE_MS);
    for (int i = 0; i < 3 && !status; i++)
        status = tt_all_reduce(group, x, 4, TT_F32, TT_SUM, ON_GPU(rank));
    if (!status)
        status = tt_barrier(group);
    CHECK(!status || strstr(tt_last_error(), "CUDA error"));
    CHECK(status || atoi(arg) > 12);
    tt_destroy_process_group(group);
    return 0;
}

static void a_failure_of_cuda_is_an_error(void **state) {
    char n[4];
    (void)state;
    for (int i = 1; i <= 20; i++) {
        snprintf(n, sizeof n, "%d", i);
        with_ranks(1, failing_cuda, n);
    }
}

/* ---- an end that the program wants ---- */

static int aborted(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    static float here[COUNT];
    tt_work *work = NULL;
    (void)arg;
    setenv("FAKE_NCCL_HANG", "AllReduce@1", 1);
    double begin = now();
    CHECK_OK(tt_all_reduce(group, gpu_at(x), COUNT, TT_F32, TT_SUM, ON_GPU(rank), .work = &work));
    tt_status status = tt_work_wait(work);
    CHECK(!status || (rank && status == TT_ERR_ABORTED));
    if (rank == 0)
        tt_group_abort(group, "the test says so");
    gpu_read(x, here);
    tt_work_free(work);
    CHECK(tt_barrier(group) == TT_ERR_ABORTED);
    CHECK_TEXT("rank 0 aborted the group: the test says so");
    leave(group, x, begin);
    return 0;
}

/* Works are under way when the group is destroyed. */
static int left_behind(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *x = new_floats(rank);
    tt_work *works[2] = {0};
    (void)arg;
    CHECK_OK(tt_barrier(group));
    wait_for_all(store, world);
    if (rank == 0) {
        CHECK_OK(tt_all_reduce(group, gpu_at(x), COUNT, TT_F32, TT_SUM, ON_GPU(rank), .work = &works[0]));
        CHECK_OK(tt_irecv(&works[1], group, gpu_at(x), 4, TT_F32, 1, ON_GPU(rank)));
    }
    tt_destroy_process_group(group);
    for (int w = 0; w < 2; w++)
        if (works[w]) {
            CHECK(tt_work_wait(works[w]) == TT_ERR_STATE);
            tt_work_free(works[w]);
        }
    tt_tensor_free(x);
    return 0;
}

static void a_group_may_end_early(void **state) {
    (void)state;
    with_ranks(2, aborted, NULL);
    with_ranks(2, left_behind, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frozen_rank_is_named),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_rank_killed_while_joining_is_named),
        cmocka_unit_test(what_hangs_ends),
        cmocka_unit_test(a_failure_is_told_to_all),
        cmocka_unit_test(a_failure_of_cuda_is_an_error),
        cmocka_unit_test(a_group_may_end_early),
    };
    nccl_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
