/* Sums over the memory of several ranks' devices, where it lies: the bits of the same sums on the host, which other
 * code makes; memory in several pieces, and pieces that come later; ranks of which one can't, or mustn't, reach the
 * others. On the fake of CUDA, or with TT_CUDA_REAL=1 on the GPU that is there. */
#include <tutti/tutti.h>

#include "support/cuda_ranks.h"

#include "comm/native/peer_memory.h"
#include "net/local_socket.h"
#include "parallel/device_peers.h"
#include "tensor/core/tensor.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

enum { DEVICES = 2, LARGE = 40000, MIB = 1 << 20, MOST_RANKS = TT__DEVICE_PEERS };

static const tt_device *device_of(int rank) {
    const tt_device *device = TT_CUDA(getenv("TT_CUDA_REAL") ? 0 : rank % DEVICES);
    CHECK(device);
    return device;
}

static tt_tensor *drawn(int rank, int64_t count, tt_dtype dtype) {
    tt_manual_seed((uint64_t)(100 * count + rank));
    return tt_to(tt_scale(tt_randn(TT_SHAPE(count), NULL), 100), dtype);
}

/* Sum where the tensors lie, which begin `skip` elements behind their memory's beginning. */
static void sum_there(tt_group *group, tt__device_peers *peers, tt_tensor *far, int64_t skip, bool average) {
    const tt_device *device = tt_tensor_device(far);
    const size_t size = tt_dtype_size(tt_tensor_dtype(far));
    void *of[MOST_RANKS], *mark = NULL;
    bool reached = false, done = false;
    CHECK_OK(tt_device_synchronize(device));
    CHECK_OK(tt__device_peers_reach(peers, (char *)far->data + (size_t)skip * size,
                                    (size_t)(tt_tensor_numel(far) - skip) * size, "a test", of, &reached));
    CHECK(reached);
    CHECK_OK(
        tt__device_peers_sum(peers, of, (size_t)(tt_tensor_numel(far) - skip), tt_tensor_dtype(far), average, &mark));
    CHECK_OK(device->queue->sent(device, mark, true, &done));
    CHECK(done);
    CHECK_OK(tt_barrier(group));
}

static void compare_sums(tt_group *group, tt__device_peers *peers, int rank, tt_dtype dtype, int64_t count,
                         int64_t skip, bool average) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *near = drawn(rank, count, dtype), *far = tt_to_device(near, device_of(rank));
    sum_there(group, peers, far, skip, average);
    tt_tensor *part = tt_clone(tt_narrow(near, 0, skip, count - skip));
    CHECK_OK(tt_tensor_all_reduce(group, part, average ? TT_AVG : TT_SUM));
    CHECK(tt_equal(tt_narrow(tt_to_device(far, TT_CPU), 0, skip, count - skip), part));
    CHECK(tt_equal(tt_narrow(tt_to_device(far, TT_CPU), 0, 0, skip), tt_narrow(near, 0, 0, skip)));
}

static void sums(tt_group *group, int rank, void *user) {
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
    static const int64_t counts[] = {1, 63, 1000, 20001};
    tt__device_peers *peers = NULL;
    (void)user;
    CHECK_OK(tt__device_peers_make(&peers, group, device_of(rank), "a test"));
    CHECK(peers);
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 4; c++)
            compare_sums(group, peers, rank, types[t], counts[c], counts[c] / 3, (c + t) % 2);
    tt__device_peers_free(peers);
}

static void sums_have_the_hosts_bits(void **state) {
    (void)state;
    const int most = getenv("TT_CUDA_REAL") ? 4 : MOST_RANKS; /* a GPU has to be begun by each */
    for (int world = 2; world <= most; world++)
        assert_int_equal(run_ranks(world, sums, NULL), 0);
}

/* ---- pieces */

/* The driver gives 32 MiB at least: these lie in more than one piece. */
static void large_sums(tt_group *group, int rank, void *user) {
    tt__device_peers *peers = NULL;
    (void)user;
    CHECK_OK(tt__device_peers_make(&peers, group, device_of(rank), "a test"));
    for (int round = 0; round < 3; round++) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        for (int64_t mib = 20; mib <= 40; mib += 20) {
            tt_tensor *far = tt_to_device(tt_full(TT_SHAPE(mib * MIB / 4), TT_F32, rank + round), device_of(rank));
            sum_there(group, peers, far, 0, false);
            CHECK(tt_equal(tt_to_device(far, TT_CPU), tt_full(TT_SHAPE(mib * MIB / 4), TT_F32, 1 + 2 * round)));
        }
        tt_tensor *small = tt_to_device(tt_full(TT_SHAPE(10), TT_F32, rank), device_of(rank));
        CHECK_OK(round ? tt_device_empty_cache(device_of(rank)) : TT_OK);
        sum_there(group, peers, small, 0, false);
        CHECK(tt_equal(tt_to_device(small, TT_CPU), tt_full(TT_SHAPE(10), TT_F32, 1)));
    }
    CHECK_OK(tt_device_empty_cache(device_of(rank)));
    tt__device_peers_free(peers);
}

static void memory_in_pieces_that_come_and_go(void **state) {
    (void)state;
    setenv("FAKE_CUDA_MEMORY", "256", 1);
    assert_int_equal(run_ranks(2, large_sums, NULL), 0);
    unsetenv("FAKE_CUDA_MEMORY");
}

/* ---- strangers */

static atomic_bool ends;

/* Calls every socket of ours that the kernel lists, and says garbage there. */
static void *call_all_sockets(void *called) {
    char line[256];
    while (!ends) {
        FILE *list = fopen("/proc/net/unix", "r");
        while (list && fgets(line, sizeof line, list)) {
            const char *name = strstr(line, "@tutti-");
            struct sockaddr_un address;
            int s = name ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
            if (s < 0)
                continue;
            line[strcspn(line, "\n")] = '\0';
            if (!connect(s, (struct sockaddr *)&address, tt__abstract_address(&address, name + 1)))
                *(atomic_int *)called += send(s, line, 40, MSG_NOSIGNAL) == 40;
            close(s);
        }
        if (list)
            fclose(list);
    }
    return NULL;
}

static void trade_beside_strangers(tt_group *group, int rank, void *user) {
    pthread_t stranger;
    atomic_int called = 0;
    CHECK(rank || !pthread_create(&stranger, NULL, call_all_sockets, &called));
    for (int32_t i = 0, some = 0; i < 40 || (!some && i < 100000); i++) { /* until a few calls fell into trades */
        int theirs[2], own = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(own >= 0);
        tt_status status = tt__group_trade(group, own, theirs, "a test");
        CHECK(status == TT_OK || status == TT_ERR_UNSUPPORTED);
        CHECK(status ? theirs[1 - rank] < 0 : theirs[1 - rank] >= 0 && theirs[rank] < 0);
        if (!status)
            close(theirs[1 - rank]);
        close(own);
        some = called > 2;
        CHECK_OK(tt_broadcast(group, &some, 1, TT_I32, 0));
    }
    ends = true;
    CHECK(rank || !pthread_join(stranger, NULL));
    CHECK(rank || called > 0);
    (void)user;
}

static void strangers_are_passed_over(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, trade_beside_strangers, NULL), 0);
}

/* ---- calls of the driver that fail */

/* One call fails on rank 1, and those behind it work: the ranks reach each other, or do no more. */
static int fails_once(tt_store *store, int rank, int world, void *arg) {
    char number[16];
    snprintf(number, sizeof number, "%d", rank == 1 ? *(const int *)arg : 0);
    setenv("FAKE_CUDA_FAIL_ONE", number, 1);
    tt_group *group = join_group(store, rank, world);
    const tt_device *device = TT_CUDA(0);
    tt__device_peers *peers = NULL;
    if (!device) /* it is rank 1's, whose device can't begin */
        CHECK(rank == 1);
    CHECK_OK(tt__device_peers_make(&peers, group, device ? device : TT_CPU, "a test"));
    bool was_reached = true;
    for (int i = 0; i < 3 && peers; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *far = tt_to_device(tt_full(TT_SHAPE(100), TT_F32, rank), device);
        uint8_t there = far != NULL, all[2];
        CHECK_OK(tt_all_gather(group, &there, all, 1, TT_U8));
        if (!all[0] || !all[1])
            continue;
        void *of[MOST_RANKS], *mark = NULL;
        bool reached, done;
        CHECK_OK(tt__device_peers_reach(peers, far->data, 400, "a test", of, &reached));
        CHECK(was_reached || !reached);
        was_reached = reached;
        tt_status status = reached ? tt_device_synchronize(device) : TT_OK;
        if (reached && !status && !(status = tt__device_peers_sum(peers, of, 100, TT_F32, false, &mark)))
            status = device->queue->sent(device, mark, true, &done);
        CHECK_OK(tt_barrier(group));
    }
    tt__device_peers_free(peers);
    tt_destroy_process_group(group);
    return 0;
}

static void one_call_that_fails(void **state) {
    (void)state;
    for (int n = 1; n <= 60 && !getenv("TT_CUDA_REAL"); n++)
        with_ranks(2, fails_once, &n);
}

/* ---- gradients */

static void note_last(tt_log_level level, const char *line, void *user) {
    (void)level;
    if (strstr(line, "tt_ddp"))
        snprintf(user, 2000, "%s\n", line);
}

static tt_module *new_net(const tt_device *device) {
    tt_manual_seed(1);
    tt_module *net = tt_nn_sequential(tt_nn_linear(700, 2), tt_nn_linear(2, 700));
    CHECK_OK(tt_module_to_device(net, device));
    return net;
}

static void pass(tt_module *net, int rank, const tt_device *device) {
    tt_manual_seed((uint64_t)rank);
    tt_tensor *x = tt_to_device(tt_randn(TT_SHAPE(5, 700), NULL), device);
    CHECK_OK(tt_backward(tt_sum(tt_module_forward(net, x))));
}

/* Of three ranks the last differs. */
static int trains(tt_store *store, int rank, int world, void *arg) {
    const char *const *difference = arg;
    static char said[2000];
    if (rank == world - 1 && difference[0])
        setenv(difference[0], difference[1], 1);
    tt_set_log(note_last, said);
    tt_group *group = join_group(store, rank, world);
    TT_AUTO_SCOPE;
    const tt_device *device = device_of(rank);
    tt_module *plain = new_net(device), *net = new_net(device), *ddp = tt_ddp(net, group, .bucket_cap_bytes = 4096);
    CHECK(ddp);
    CHECK(strstr(said, difference[0] ? "of 0 of 2 buckets" : "of 2 of 2 buckets"));
    pass(plain, rank, device);
    pass(ddp, rank, device);
    for (int64_t i = 0; i < tt_module_parameters(net)->count; i++) {
        TT_NO_GRAD;
        tt_tensor *near = tt_clone(tt_to_device(tt_grad(tt_module_parameters(plain)->tensors[i]), TT_CPU));
        CHECK_OK(tt_tensor_all_reduce(group, near, TT_AVG));
        CHECK(tt_equal(tt_to_device(tt_grad(tt_module_parameters(net)->tensors[i]), TT_CPU), near));
    }
    tt_module_free(ddp);
    tt_module_free(net);
    tt_module_free(plain);
    tt_destroy_process_group(group);
    return 0;
}

static void a_rank_that_differs_sends_all_by_the_host(void **state) {
    (void)state;
    const char *const same[] = {NULL, NULL}, *const forbids[] = {"TT_CUDA_P2P", "0"};
    const char *const cannot[] = {"FAKE_CUDA_SHARES", "0"};
    with_ranks(3, trains, (void *)same);
    with_ranks(3, trains, (void *)forbids);
    if (!getenv("TT_CUDA_REAL"))
        with_ranks(3, trains, (void *)cannot);
}

/* ---- tensors, in groups that know their device */

static tt_group *join_on_device(tt_store *store, int rank, int world) {
    tt_group *group = NULL;
    const tt_device *device = device_of(rank);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .device = TT_DEVICE_CUDA, .device_index = device->index));
    return group;
}

static void reduce_both(tt_group *group, int rank, tt_dtype dtype, tt_reduce_op op) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *near = drawn(rank, LARGE, dtype), *far = tt_to_device(near, device_of(rank));
    near = tt_clone(near);
    CHECK_OK(tt_tensor_all_reduce(group, near, op));
    CHECK_OK(tt_tensor_all_reduce(group, far, op));
    CHECK(tt_equal(tt_to_device(far, TT_CPU), near));
}

static void expect_launches(int more) {
    static unsigned long before;
    char path[4096];
    if (getenv("TT_CUDA_REAL"))
        return;
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("TT_BACKEND_PATH"));
    void *fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unsigned long (*launches)(void) = (unsigned long (*)(void))dlsym(fake, "fake_cuda_launches");
    CHECK(launches && (more < 0 || launches() - before == (unsigned long)more));
    before = launches();
    dlclose(fake);
}

static int reduces(tt_store *store, int rank, int world, void *arg) {
    static const tt_dtype types[] = {TT_F32, TT_F64, TT_F16, TT_BF16, TT_I64};
    const bool *there = arg;
    tt_group *group = join_on_device(store, rank, world), *part = NULL;
    if (!*there)
        setenv("TT_CUDA_P2P", "0", 1);
    CHECK_OK(tt_group_split(&part, group, rank / 2, rank));
    expect_launches(-1);
    for (int t = 0; t < 5; t++)
        reduce_both(group, rank, types[t], t % 2 ? TT_AVG : TT_SUM);
    expect_launches(*there ? 4 : 0); /* a sum on the device is a kernel's; integers go by the host */
    reduce_both(part, rank, TT_F32, TT_AVG);
    expect_launches(*there);
    reduce_both(group, rank, TT_F32, TT_MAX);
    expect_launches(0);
    tt_destroy_process_group(part);
    tt_destroy_process_group(group);
    return 0;
}

static void tensors_are_summed_where_they_lie(void **state) {
    bool there = true;
    (void)state;
    with_ranks(4, reduces, &there);
    there = false;
    with_ranks(4, reduces, &there);
}

static int differs(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    TT_AUTO_SCOPE;
    tt_group *group = join_on_device(store, rank, world);
    tt_tensor *far = tt_to_device(drawn(rank, rank ? LARGE + 1 : LARGE, TT_F32), device_of(rank));
    CHECK(tt_tensor_all_reduce(group, far, TT_SUM) == TT_ERR_MISMATCH);
    CHECK_TEXT("all_reduce(f32 x 40000, sum)");
    CHECK_TEXT("all_reduce(f32 x 40001, sum)");
    CHECK_OK(tt_device_synchronize(device_of(rank)));
    tt_destroy_process_group(group);
    return 0;
}

static void another_count_is_named(void **state) {
    (void)state;
    with_ranks(2, differs, NULL);
}

static int is_killed(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_on_device(store, rank, world);
    reduce_both(group, rank, TT_F32, TT_SUM);
    TT_AUTO_SCOPE;
    tt_tensor *far = tt_to_device(tt_ones(TT_SHAPE(LARGE), TT_F32), device_of(rank));
    if (rank == 1)
        raise(SIGKILL);
    tt_status status = tt_tensor_all_reduce(group, far, TT_SUM);
    CHECK(status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK_TEXT("rank 1");
    CHECK(tt_equal(tt_to_device(far, TT_CPU), tt_ones(TT_SHAPE(LARGE), TT_F32))); /* the device goes on */
    tt_destroy_process_group(group);
    return 0;
}

static void a_rank_that_dies_is_named(void **state) {
    ranks ranks;
    (void)state;
    start_ranks(&ranks, 3, is_killed, NULL);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    assert_int_equal(end_of_rank(&ranks, 2), 0);
    assert_int_equal(end_of_rank(&ranks, 1), 128 + SIGKILL);
    tt_store_server_free(ranks.server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_hosts_bits),
        cmocka_unit_test(memory_in_pieces_that_come_and_go),
        cmocka_unit_test(strangers_are_passed_over),
        cmocka_unit_test(one_call_that_fails),
        cmocka_unit_test(a_rank_that_differs_sends_all_by_the_host),
        cmocka_unit_test(tensors_are_summed_where_they_lie),
        cmocka_unit_test(another_count_is_named),
        cmocka_unit_test(a_rank_that_dies_is_named),
    };
    if (!cuda_choose_any())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
