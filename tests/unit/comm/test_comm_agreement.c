/* The agreement check: a rank that calls something else is named on every rank, with both calls, whatever differs. */
#include "support/ranks.h"

#include "base/machine/clock.h"
#include "comm/work.h"

enum { N = 512 };

/* One way to differ. The odd rank calls `odd`, the others `usual`. */
typedef struct difference {
    tt_status (*usual)(tt_group *group, void *buf), (*odd)(tt_group *group, void *buf);
    const char *usual_text, *odd_text;
} difference;

#define CALL(name, call)                                \
    static tt_status name(tt_group *group, void *buf) { \
        (void)buf;                                      \
        return call;                                    \
    }
CALL(sum_f32, tt_all_reduce(group, buf, N, TT_F32, TT_SUM))
CALL(max_f32, tt_all_reduce(group, buf, N, TT_F32, TT_MAX))
CALL(sum_i32, tt_all_reduce(group, buf, N, TT_I32, TT_SUM))
CALL(sum_fewer, tt_all_reduce(group, buf, N - 1, TT_F32, TT_SUM))
CALL(sum_large, tt_all_reduce(group, buf, 100 * N, TT_F32, TT_SUM))
CALL(broadcast_0, tt_broadcast(group, buf, N, TT_F32, 0))
CALL(broadcast_1, tt_broadcast(group, buf, N, TT_F32, 1))
CALL(reduce_0, tt_reduce(group, buf, N, TT_F32, TT_SUM, 0))
CALL(gather, tt_all_gather(group, buf, buf, 0, TT_F32))
CALL(barrier, tt_barrier(group))
CALL(free_null, tt_group_free(group, NULL))

static tt_status alloc_a(tt_group *group, void *buf) {
    (void)buf;
    void *p;
    return tt_group_alloc(&p, group, 4096);
}

static tt_status alloc_b(tt_group *group, void *buf) {
    (void)buf;
    void *p;
    return tt_group_alloc(&p, group, 8192);
}

static const difference differences[] = {
    {sum_f32, broadcast_0,
     "all_reduce(f32 x 512, sum) at test_comm_agreement.c:", "broadcast(f32 x 512, root 0) at test_comm_agreement.c:"},
    {sum_f32, max_f32, "all_reduce(f32 x 512, sum)", "all_reduce(f32 x 512, max)"},
    {sum_f32, sum_i32, "all_reduce(f32 x 512, sum)", "all_reduce(i32 x 512, sum)"},
    {sum_f32, sum_fewer, "all_reduce(f32 x 512, sum)", "all_reduce(f32 x 511, sum)"},
    {sum_f32, sum_large, "all_reduce(f32 x 512, sum)", "all_reduce(f32 x 51200, sum)"},
    {sum_f32, reduce_0, "all_reduce(f32 x 512, sum)", "reduce(f32 x 512, sum, root 0)"},
    {broadcast_0, broadcast_1, "broadcast(f32 x 512, root 0)", "broadcast(f32 x 512, root 1)"},
    {barrier, gather, "barrier()", "all_gather(f32 x 0)"},
    {barrier, alloc_a, "barrier()", "alloc(4096 bytes)"},
    {barrier, free_null, "barrier()", "free(NULL)"},
    {alloc_a, alloc_b, "alloc(4096 bytes)", "alloc(8192 bytes)"},
};

typedef struct odd_one {
    const difference *difference;
    int rank;
    const char *odd_ranks, *usual_ranks;
} odd_one;

static int differ(tt_store *store, int rank, int world, void *arg) {
    const odd_one *odd = arg;
    tt_group *group = join_group(store, rank, world);
    float *buf = calloc(100 * N, sizeof *buf);
    CHECK(buf);
    CHECK_OK(tt_barrier(group));
    tt_status status = (rank == odd->rank ? odd->difference->odd : odd->difference->usual)(group, buf);
    CHECK(status == TT_ERR_MISMATCH);
    const char *odd_at = strstr(tt_last_error(), odd->difference->odd_text);
    const char *usual_at = strstr(tt_last_error(), odd->difference->usual_text);
    CHECK(odd_at && usual_at);
    CHECK_TEXT(odd->odd_ranks);
    CHECK_TEXT(odd->usual_ranks);
    CHECK(strstr(tt_last_error(), odd->odd_ranks) < strstr(tt_last_error(), odd->usual_ranks));
    CHECK(tt_barrier(group) == TT_ERR_MISMATCH);
    CHECK_TEXT("failed before");
    CHECK_TEXT(odd->odd_ranks);
    tt_destroy_process_group(group);
    free(buf);
    return 0;
}

static void every_difference_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        with_ranks(2, differ, &(odd_one){&differences[i], 1, "rank 1 called", "rank 0 called"});
        with_ranks(4, differ, &(odd_one){&differences[i], 2, "rank 2 called", "ranks 0-1, 3 called"});
    }
    with_ranks(3, differ, &(odd_one){&differences[0], 0, "rank 0 called", "ranks 1-2 called"});
}

/* Rank 0 makes one call less and leaves: the others learn that, in the call they wait in. */
static int leave_early(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    for (int i = 0; i < 3; i++)
        CHECK_OK(tt_barrier(group));
    if (rank) {
        int64_t start = tt__now_ms();
        CHECK(tt_barrier(group) == TT_ERR_PEER);
        CHECK_TEXT("rank 0 left the group after call");
        CHECK_TEXT("barrier() at test_comm_agreement.c:");
        CHECK(tt__now_ms() - start < 1000 + leeway_ms());
    }
    tt_destroy_process_group(group);
    return 0;
}

static void leaving_is_named(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        with_ranks(world, leave_early, NULL);
}

/* How rank 1 leaves after an error of its own. */
typedef struct own_error {
    const char *transport;
    bool frees; /* what the ranks share, before it leaves, while the others make another call */
} own_error;

static int fail_and_leave(tt_store *store, int rank, int world, void *arg) {
    const own_error *how = arg;
    char report[] = "/tmp/tutti-report-XXXXXX";
    tt_group *group = NULL;
    void *buf = NULL;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = how->transport));
    CHECK_OK(tt_group_alloc(&buf, group, 4096));
    if (rank == 1) {
        CHECK(close(mkstemp(report)) == 0);
        setenv("TORCHELASTIC_ERROR_FILE", report, 1);
        CHECK(tt_fail(TT_ERR_INVALID, "label 11 is none of 10 classes"));
        if (how->frees)
            CHECK(tt_group_free(group, buf) == TT_ERR_PEER);
        char text[1024] = "";
        FILE *said = fopen(report, "r");
        CHECK(said && (!fgets(text, sizeof text, said) == !how->frees));
        fclose(said);
        CHECK(!how->frees || strstr(text, "\"TT_ERR_INVALID: label 11 is none of 10 classes\""));
        CHECK(!how->frees || strstr(text, "\"secondary\": false")); /* not that it ends because of another rank */
        unlink(report);
    } else {
        CHECK(tt_barrier(group) == TT_ERR_PEER);
        CHECK_TEXT("rank 1 failed: TT_ERR_INVALID: label 11 is none of 10 classes, and left");
    }
    tt_destroy_process_group(group);
    return 0;
}

static void who_fails_by_itself_says_why_it_leaves(void **state) {
    (void)state;
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 4; i++)
            with_ranks(2 + i / 2 + round % 2, fail_and_leave, &(own_error){i % 2 ? "tcp" : "shm", i / 2});
}

/* A rank that did its part and left is no error for those who come later, whatever the path. */
static int leave_when_done(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    for (int round = 0; round < 20; round++) {
        tt_group *group = join_group(store, rank, world);
        float *buf = NULL;
        size_t count = round % 2 ? 3 : 40000;
        CHECK_OK(tt_group_alloc((void **)&buf, group, count * 4));
        buf[0] = 1;
        if (round % 4 < 2) {
            CHECK_OK(tt_all_reduce(group, buf, count, TT_F32, TT_SUM));
            CHECK(buf[0] == (float)world);
        } else {
            CHECK_OK(tt_broadcast(group, buf, count, TT_F32, world - 1));
        }
        tt_destroy_process_group(group);
    }
    return 0;
}

static void done_ranks_may_leave(void **state) {
    (void)state;
    with_ranks(2, leave_when_done, NULL);
    with_ranks(5, leave_when_done, NULL);
}

/* Two ranks disagree while a third is not there: they need not wait for it. */
static int absent_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    float x[4] = {0};
    CHECK_OK(tt_barrier(group));
    if (rank == 1) {
        static const char *const keys[] = {"failed/0", "failed/2"};
        CHECK_OK(tt_store_wait(store, keys, 2, PATIENCE_MS));
        CHECK(tt_barrier(group) == TT_ERR_MISMATCH);
    } else {
        char key[32];
        int64_t start = tt__now_ms();
        CHECK((rank ? tt_all_reduce(group, x, 4, TT_F32, TT_SUM) : tt_all_reduce(group, x, 3, TT_F32, TT_SUM)) ==
              TT_ERR_MISMATCH);
        CHECK(tt__now_ms() - start < 2000 + leeway_ms());
        CHECK_TEXT("rank 2 called all_reduce(f32 x 4, sum)");
        CHECK_TEXT("rank 0 called all_reduce(f32 x 3, sum)");
        snprintf(key, sizeof key, "failed/%d", rank);
        CHECK_OK(tt_store_set(store, key, "", 0));
    }
    tt_destroy_process_group(group);
    return 0;
}

static void an_absent_rank_hides_nothing(void **state) {
    (void)state;
    with_ranks(3, absent_body, NULL);
}

/* The deadline names who did not come, and what for. */
static int late_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static const char *const keys[] = {"timeout/0"};
    tt_group *group = join_group(store, rank, world);
    if (rank == 0) {
        tt_group_set_timeout_ms(group, 300);
        CHECK(tt_group_timeout_ms(group) == 300);
        int64_t start = tt__now_ms();
        CHECK(tt_barrier(group) == TT_ERR_TIMEOUT);
        CHECK(tt__now_ms() - start >= 300 && tt__now_ms() - start < 2000 + leeway_ms());
        CHECK_TEXT("ranks 1-2 did not come to barrier() at test_comm_agreement.c:");
        CHECK_OK(tt_store_set(store, keys[0], "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
    }
    tt_destroy_process_group(group);
    return 0;
}

static void the_deadline_names_the_late(void **state) {
    (void)state;
    with_ranks(3, late_body, NULL);
}

/* Bad arguments are found before anything is sent, so the group lives on. */
static int arguments_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    int32_t x[2] = {1, 2};
    CHECK(tt_all_reduce(NULL, x, 2, TT_I32, TT_SUM) == TT_ERR_INVALID);
    CHECK(tt_all_reduce(group, x, 2, TT_BOOL, TT_AVG) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("average");
    CHECK(tt_all_reduce(group, NULL, 2, TT_I32, TT_SUM) == TT_ERR_INVALID);
    CHECK(tt_all_reduce(group, x, 2, (tt_dtype)77, TT_SUM) == TT_ERR_INVALID);
    CHECK(tt_all_reduce(group, x, 2, TT_I32, (tt_reduce_op)77) == TT_ERR_INVALID);
    CHECK(tt_all_reduce(group, x, 2, TT_F32, TT_BXOR) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("bitwise");
    CHECK(tt_all_reduce(group, x, INT64_MAX / 2, TT_I32, TT_SUM) == TT_ERR_INVALID);
    CHECK(tt_broadcast(group, x, 2, TT_I32, world) == TT_ERR_INVALID);
    CHECK(tt_reduce(group, x, 2, TT_I32, TT_SUM, -1) == TT_ERR_INVALID);
    CHECK(tt_all_gather(group, x, NULL, 2, TT_I32) == TT_ERR_INVALID);
    CHECK_OK(tt_all_reduce(group, x, 2, TT_I32, TT_SUM));
    CHECK(x[0] == world && x[1] == 2 * world);
    tt_destroy_process_group(group);
    tt_destroy_process_group(NULL);
    CHECK(tt_get_rank(NULL) == -1 && tt_get_world_size(NULL) == -1);
    return 0;
}

static void bad_arguments_leave_the_group_whole(void **state) {
    (void)state;
    with_ranks(2, arguments_body, NULL);
    assert_string_equal(tt_reduce_op_name(TT_PRODUCT), "product");
    assert_string_equal(tt_reduce_op_name((tt_reduce_op)9), "?");
}

/* A child that a rank forked (to load data, say) may end the group for itself. */
static int forking_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_barrier(group));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        tt_destroy_process_group(group);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static void a_child_leaves_for_itself_alone(void **state) {
    (void)state;
    with_ranks(2, forking_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_difference_is_named),
        cmocka_unit_test(leaving_is_named),
        cmocka_unit_test(who_fails_by_itself_says_why_it_leaves),
        cmocka_unit_test(done_ranks_may_leave),
        cmocka_unit_test(an_absent_rank_hides_nothing),
        cmocka_unit_test(the_deadline_names_the_late),
        cmocka_unit_test(bad_arguments_leave_the_group_whole),
        cmocka_unit_test(a_child_leaves_for_itself_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
