/* Sends and receives between real ranks: over shared memory, TCP, and both together. */
#include "support/ranks.h"

#include <poll.h>
#include <sys/syscall.h>

enum { LARGE = 5 << 20 };

static const char *const TRANSPORTS[] = {"shm", "tcp", "both"};

/* "both": ranks 0, 2, ... and 1, 3, ... count as two hosts. */
static tt_group *join(tt_store *store, int rank, int world, const char *transport) {
    tt_group *group = NULL;
    bool both = !strcmp(transport, "both");
    if (both)
        setenv("TT_HOST_ID", rank % 2 ? "odd" : "even", 1);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = both ? "auto" : transport));
    return group;
}

typedef struct job {
    void (*fn)(tt_group *group, int rank, int world);
    const char *transport;
} job;

static int run_job(tt_store *store, int rank, int world, void *arg) {
    const job *job = arg;
    tt_group *group = join(store, rank, world, job->transport);
    job->fn(group, rank, world);
    tt_destroy_process_group(group);
    return 0;
}

static void over_all_transports(int world, void (*fn)(tt_group *group, int rank, int world)) {
    for (int i = 0; i < 3; i++)
        with_ranks(world, run_job, &(job){fn, TRANSPORTS[i]});
}

static unsigned char byte_at(size_t i, int seed) { return (unsigned char)(i * 7 + i / 997 + (size_t)seed * 31); }

static void fill(unsigned char *data, size_t n, int seed) {
    for (size_t i = 0; i < n; i++)
        data[i] = byte_at(i, seed);
}

static void check(const unsigned char *data, size_t n, int seed) {
    for (size_t i = 0; i < n; i++)
        CHECK(data[i] == byte_at(i, seed));
}

/* ---- */

static void ping_pong(tt_group *group, int rank, int world) {
    static const size_t sizes[] = {0, 1, 8, 4096, 16384, 16385, 1 << 20, LARGE};
    static unsigned char buf[LARGE];
    (void)world;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int round = 0; round < 3; round++) {
            int source = -2;
            if (rank == round % 2) {
                fill(buf, sizes[i], round);
                CHECK_OK(tt_send(group, buf, sizes[i], TT_U8, 1 - rank, .tag = 5));
            } else {
                memset(buf, 0, sizes[i]);
                CHECK_OK(tt_recv(group, buf, sizes[i], TT_U8, 1 - rank, .tag = 5, .source = &source));
                CHECK(source == 1 - rank);
                check(buf, sizes[i], round);
            }
        }
}

static void sizes_there_and_back(void **state) {
    (void)state;
    over_all_transports(2, ping_pong);
}

/* Everybody sends to the next and receives from the one before, and a collective runs between. */
static void shift(tt_group *group, int rank, int world) {
    enum { N = 100000 };
    static float out[N], in[N], sum[1000];
    int next = (rank + 1) % world, before = (rank + world - 1) % world;
    for (int round = 0; round < 5; round++) {
        tt_work *works[2] = {NULL, NULL};
        for (int i = 0; i < N; i++)
            out[i] = (float)(rank * 1000 + round + i % 7);
        for (int i = 0; i < 1000; i++)
            sum[i] = (float)rank;
        CHECK_OK(tt_irecv(&works[0], group, in, N, TT_F32, before, .tag = round));
        CHECK_OK(tt_all_reduce(group, sum, 1000, TT_F32, TT_SUM));
        CHECK_OK(tt_isend(&works[1], group, out, N, TT_F32, next, .tag = round));
        CHECK_OK(tt_all_reduce(group, sum, 1000, TT_F32, TT_SUM));
        CHECK_OK(tt_work_wait_all(works, 2));
        CHECK(tt_work_is_completed(works[0]) && tt_work_source_rank(works[0]) == before);
        CHECK(tt_work_source_rank(works[1]) == -1);
        for (int i = 0; i < N; i++)
            CHECK(in[i] == (float)(before * 1000 + round + i % 7));
        CHECK(sum[999] == (float)((world * (world - 1) >> 1) * world));
        tt_work_free(works[0]);
        tt_work_free(works[1]);
    }
}

static void messages_cross_collectives(void **state) {
    (void)state;
    over_all_transports(4, shift);
}

/* Rank 0 takes what comes from whomever; the others leave as soon as they have sent. */
static void gather_from_any(tt_group *group, int rank, int world) {
    enum { EACH = 20 };
    int32_t value[2];
    if (rank) {
        for (int i = 0; i < EACH; i++) {
            value[0] = rank;
            value[1] = i;
            CHECK_OK(tt_send(group, value, 2, TT_I32, 0, .tag = 3));
        }
        return;
    }
    int next[64] = {0};
    for (int i = 0; i < EACH * (world - 1); i++) {
        int source = -2;
        CHECK_OK(tt_recv(group, value, 2, TT_I32, TT_ANY_SOURCE, .tag = 3, .source = &source));
        CHECK(source == value[0] && value[1] == next[source]++);
    }
    for (int r = 1; r < world; r++)
        CHECK(next[r] == EACH);
}

/* Rank 0 goes on waiting for anybody when some have left; the last to be there then sends. */
static void the_last_sends(tt_group *group, int rank, int world) {
    int32_t value = rank, source = -2;
    if (rank == 0) {
        CHECK(tt_fail(TT_ERR_IO, "an error of the program's own") == TT_ERR_IO);
        CHECK_OK(tt_recv(group, &value, 1, TT_I32, TT_ANY_SOURCE, .source = &source));
        CHECK(source == world - 1 && value == world - 1);
        CHECK(tt_last_status() == TT_ERR_IO); /* that some have left is none */
        CHECK_TEXT("an error of the program's own");
        CHECK(tt_recv(group, &value, 1, TT_I32, TT_ANY_SOURCE) == TT_ERR_PEER);
        CHECK_TEXT("left the group");
    } else if (rank == world - 1) {
        usleep(300000); /* a while in which the others are gone and rank 0 looks for them */
        CHECK_OK(tt_send(group, &value, 1, TT_I32, 0));
    }
}

static void any_source_does_without_who_has_left(void **state) {
    (void)state;
    over_all_transports(4, the_last_sends);
}

static void any_source_says_who_sent(void **state) {
    (void)state;
    over_all_transports(4, gather_from_any);
}

static void reversed_tags(tt_group *group, int rank, int world) {
    enum { TAGS = 50 };
    static int64_t values[TAGS][300];
    tt_work *works[TAGS];
    (void)world;
    for (int i = 0; i < TAGS; i++) {
        int tag = rank ? i : TAGS - 1 - i;
        for (int k = 0; k < 300; k++)
            values[tag][k] = rank ? tag * 1000 + k : -1;
        if (rank)
            CHECK_OK(tt_isend(&works[i], group, values[tag], 300, TT_I64, 0, .tag = tag));
        else
            CHECK_OK(tt_irecv(&works[i], group, values[tag], 300, TT_I64, 1, .tag = tag));
    }
    CHECK_OK(tt_work_wait_all(works, TAGS));
    for (int i = 0; i < TAGS; i++) {
        CHECK(values[i][299] == i * 1000 + 299);
        tt_work_free(works[i]);
    }
}

static void tags_tell_messages_apart(void **state) {
    (void)state;
    over_all_transports(2, reversed_tags);
}

/* Rank 1 sends when rank 0 has waited in vain. */
static void late_message(tt_group *group, int rank, int world) {
    int32_t value = 7, go = 0;
    (void)world;
    if (rank) {
        CHECK_OK(tt_recv(group, &go, 1, TT_I32, 0, .tag = 1));
        CHECK_OK(tt_send(group, &value, 1, TT_I32, 0));
        return;
    }
    tt_work *work = NULL;
    int32_t got = 0;
    bool done = true;
    CHECK_OK(tt_irecv(&work, group, &got, 1, TT_I32, 1));
    CHECK_OK(tt_work_wait_for(work, 30, &done));
    CHECK(!done);
    CHECK_OK(tt_work_wait_for(work, -5, &done));
    CHECK(!done);
    CHECK_OK(tt_send(group, &go, 1, TT_I32, 1, .tag = 1));
    CHECK_OK(tt_work_wait_for(work, CALM_MS, &done));
    CHECK(done && got == 7);
    CHECK_OK(tt_work_wait_for(work, 0, &done));
    CHECK(done);
    CHECK(tt_work_wait_for(work, 0, NULL) == TT_ERR_INVALID);
    CHECK(tt_work_wait_for(NULL, 0, &done) == TT_ERR_INVALID);
    tt_work_free(work);
}

static void a_wait_may_be_short(void **state) {
    (void)state;
    over_all_transports(2, late_message);
}

/* All to all, to itself included, once synchronous and once with a work. */
static void batch(tt_group *group, int rank, int world) {
    enum { N = 9000 };
    static int32_t out[4][N], in[4][N];
    tt_p2p_op ops[8];
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        tt_work *work = NULL;
        for (int r = 0; r < world; r++) {
            for (int i = 0; i < N; i++)
                out[r][i] = rank * 100 + r * 10 + i;
            memset(in[r], 0, sizeof in[r]);
            ops[r] = tt_send_op(out[r], N, TT_I32, r);
            ops[world + r] = tt_recv_op(in[r], N, TT_I32, r);
        }
        CHECK_OK(tt_batch_isend_irecv(group, ops, 2 * world, .work = asynchronous ? &work : NULL));
        memset(ops, 0, sizeof ops);
        if (asynchronous)
            CHECK_OK(tt_work_wait(work));
        tt_work_free(work);
        for (int r = 0; r < world; r++)
            for (int i = 0; i < N; i++)
                CHECK(in[r][i] == r * 100 + rank * 10 + i);
    }
    CHECK_OK(tt_batch_isend_irecv(group, NULL, 0));
}

static void batches_begin_together(void **state) {
    (void)state;
    over_all_transports(3, batch);
}

static void to_itself(tt_group *group, int rank, int world) {
    static unsigned char out[LARGE], in[LARGE];
    tt_work *send = NULL;
    (void)world;
    fill(out, LARGE, rank);
    CHECK_OK(tt_isend(&send, group, out, LARGE, TT_U8, rank));
    CHECK_OK(tt_recv(group, in, LARGE, TT_U8, rank));
    CHECK_OK(tt_work_wait(send));
    tt_work_free(send);
    check(in, LARGE, rank);
}

static void a_rank_sends_to_itself(void **state) {
    (void)state;
    over_all_transports(2, to_itself);
}

/* Ranks of a subgroup have other numbers, and its messages are its own. */
static void subgroup(tt_group *group, int rank, int world) {
    const int ranks[] = {3, 1};
    tt_group *pair = NULL;
    int32_t value = 0, source = -1;
    (void)world;
    CHECK_OK(tt_new_group(&pair, group, ranks, 2));
    if (rank == 1) {
        value = 11;
        CHECK_OK(tt_send(group, &value, 1, TT_I32, 3));
        value = 22;
        CHECK_OK(tt_send(pair, &value, 1, TT_I32, 0));
    } else if (rank == 3) {
        CHECK_OK(tt_recv(pair, &value, 1, TT_I32, TT_ANY_SOURCE, .source = &source));
        CHECK(value == 22 && source == 1);
        CHECK_OK(tt_recv(group, &value, 1, TT_I32, TT_ANY_SOURCE, .source = &source));
        CHECK(value == 11 && source == 1);
    }
    tt_destroy_process_group(pair);
}

static void groups_have_messages_of_their_own(void **state) {
    (void)state;
    over_all_transports(4, subgroup);
}

/* ---- errors */

static void other_type(tt_group *group, int rank, int world) {
    float f[4] = {0};
    int32_t i[8] = {0};
    (void)world;
    if (rank == 1) {
        CHECK_OK(tt_send(group, i, 8, TT_I32, 0, .tag = 7));
        CHECK(tt_barrier(group) == TT_ERR_MISMATCH); /* rank 0 says why */
    } else {
        CHECK(tt_recv(group, f, 4, TT_F32, 1, .tag = 7) == TT_ERR_MISMATCH);
    }
    CHECK_TEXT("rank 1 sends i32 x 8 with tag 7 to rank 0, which receives f32 x 4");
    CHECK_TEXT("Rank 1 called send(i32 x 8, to 0, tag 7) at test_comm_p2p.c:");
    CHECK_TEXT("Rank 0 called recv(f32 x 4, from 1, tag 7) at test_comm_p2p.c:");
}

static void other_size(tt_group *group, int rank, int world) {
    static unsigned char large[LARGE];
    (void)world;
    if (rank == 1)
        CHECK(tt_send(group, large, LARGE, TT_U8, 0) == TT_ERR_MISMATCH);
    else
        CHECK(tt_recv(group, large, LARGE - 1, TT_U8, 1) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 sends u8 x 5242880 with tag 0 to rank 0, which receives u8 x 5242879");
    CHECK_TEXT("Rank 1 called send(u8 x 5242880, to 0, tag 0) at test_comm_p2p.c:");
    CHECK_TEXT("Rank 0 called recv(u8 x 5242879, from 1, tag 0) at test_comm_p2p.c:");
}

/* Who is told of a mismatch when its finder has ended already still names both. */
static void other_size_seen_late(tt_group *group, int rank, int world) {
    static unsigned char large[LARGE];
    int32_t pid = getpid();
    tt_work *work;
    (void)world;
    if (rank == 0) {
        CHECK_OK(tt_send(group, &pid, 1, TT_I32, 1));
        CHECK(tt_recv(group, large, LARGE - 1, TT_U8, 1) == TT_ERR_MISMATCH);
        return;
    }
    CHECK_OK(tt_recv(group, &pid, 1, TT_I32, 0));
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    CHECK_OK(tt_isend(&work, group, large, LARGE, TT_U8, 0));
    CHECK(ended.fd < 0 || poll(&ended, 1, PATIENCE_MS) == 1);
    close(ended.fd);
    CHECK(tt_work_wait(work) == TT_ERR_MISMATCH);
    CHECK_TEXT("Rank 1 called send(u8 x 5242880, to 0, tag 0) at test_comm_p2p.c:");
    CHECK_TEXT("Rank 0 called recv(u8 x 5242879, from 1, tag 0) at test_comm_p2p.c:");
    tt_work_free(work);
}

/* The second of several operations, whose peer makes one call; the whole call is named. */
static void other_size_in_a_batch(tt_group *group, int rank, int world) {
    static unsigned char large[2][LARGE];
    const tt_p2p_op ops[] = {tt_recv_op(large[0], 10, TT_U8, 1, .tag = 1),
                             tt_recv_op(large[1], LARGE, TT_U8, 1, .tag = 2)};
    (void)world;
    if (rank == 1) {
        CHECK_OK(tt_send(group, large[0], 10, TT_U8, 0, .tag = 1));
        CHECK(tt_send(group, large[1], LARGE / 4, TT_I32, 0, .tag = 2) == TT_ERR_MISMATCH);
    } else {
        CHECK(tt_batch_isend_irecv(group, ops, 2) == TT_ERR_MISMATCH);
    }
    CHECK_TEXT("rank 1 sends i32 x 1310720 with tag 2 to rank 0, which receives u8 x 5242880");
    CHECK_TEXT("Rank 1 called send(i32 x 1310720, to 0, tag 2) at test_comm_p2p.c:");
    CHECK_TEXT("Rank 0 called batch_isend_irecv(2 operations) at test_comm_p2p.c:");
}

static void both_sides_of_a_mismatch_are_named(void **state) {
    (void)state;
    over_all_transports(2, other_type);
    over_all_transports(2, other_size);
    over_all_transports(2, other_size_seen_late);
    over_all_transports(2, other_size_in_a_batch);
}

/* Nobody will receive there any more, however small the message. */
static void send_to_who_left(tt_group *group, int rank, int world) {
    tt_group *pair = NULL;
    int32_t value = 1;
    (void)world;
    CHECK_OK(tt_new_group(&pair, group, ((const int[]){0, 1}), 2));
    if (rank == 1)
        tt_destroy_process_group(pair);
    CHECK_OK(tt_barrier(group));
    if (rank == 0) {
        CHECK(tt_send(pair, &value, 1, TT_I32, 1) == TT_ERR_PEER);
        CHECK_TEXT("rank 1 left the group after call 0, while rank 0 waits for it in send(i32 x 1, to 1, tag 0) at ");
        tt_destroy_process_group(pair);
    }
    CHECK_OK(tt_barrier(group));
}

static void a_send_to_who_left_is_an_error(void **state) {
    (void)state;
    over_all_transports(2, send_to_who_left);
}

static void nobody_sends(tt_group *group, int rank, int world) {
    int32_t value;
    (void)world;
    if (rank == 0) {
        CHECK(tt_recv(group, &value, 1, TT_I32, 2, .timeout_ms = 150) == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 2 did not send anything for recv(i32 x 1, from 2, tag 0)");
        CHECK_TEXT("of rank 0 within 150 ms");
    } else {
        CHECK(tt_barrier(group) != TT_OK); /* until rank 0 has given up */
    }
}

static void a_timeout_names_the_peer(void **state) {
    (void)state;
    over_all_transports(3, nobody_sends);
}

static void peer_dies(tt_group *group, int rank, int world) {
    static unsigned char large[LARGE];
    for (int r = 0; r < world && rank == 1; r++) /* all others have joined */
        CHECK_OK(r == 1 ? TT_OK : tt_recv(group, large, 1, TT_U8, r, .tag = 1));
    if (rank == 1)
        _exit(0);
    CHECK_OK(tt_send(group, large, 1, TT_U8, 1, .tag = 1));
    CHECK((rank == 0 ? tt_recv(group, large, 8, TT_U8, 1) : tt_send(group, large, LARGE, TT_U8, 1)) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
}

/* The connection has ended, and been noticed, before the call begins. */
static void peer_is_dead(tt_group *group, int rank, int world) {
    static float values[1 << 20];
    (void)world;
    CHECK_OK(tt_all_reduce(group, values, 1 << 20, TT_F32, TT_SUM));
    if (rank == 1)
        _exit(0);
    usleep(200000);
    CHECK(tt_all_reduce(group, values, 1 << 20, TT_F32, TT_SUM) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
}

static void a_dead_peer_is_named(void **state) {
    (void)state;
    over_all_transports(2, peer_dies);
    over_all_transports(3, peer_dies);
    over_all_transports(2, peer_is_dead);
}

static void impossible_calls(tt_group *group, int rank, int world) {
    int32_t value = 0;
    (void)rank;
    (void)world;
    CHECK(tt_send(group, &value, 1, TT_I32, 5) == TT_ERR_INVALID);
    CHECK_TEXT("expected a peer from 0 to 1, got 5");
    CHECK(tt_send(group, &value, 1, TT_I32, TT_ANY_SOURCE) == TT_ERR_INVALID);
    CHECK(tt_recv(group, &value, 1, TT_I32, -2) == TT_ERR_INVALID);
    CHECK(tt_recv(group, &value, 1, TT_I32, 0, .tag = -1) == TT_ERR_INVALID);
    CHECK_TEXT("expected a tag of 0 or more, got -1");
    CHECK(tt_recv(group, NULL, 1, TT_I32, 0) == TT_ERR_INVALID);
    const tt_p2p_op bad[] = {tt_send_op(&value, 1, TT_I32, 9)};
    CHECK(tt_batch_isend_irecv(group, bad, 1) == TT_ERR_INVALID);
    CHECK_TEXT("operation 0");
    CHECK_OK(tt_barrier(group)); /* the group is as it was */
}

static void impossible_calls_are_refused(void **state) {
    (void)state;
    with_ranks(2, run_job, &(job){impossible_calls, "shm"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_there_and_back),
        cmocka_unit_test(messages_cross_collectives),
        cmocka_unit_test(any_source_says_who_sent),
        cmocka_unit_test(any_source_does_without_who_has_left),
        cmocka_unit_test(tags_tell_messages_apart),
        cmocka_unit_test(a_wait_may_be_short),
        cmocka_unit_test(batches_begin_together),
        cmocka_unit_test(a_rank_sends_to_itself),
        cmocka_unit_test(groups_have_messages_of_their_own),
        cmocka_unit_test(both_sides_of_a_mismatch_are_named),
        cmocka_unit_test(a_send_to_who_left_is_an_error),
        cmocka_unit_test(a_timeout_names_the_peer),
        cmocka_unit_test(a_dead_peer_is_named),
        cmocka_unit_test(impossible_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
