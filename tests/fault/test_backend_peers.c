/* Groups on other engines when something is wrong: calls that differ, ranks that end or stay away, aborts, works that nobody waits for. Each ends in
 * bounded time with an error that says what is known. */
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
    CHECK_TEXT("while rank 0, 2 called all_reduce(f32 x 5000, sum)");
    expect_unusable(group);
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
    size_t counts[] = {1, 2, 3}, expected[] = {1, 2, 3};
    for (int r = 0; r < world; r++)
        expected[r] = (size_t)(rank + 1 + (rank == 0 && r == 2));
    CHECK(tt_all_to_all_v(group, x, counts, NULL, y, expected, NULL, TT_F32) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 2 sends another number of elements to rank 0");
    tt_destroy_process_group(group);
    return 0;
}

/* Rank 1 never comes: killed, so that nothing is said. gloo sees its connections end, MPI sees nothing. */
static int killed(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    static float x[COUNT];
    double begin = now();
    CHECK_OK(tt_barrier(group));
    if (rank == 1)
        raise(SIGKILL);
    tt_status status = tt_all_reduce(group, x, COUNT, TT_F32, TT_SUM, .timeout_ms = SHORT_MS);
    CHECK(status == TT_ERR_TIMEOUT || (status == TT_ERR_PEER && !strcmp(arg, "gloo")));
    CHECK(now() - begin < 15 + (double)leeway_ms() / 1e3);
    if (status == TT_ERR_TIMEOUT)
        CHECK_TEXT("all_reduce(f32 x 5000, sum) at test_backend_peers.c:");
    expect_unusable(group);
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
    if (rank == 0) {
        CHECK(!pthread_create(&thread, NULL, abort_soon, group));
        CHECK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM) == TT_ERR_ABORTED);
        CHECK_TEXT("rank 0 aborted the group: the test says so");
        pthread_join(thread, NULL);
        expect_unusable(group);
        CHECK_OK(tt_store_set(store, "aborted", "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, &(const char *){"aborted"}, 1, 0));
        tt_destroy_process_group(group);
    }
    return 0;
}

static int stays_away(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join(store, rank, world, arg);
    tt_status status = TT_OK;
    if (rank == 0) {
        CHECK_OK(tt_store_wait(store, &(const char *){"rank 1 comes"}, 1, PATIENCE_MS));
        status = tt_monitored_barrier(group, .timeout_ms = SHORT_MS);
        CHECK(status == TT_ERR_TIMEOUT);
        CHECK_TEXT("of 3 ranks, these did not come within 1500 ms: 2");
    } else if (rank == 1) {
        CHECK_OK(tt_store_set(store, "rank 1 comes", "", 0));
        CHECK(tt_monitored_barrier(group, .timeout_ms = 5000) != TT_OK);
    }
    if (rank == 2) { /* goes when the others have given up */
        CHECK_OK(tt_store_wait(store, &(const char *){"given up"}, 1, 0));
    } else if (rank == 1) {
        CHECK_OK(tt_store_set(store, "given up", "", 0));
    }
    tt_destroy_process_group(group);
    return 0;
}

typedef struct one {
    rank_body body;
    const char *backend;
} one;

/* What MPI does at exit may wait for a rank that has ended, so its ranks end without it. */
static int run_one(tt_store *store, int rank, int world, void *arg) {
    const one *what = arg;
    int code = what->body(store, rank, world, (void *)(uintptr_t)what->backend);
    fflush(NULL);
    if (!strncmp(what->backend, "mpi", 3))
        _exit(code);
    return code;
}

static void each_backend(rank_body body, int killed_rank) {
    setenv("OMPI_MCA_btl", "self,tcp", 1); /* Open MPI's segments of shared memory outlive ranks that are killed */
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        ranks ranks;
        if (!is_built(backends[i])) {
            printf("left out: the back end %s was not built\n", backends[i]);
            continue;
        }
        start_ranks(&ranks, 3, run_one, &(one){body, backends[i]});
        for (int r = 0; r < 3; r++) {
            int end = end_of_rank(&ranks, r);
            if (end != (r == killed_rank ? 128 + SIGKILL : 0))
                fail_msg("%s: rank %d ended with %d", backends[i], r, end);
        }
        tt_store_server_free(ranks.server);
    }
}

static void calls_that_differ_are_named(void **state) {
    (void)state;
    each_backend(other_count, -1);
    each_backend(other_call, -1);
    each_backend(other_share, -1);
}

static void a_killed_rank_ends_the_wait(void **state) {
    (void)state;
    each_backend(killed, 1);
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
        cmocka_unit_test(calls_that_differ_are_named),
        cmocka_unit_test(a_killed_rank_ends_the_wait),
        cmocka_unit_test(works_end_with_their_group),
        cmocka_unit_test(an_abort_ends_the_wait),
        cmocka_unit_test(a_monitored_barrier_names_who_is_missing),
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
