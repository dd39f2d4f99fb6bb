/* Groups on other engines when something is wrong: calls that differ, ranks that end or stay away, aborts, works that
 * nobody waits for. Each ends in bounded time with an error that says what is known. */
#include "support/ranks.h"

#include <pthread.h>
#include <time.h>

static const char *const backends[] = {"gloo", "mpi-openmpi", "mpi-mpich"};
enum { SHORT_MS = 1500, COUNT = 5000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_built(const char *backend) {
    char path[512];
    snprintf(path, sizeof path, "%s/lib/tutti/libtutti-backend-%s.so", getenv("TT_BUILD"), backend);
    return access(path, R_OK) == 0;
}

static tt_group *join(tt_store *store, int rank, int world, const char *backend) {
    tt_group *group = NULL;
    CHECK_OK(tt_init_process_group(&group, .backend = backend, .store = store, .rank = rank, .world_size = world,
                                   .timeout_ms = PATIENCE_MS));
    return group;
}

static void expect_unusable(tt_group *group) {
    float x = 0;
    tt_status status = tt_all_reduce(group, &x, 1, TT_F32, TT_SUM);
    CHECK(status != TT_OK);
    CHECK_TEXT("failed before");
    tt_destroy_process_group(group);
}

static int other_count(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[2 * COUNT];
    CHECK(tt_all_reduce(group, x, rank == 1 ? 2 * COUNT : COUNT, TT_F32, TT_SUM) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 called all_reduce(f32 x 10000, sum) at test_backend_peers.c:");
    CHECK_TEXT("while ranks 0, 2 called all_reduce(f32 x 5000, sum)");
    expect_unusable(group);
    return 0;
}

/* Errors number the program's own calls: what the library calls when it joins and makes a group is not counted. */
static int second_call(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL, *made = NULL;
    float x = 0;
    be_rank_by_environment(store, rank, world, 0);
    CHECK_OK(tt_init_process_group(&group, .backend = arg, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_new_group(&made, group, ((int[]){0, 1, 2}), 3));
    CHECK((rank ? tt_barrier(group) : tt_all_reduce(group, &x, 1, TT_F32, TT_SUM)) == TT_ERR_MISMATCH);
    CHECK_TEXT("call 2 of the group differs");
    tt_destroy_process_group(made);
    tt_destroy_process_group(group);
    return 0;
}

static int other_call(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[COUNT];
    tt_work *work = NULL;
    if (rank == 2) {
        CHECK(tt_broadcast(group, x, COUNT, TT_F32, 1) == TT_ERR_MISMATCH);
    } else {
        CHECK_OK(tt_all_reduce(group, x, COUNT, TT_F32, TT_SUM, .work = &work));
        CHECK(tt_work_wait(work) == TT_ERR_MISMATCH);
    }
    CHECK_TEXT("rank 2 called broadcast(f32 x 5000, root 1)");
    tt_work_free(work);
    expect_unusable(group);
    return 0;
}

static int other_share(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[64], y[64];
    int64_t counts[] = {1, 2, 3}, expected[] = {1, 2, 3};
    for (int r = 0; r < world; r++)
        expected[r] = rank + 1 + (rank == 0 && r == 2);
    CHECK(tt_all_to_all_v(group, x, counts, NULL, y, expected, NULL, TT_F32) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 2 sends another number of elements to rank 0");
    tt_destroy_process_group(group);
    return 0;
}

/* Rank 1 is named long before the time of the call is up, by whoever sees it first. */
static void expect_rank_1_ended(tt_group *group, double begin) {
    CHECK(now() - begin < 15 + (double)leeway_ms() / 1e3);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT(") ended, while rank ");
    expect_unusable(group);
}

/* Rank 1 never comes: killed, so that nothing is said. */
static int killed(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[COUNT];
    CHECK_OK(tt_barrier(group));
    wait_for_all(store, world); /* who dies in the barrier ends it */
    if (rank == 1)
        raise(SIGKILL);
    double begin = now();
    CHECK(tt_all_reduce(group, x, COUNT, TT_F32, TT_SUM) == TT_ERR_PEER);
    CHECK_TEXT(", all_reduce(f32 x 5000, sum) at test_backend_peers.c:");
    expect_rank_1_ended(group, begin);
    return 0;
}

/* The engine waits for a message of rank 1, or of any. */
static int killed_sender(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    float x;
    CHECK_OK(tt_barrier(group));
    wait_for_all(store, world);
    if (rank == 1)
        raise(SIGKILL);
    double begin = now();
    if (rank == 0)
        CHECK(tt_recv(group, &x, 1, TT_F32, 1) == TT_ERR_PEER);
    else
        CHECK(tt_recv(group, &x, 1, TT_F32, TT_ANY_SOURCE) == TT_ERR_PEER);
    CHECK_TEXT("recv(f32 x 1");
    expect_rank_1_ended(group, begin);
    return 0;
}

static void *die_soon(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    raise(SIGKILL);
    return arg;
}

/* Rank 1 ends somewhere within a call. */
static int killed_midway(tt_store *store, int rank, int world, void *arg) {
    enum { MANY = 1 << 20 };
    tt_group *group = join(store, rank, world, arg);
    static float x[MANY];
    pthread_t thread;
    tt_status status = TT_OK;
    CHECK_OK(tt_barrier(group));
    wait_for_all(store, world);
    double begin = now();
    CHECK(rank != 1 || !pthread_create(&thread, NULL, die_soon, NULL));
    while (!status)
        status = tt_all_reduce(group, x, MANY, TT_F32, TT_MAX);
    CHECK(status == TT_ERR_PEER);
    expect_rank_1_ended(group, begin);
    return 0;
}

static int stopped(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    float x = 0;
    CHECK_OK(tt_init_process_group(&group, .backend = arg, .store = store, .rank = rank, .world_size = world,
                                   .timeout_ms = 20000, .heartbeat_ms = 800));
    CHECK_OK(tt_barrier(group));
    wait_for_all(store, world);
    if (rank == 1)
        raise(SIGSTOP);
    CHECK((rank ? tt_all_reduce(group, &x, 1, TT_F32, TT_SUM) : tt_recv(group, &x, 1, TT_F32, 1)) == TT_ERR_PEER);
    CHECK_TEXT("rank 1 (pid ");
    CHECK_TEXT("is frozen");
    expect_unusable(group);
    CHECK_OK(tt_store_set(store, rank ? "seen by 2" : "seen by 0", "", 0));
    return 0;
}

/* Its timeout names who did not come. */
static int absent(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[COUNT];
    CHECK_OK(tt_barrier(group));
    if (rank == 1) {
        CHECK_OK(tt_store_wait(store, (const char *[]){"seen by 0", "seen by 2"}, 2, 0));
    } else {
        CHECK(tt_all_reduce(group, x, COUNT, TT_F32, TT_SUM, .timeout_ms = SHORT_MS) == TT_ERR_TIMEOUT);
        CHECK_TEXT("did not come to all_reduce(f32 x 5000, sum) at test_backend_peers.c:");
        CHECK(strstr(tt_last_error(), "rank 1 ") || strstr(tt_last_error(), ", 1") || strstr(tt_last_error(), " 1,"));
        CHECK_OK(tt_store_set(store, rank ? "seen by 2" : "seen by 0", "", 0));
        expect_unusable(group);
        return 0;
    }
    tt_destroy_process_group(group);
    return 0;
}

/* Works of all kinds are under way when the group is destroyed. */
static int left_behind(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[COUNT], y[4];
    tt_work *works[3] = {0};
    CHECK_OK(tt_barrier(group));
    if (rank == 0) {
        CHECK_OK(tt_all_reduce(group, x, COUNT, TT_F32, TT_SUM, .work = &works[0]));
        CHECK_OK(tt_broadcast(group, x, COUNT, TT_F32, 0, .work = &works[1]));
        CHECK_OK(tt_irecv(&works[2], group, y, 4, TT_F32, TT_ANY_SOURCE));
    }
    tt_destroy_process_group(group);
    for (int w = 0; w < 3; w++)
        if (works[w]) {
            CHECK(tt_work_wait(works[w]) == TT_ERR_STATE);
            CHECK_TEXT("destroyed");
            tt_work_free(works[w]);
        }
    return 0;
}

static void *abort_soon(void *group) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    tt_group_abort(group, "the test says so");
    return NULL;
}

static int aborted(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    float x = 0;
    pthread_t thread;
    CHECK_OK(tt_barrier(group));
    CHECK(rank || !pthread_create(&thread, NULL, abort_soon, group));
    if (rank == 2)
        CHECK(tt_recv(group, &x, 1, TT_F32, 1) == TT_ERR_ABORTED);
    else
        CHECK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM) == TT_ERR_ABORTED);
    CHECK_TEXT("rank 0 aborted the group: the test says so");
    if (!rank)
        pthread_join(thread, NULL);
    expect_unusable(group);
    return 0;
}

static int stays_away(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    tt_status status = TT_OK;
    if (rank == 0) {
        CHECK_OK(tt_store_wait(store, &(const char *){"rank 1 comes"}, 1, PATIENCE_MS));
        status = tt_monitored_barrier(group, .timeout_ms = SHORT_MS);
        CHECK(status == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 2 did not come to monitored_barrier() within 1500 ms");
    } else if (rank == 1) {
        CHECK_OK(tt_store_set(store, "rank 1 comes", "", 0));
        CHECK(tt_monitored_barrier(group, .timeout_ms = PATIENCE_MS) == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 2 did not come to monitored_barrier() within 1500 ms");
        expect_unusable(group);
        CHECK_OK(tt_store_set(store, "given up", "", 0));
        return 0;
    }
    if (rank == 2) { /* goes when the others have given up */
        CHECK_OK(tt_store_wait(store, &(const char *){"given up"}, 1, 0));
    }
    tt_destroy_process_group(group);
    return 0;
}

typedef struct one {
    rank_body body;
    const char *backend;
} one;

/* Open MPI 4.1 itself now and then hangs on a busy machine, once its tcp has said "writev failed" of a peer that was
 * killed: no call of MPI returns then. One such end a run is repeated; a hang of ours comes twice. */
static bool hung_in_open_mpi(const char *backend, int end) {
    static bool seen;
    if (seen || end != 128 + SIGALRM || strcmp(backend, "mpi-openmpi") != 0)
        return false;
    printf("a rank hung in %s: the case is repeated, once\n", backend);
    return seen = true;
}

/* At exit MPI may wait for a rank that has ended, so the ranks end without it. */
static int run_one(tt_store *store, int rank, int world, void *arg) {
    const one *what = arg;
    if (!strcmp(what->backend, "mpi-openmpi"))
        alarm((unsigned)test_seconds() / 3); /* leaves time for once more */
    int code = what->body(store, rank, world, (void *)(uintptr_t)what->backend);
    fflush(NULL);
    if (!strncmp(what->backend, "mpi", 3))
        _exit(code);
    return code;
}

/* Rank 1 has stopped itself. It is ended when the others have seen that. */
static void end_stopped_rank(const ranks *ranks) {
    tt_store *store;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(ranks->server)), TT_OK);
    assert_int_equal(tt_store_wait(store, (const char *[]){"seen by 0", "seen by 2"}, 2, 50000), TT_OK);
    tt_store_free(store);
    assert_int_equal(kill(ranks->pid[1], SIGKILL), 0);
}

/* Return whether it is to be run again. */
static bool hangs_with(const char *backend, rank_body body, int killed_rank) {
    ranks ranks;
    bool hung = false;
    start_ranks(&ranks, 3, run_one, &(one){body, backend});
    if (body == stopped)
        end_stopped_rank(&ranks);
    for (int r = 0; r < 3; r++) {
        int end = end_of_rank(&ranks, r);
        hung |= hung_in_open_mpi(backend, end);
        if (!hung && end != (r == killed_rank ? 128 + SIGKILL : 0))
            fail_msg("%s: rank %d ended with %d", backend, r, end);
    }
    tt_store_server_free(ranks.server);
    return hung;
}

static void each_backend(rank_body body, int killed_rank) {
    setenv("OMPI_MCA_btl", "self,tcp", 1); /* Open MPI's segments of shared memory outlive ranks that are killed */
    setenv("UCX_TLS", "^cma", 1); /* with it, UCX ends an MPICH process whose peer has ended while its memory is read */
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (!is_built(backends[i])) {
            printf("left out: the back end %s was not built\n", backends[i]);
            continue;
        }
        while (hangs_with(backends[i], body, killed_rank))
            ;
    }
}

static void calls_that_differ_are_named(void **state) {
    (void)state;
    each_backend(other_count, -1);
    each_backend(other_call, -1);
    each_backend(other_share, -1);
}

static void errors_number_the_programs_calls(void **state) {
    (void)state;
    each_backend(second_call, -1);
}

static void a_killed_rank_is_named(void **state) {
    (void)state;
    each_backend(killed, 1);
    each_backend(killed_sender, 1);
    each_backend(killed_midway, 1);
}

static void a_stopped_rank_is_named(void **state) {
    (void)state;
    each_backend(stopped, 1);
}

static void a_missing_rank_is_named(void **state) {
    (void)state;
    each_backend(absent, -1);
}

static void works_end_with_their_group(void **state) {
    (void)state;
    each_backend(left_behind, -1);
}

static void an_abort_ends_the_wait(void **state) {
    (void)state;
    each_backend(aborted, -1);
}

static void a_monitored_barrier_names_who_is_missing(void **state) {
    (void)state;
    each_backend(stays_away, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_differ_are_named), cmocka_unit_test(errors_number_the_programs_calls),
        cmocka_unit_test(a_killed_rank_is_named),      cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_missing_rank_is_named),     cmocka_unit_test(works_end_with_their_group),
        cmocka_unit_test(an_abort_ends_the_wait),      cmocka_unit_test(a_monitored_barrier_names_who_is_missing),
    };
    bool any = false;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        any = any || is_built(backends[i]);
    if (!any) {
        printf("skipped: no back end was built as a plug-in\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
