/* The back end nccl on a fake of NCCL (tests/support/fake_cuda): every operation beside plain sums, groups, messages,
 * streams, and what is refused. */
#include "support/nccl.h"

#include "base/machine/clock.h"

#include <math.h>
#include <sched.h>

enum { MAX_BYTES = 40000, N = 300 };

/* ---- every operation ---- */

static bool nccl_has(const drawn *c) {
    bool reduces = drawn_reduces(c->op), bitwise = c->reduce >= TT_BAND && c->reduce <= TT_BXOR;
    return !reduces || (c->dtype != TT_I16 && (!bitwise || (c->dtype == TT_BOOL && c->reduce != TT_BXOR)));
}

/* The drawn call, and one that the device's stream holds behind it. */
static void one_call(tt_group *group, const drawn *c, int rank, int world, bool waits) {
    size_t size = drawn_bytes(world, MAX_BYTES);
    char *host = malloc(2 * size), text[256];
    tt_work *work = NULL;
    drawn_fill(c, rank, world, host, host + size);
    tt_tensor *send = gpu_new(rank, host, size), *recv = gpu_new(rank, host + size, size);
    tt_status status = gpu_make(group, c, rank, world, gpu_at(send), gpu_at(recv), waits ? NULL : &work);
    if (!status && work)
        status = tt_work_wait(work);
    if (!nccl_has(c)) {
        CHECK(status == TT_ERR_UNSUPPORTED);
        CHECK_TEXT("back end nccl has no ");
    } else {
        CHECK_OK(status);
        gpu_read(recv, host + size);
        const char *wrong = drawn_check(c, rank, world, host + size, text, sizeof text);
        if (*wrong) {
            drawn_print(c, "nccl");
            fprintf(stderr, "rank %d of %d: %s\n", rank, world, wrong);
            _exit(1);
        }
    }
    tt_work_free(work);
    tt_tensor_free(send);
    tt_tensor_free(recv);
    free(host);
}

static int drawn_calls(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    uint64_t state = (uint64_t)storm_number("TT_STORM_SEED", 1) + (uint64_t)world;
    (void)arg;
    CHECK(!strcmp(tt_get_backend(group), "nccl"));
    for (long i = 0; i < storm_cases(60); i++) {
        drawn c = drawn_call(&state, world, MAX_BYTES);
        if (c.op == TT_OP_ALL_REDUCE_COALESCED)
            c.op = TT_OP_ALL_REDUCE;
        one_call(group, &c, rank, world, i % 2);
    }
    tt_destroy_process_group(group);
    return 0;
}

static void every_operation_is_right(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++)
        with_ranks(world, drawn_calls, NULL);
}

/* Averages of integers, which the draw leaves out, and sums in place, without waiting between them. */
static int streams(tt_store *store, int rank, int world, void *arg) {
    enum { CALLS = 12 };
    tt_group *group = nccl_join(store, rank, world);
    int32_t x[N];
    void *bufs[2];
    (void)arg;
    for (int i = 0; i < N; i++)
        x[i] = i % 5 + (rank == 0 ? -20 : 0);
    tt_tensor *a = gpu_new(rank, x, sizeof x), *b = gpu_new(rank, x, sizeof x);
    CHECK_OK(tt_all_reduce(group, gpu_at(a), N, TT_I32, TT_AVG, ON_GPU(rank)));
    gpu_read(a, x);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == (world * (i % 5) - 20) / world);
    for (int k = 0; k < CALLS; k++)
        CHECK_OK(tt_all_reduce(group, gpu_at(a), N, TT_I32, TT_SUM, ON_GPU(rank)));
    bufs[0] = gpu_at(a);
    bufs[1] = gpu_at(b);
    CHECK_OK(tt_all_reduce_coalesced(group, bufs, ((int64_t[]){N, N}), 2, TT_I32, TT_MAX, ON_GPU(rank)));
    gpu_read(a, x);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == (int32_t)pow(world, CALLS) * ((world * (i % 5) - 20) / world));
    gpu_read(b, x);
    CHECK(x[4] == (world > 1 ? 4 : -16));
    CHECK_OK(tt_barrier(group));
    tt_tensor_free(a);
    tt_tensor_free(b);
    tt_destroy_process_group(group);
    return 0;
}

static void calls_follow_the_stream(void **state) {
    (void)state;
    with_ranks(3, streams, NULL);
    setenv("FAKE_NCCL_SEED", "0", 1); /* nothing is ever in progress */
    setenv("FAKE_CUDA_SEED", "5", 1);
    with_ranks(2, streams, NULL);
    unsetenv("FAKE_NCCL_SEED");
    unsetenv("FAKE_CUDA_SEED");
}

/* ---- messages ---- */

/* A ring, and pairs that send to each other, in one batch; then one way, by sends and receives of their own. */
static int messages(tt_store *store, int rank, int world, void *arg) {
    enum { MANY = 20000 };
    tt_group *group = nccl_join(store, rank, world);
    static float mine[MANY], got[MANY];
    int next = (rank + 1) % world, last = (rank + world - 1) % world, source = -1;
    (void)arg;
    for (int i = 0; i < MANY; i++)
        mine[i] = (float)(i + rank);
    tt_tensor *a = gpu_new(rank, mine, sizeof mine), *b = gpu_new(rank, got, sizeof got),
              *c = gpu_new(rank, got, sizeof got);
    const tt_p2p_op ops[] = {
        {.send = gpu_at(a), .count = MANY, .dtype = TT_F32, .peer = next},
        {.send = gpu_at(a), .count = MANY / 2, .dtype = TT_F32, .peer = last},
        {.is_recv = true, .recv = gpu_at(b), .count = MANY, .dtype = TT_F32, .peer = last},
        {.is_recv = true, .recv = gpu_at(c), .count = MANY / 2, .dtype = TT_F32, .peer = next},
    };
    CHECK_OK(tt_batch_isend_irecv(group, ops, 4, ON_GPU(rank)));
    gpu_read(b, got);
    for (int i = 0; i < MANY; i++)
        CHECK(got[i] == (float)(i + last));
    gpu_read(c, got);
    for (int i = 0; i < MANY / 2; i++)
        CHECK(got[i] == (float)(i + next));
    if (rank > 0) {
        CHECK_OK(tt_recv(group, gpu_at(b), MANY, TT_F32, rank - 1, .source = &source, ON_GPU(rank)));
        CHECK(source == rank - 1);
    }
    if (rank < world - 1)
        CHECK_OK(tt_send(group, gpu_at(rank ? b : a), MANY, TT_F32, rank + 1, ON_GPU(rank)));
    gpu_read(rank ? b : a, got);
    CHECK(got[9] == 9);
    CHECK(tt_recv(group, gpu_at(b), 1, TT_F32, TT_ANY_SOURCE, ON_GPU(rank)) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("name the rank");
    CHECK(tt_send(group, gpu_at(b), 1, TT_F32, rank, ON_GPU(rank)) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("nothing to itself");
    CHECK_OK(tt_barrier(group));
    tt_tensor_free(a);
    tt_tensor_free(b);
    tt_tensor_free(c);
    tt_destroy_process_group(group);
    return 0;
}

static void messages_arrive(void **state) {
    (void)state;
    with_ranks(2, messages, NULL);
    with_ranks(3, messages, NULL);
}

static void pass_on(tt_group *group, int rank, tt_tensor *x) {
    CHECK_OK(rank ? tt_recv(group, gpu_at(x), 1, TT_F32, 0, ON_GPU(rank))
                  : tt_send(group, gpu_at(x), 1, TT_F32, 1, ON_GPU(rank)));
}

/* Rank 1's stream comes to the barrier behind a message. Until that is sent, rank 0's barrier is not done. */
static int barrier(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    const char *entered = "rank 1 has entered";
    tt_work *work = NULL;
    float x = 3;
    tt_tensor *a = gpu_new(rank, &x, sizeof x);
    (void)arg;
    pass_on(group, rank, a); /* now the two are connected */
    if (rank)
        pass_on(group, rank, a);
    CHECK_OK(tt_barrier(group, .work = &work, ON_GPU(rank)));
    if (rank) {
        CHECK_OK(tt_store_set(store, entered, "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, &entered, 1, PATIENCE_MS));
        int64_t until_ms = tt__now_ms() + 300; /* a barrier that waits for nothing takes 1 ms */
        while (tt__now_ms() < until_ms)
            CHECK(!tt_work_is_completed(work));
        pass_on(group, rank, a);
    }
    CHECK_OK(tt_work_wait(work));
    gpu_read(a, &x);
    while (!tt_work_is_completed(work))
        sched_yield();
    tt_work_free(work);
    tt_tensor_free(a);
    tt_destroy_process_group(group);
    return 0;
}

static void a_barrier_is_of_the_streams(void **state) {
    (void)state;
    with_ranks(2, barrier, NULL);
}

/* ---- groups ---- */

static float sum_in(tt_group *group, int rank, float x) {
    tt_tensor *a = gpu_new(rank, &x, sizeof x);
    CHECK_OK(tt_all_reduce(group, gpu_at(a), 1, TT_F32, TT_SUM, ON_GPU(rank)));
    gpu_read(a, &x);
    tt_tensor_free(a);
    return x;
}

static int groups(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *pair = NULL, *half = NULL, *alone = NULL;
    (void)arg;
    CHECK_OK(tt_new_group(&pair, group, ((int[]){3, 1}), 2));
    CHECK(!pair == (rank % 2 == 0));
    if (pair) {
        CHECK(tt_get_rank(pair) == (rank == 1));
        CHECK(sum_in(pair, rank, (float)rank) == 4);
    }
    CHECK_OK(tt_group_split(&half, group, rank / 2, -rank));
    CHECK(tt_get_rank(half) == 1 - rank % 2);
    CHECK(sum_in(half, rank, (float)rank) == (rank < 2 ? 1 : 5));
    float x = (float)rank, y = -1;
    tt_tensor *a = gpu_new(rank, &x, sizeof x);
    CHECK_OK(tt_broadcast(half, gpu_at(a), 1, TT_F32, 0, ON_GPU(rank)));
    gpu_read(a, &y);
    CHECK(y == (rank < 2 ? 1 : 3));
    CHECK_OK(tt_group_split(&alone, half, rank % 2, 0));
    CHECK(sum_in(alone, rank, 7) == 7);
    CHECK(sum_in(group, rank, 1) == (float)world);
    tt_tensor_free(a);
    tt_destroy_process_group(alone);
    tt_destroy_process_group(group);
    CHECK(sum_in(half, rank, 1) == 2);
    tt_destroy_process_group(half);
    tt_destroy_process_group(pair);
    return 0;
}

static void groups_are_split(void **state) {
    (void)state;
    with_ranks(4, groups, NULL);
}

/* ---- what is refused ---- */

static int one_device(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    (void)arg;
    CHECK(tt_init_process_group(&group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                                .timeout_ms = PATIENCE_MS, .device = TT_DEVICE_CUDA,
                                .device_index = rank == 2 ? 0 : rank) != TT_OK);
    CHECK_TEXT("nccl: ranks 0 and 2 use the same device, GPU-00112233-4455-6677-8899-aabbccddeeff, and NCCL needs one");
    return 0;
}

/* Each rank sees one device, another one; then all the same. */
static int chosen_device(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    const char *const lists[] = {"4", arg ? "4" : "2"};
    setenv("CUDA_VISIBLE_DEVICES", lists[rank], 1);
    tt_status status =
        tt_init_process_group(&group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                              .timeout_ms = PATIENCE_MS, .device = TT_DEVICE_CUDA, .device_index = 0);
    CHECK(!status == !arg);
    if (arg)
        CHECK_TEXT("ranks 0 and 1 use the same device");
    tt_destroy_process_group(group);
    return 0;
}

static int no_such_device(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    (void)arg;
    CHECK(tt_init_process_group(&group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                                .timeout_ms = PATIENCE_MS, .device = TT_DEVICE_CUDA,
                                .device_index = rank == 1 ? 9 : rank) != TT_OK);
    CHECK_TEXT("rank 1: nccl: there is no device cuda:9: CUDA has 8");
    return 0;
}

static int misuse(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    tt_tensor *a = gpu_new(rank, "12345678", 8);
    float host[4];
    (void)arg;
    CHECK(tt_all_reduce(group, host, 1, TT_F32, TT_SUM) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("takes memory of cuda, and the call says cpu");
    CHECK(tt_all_reduce(group, gpu_at(a), 1, TT_F32, TT_SUM, ON_GPU(world)) == TT_ERR_INVALID);
    CHECK_TEXT("the group is on cuda:");
    CHECK(tt_all_reduce(group, host, 1, TT_F32, TT_SUM, ON_GPU(rank)) == TT_ERR_INVALID);
    CHECK_TEXT("nccl: all_reduce: `send` is memory of the host; expected memory of cuda:");
    CHECK(tt_broadcast(group, host, 1, TT_F32, 0, ON_GPU(rank)) == TT_ERR_INVALID);
    CHECK_TEXT("nccl: broadcast: `recv` is memory of the host");
    tt_tensor *other = gpu_new(world, "12345678", 8);
    CHECK(tt_all_gather(group, gpu_at(other), gpu_at(a), 1, TT_F32, ON_GPU(rank)) == TT_ERR_INVALID);
    CHECK_TEXT("nccl: all_gather: `send` lies on cuda:2, and the group is on cuda:");
    tt_tensor_free(other);
    CHECK(tt_reduce_scatter(group, gpu_at(a), (float *)gpu_at(a) + 1 - rank, 1, TT_F32, TT_SUM, ON_GPU(rank)) ==
          TT_ERR_UNSUPPORTED);
    CHECK_TEXT("recv overlaps send");
    CHECK(tt_all_reduce(group, gpu_at(a), 1, TT_I16, TT_SUM, ON_GPU(rank)) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("back end nccl has no all_reduce of i16 by sum in memory of cuda");
    CHECK(tt_all_reduce(group, gpu_at(a), 1 + rank, TT_F32, TT_SUM, ON_GPU(rank)) == TT_ERR_MISMATCH);
    CHECK_TEXT("all_reduce(f32 x 2, sum) at test_nccl.c:");
    tt_tensor_free(a);
    tt_destroy_process_group(group);
    return 0;
}

static int unusable(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    CHECK(nccl_try(&group, store, rank, world, PATIENCE_MS) == TT_ERR_UNSUPPORTED);
    CHECK_TEXT((const char *)arg);
    CHECK_TEXT("libtutti-backend-nccl.so refuses to work here");
    return 0;
}

static int unnamed_device(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    (void)arg;
    CHECK(tt_init_process_group(&group, .backend = "nccl", .store = store, .rank = rank, .world_size = world,
                                .timeout_ms = PATIENCE_MS) != TT_OK);
    CHECK_TEXT(".device = TT_DEVICE_CUDA, .device_index = tt_get_node_local_rank(0)");
    return 0;
}

/* ---- groups that end while the device is late ---- */

/* Calls have returned TT_OK and nothing has read their results when the group is destroyed: they come all the same. */
static int leaves_early(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world), *part = NULL;
    int32_t x[N];
    bool in_part = arg != NULL;
    for (int i = 0; i < N; i++)
        x[i] = rank + i;
    tt_tensor *a = gpu_new(rank, x, sizeof x);
    if (in_part)
        CHECK_OK(tt_new_group(&part, group, ((int[]){0, 1}), 2));
    tt_clear_error();
    for (int i = 0; i < 3; i++)
        CHECK_OK(tt_all_reduce(in_part ? part : group, gpu_at(a), N, TT_I32, TT_SUM, ON_GPU(rank)));
    if (in_part)
        tt_destroy_process_group(part);
    tt_destroy_process_group(group);
    CHECK(!*tt_last_error());
    gpu_read(a, x);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == 4 * (2 * i + 1));
    tt_tensor_free(a);
    return 0;
}

/* The end of a group doesn't wait for a rank that has ended before its device came to the call. */
static int leaves_in_vain(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = nccl_join(store, rank, world);
    int32_t x[N] = {0};
    (void)arg;
    tt_tensor *a = gpu_new(rank, x, sizeof x);
    CHECK_OK(tt_all_reduce(group, gpu_at(a), N, TT_I32, TT_SUM, ON_GPU(rank)));
    if (rank == 1)
        _exit(0);
    tt_destroy_process_group(group);
    CHECK_TEXT("rank 1");
    tt_tensor_free(a);
    return 0;
}

static void a_group_ends_behind_its_calls(void **state) {
    (void)state;
    setenv("FAKE_CUDA_LATE", "2000", 1);
    with_ranks(2, leaves_early, NULL);
    with_ranks(2, leaves_early, "in a group of the two");
    setenv("FAKE_CUDA_LATE", "1000000", 1);
    with_ranks(2, leaves_in_vain, NULL);
    unsetenv("FAKE_CUDA_LATE");
}

/* ---- a rank that leaves something else in the store ---- */

typedef struct lie {
    const char *key;
    const void *value;
    size_t size;
    tt_store *inner;
} lie;

static tt_status lie_set(void *user, const char *key, const void *value, size_t size) {
    const lie *l = user;
    size_t length = strlen(key), end = strlen(l->key);
    bool lies = length >= end && !strcmp(key + length - end, l->key);
    return tt_store_set(l->inner, key, lies ? l->value : value, lies ? l->size : size);
}
static tt_status lie_get(void *user, const char *key, int64_t timeout_ms, tt_store_value *value) {
    tt_store *inner = ((const lie *)user)->inner;
    tt_store_set_timeout_ms(inner, timeout_ms);
    return tt_store_get(inner, key, value);
}
static tt_status lie_add(void *user, const char *key, int64_t delta, int64_t *result) {
    return tt_store_add(((const lie *)user)->inner, key, delta, result);
}
static tt_status lie_wait(void *user, const char *const *keys, int64_t n, int64_t timeout_ms) {
    return tt_store_wait(((const lie *)user)->inner, keys, n, timeout_ms);
}
static tt_status lie_check(void *user, const char *const *keys, int64_t n, bool *all) {
    return tt_store_check(((const lie *)user)->inner, keys, n, all);
}

static const tt_store_class liar = {
    .name = "a liar", .set = lie_set, .get = lie_get, .add = lie_add, .wait = lie_wait, .check = lie_check};

/* The rank that hears it says so; the others fail, too. */
static int lied_to(tt_store *store, int rank, int world, void *arg) {
    lie l = *(const lie *)arg;
    tt_store *made = NULL;
    tt_group *group = NULL;
    l.inner = store;
    CHECK_OK(tt_store_new(&made, &liar, &l));
    CHECK(nccl_try(&group, made, rank, world, PATIENCE_MS) != TT_OK);
    CHECK(!group);
    if (rank == (strstr(l.key, "device") ? 0 : 1)) {
        CHECK_TEXT("nccl: what is in the store under \"");
        CHECK_TEXT(l.key);
    }
    tt_store_free(made);
    return 0;
}

static void what_is_no_id_in_the_store_is_refused(void **state) {
    (void)state;
    char large[300];
    memset(large, 'I', sizeof large);
    const size_t sizes[] = {0, 1, 49, sizeof large};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        with_ranks(2, lied_to, &(lie){.key = "nccl/device/1", .value = large, .size = sizes[i]});
    with_ranks(2, lied_to, &(lie){.key = "nccl/device/1", .value = "X123", .size = 4});
}

static void what_cannot_work_is_refused(void **state) {
    (void)state;
    with_ranks(3, one_device, NULL);
    with_ranks(2, chosen_device, NULL);
    with_ranks(2, chosen_device, "the same");
    with_ranks(3, no_such_device, NULL);
    with_ranks(2, unnamed_device, NULL);
    with_ranks(2, misuse, NULL);
    setenv("FAKE_NCCL_VERSION", "21703", 1);
    with_ranks(1, unusable, "is NCCL 2.17.3; expected 2.18 or later");
    unsetenv("FAKE_NCCL_VERSION");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_right),
        cmocka_unit_test(calls_follow_the_stream),
        cmocka_unit_test(messages_arrive),
        cmocka_unit_test(a_barrier_is_of_the_streams),
        cmocka_unit_test(groups_are_split),
        cmocka_unit_test(what_cannot_work_is_refused),
        cmocka_unit_test(a_group_ends_behind_its_calls),
        cmocka_unit_test(what_is_no_id_in_the_store_is_refused),
    };
    nccl_begin();
    storm_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
