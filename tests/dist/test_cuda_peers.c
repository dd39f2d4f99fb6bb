/* Sums over the memory of several ranks' devices, where it lies: the bits of the same sums on the host, which other code
 * makes; memory in several pieces, and pieces that come later; ranks of which one can't, or mustn't, reach the others.
 * On the fake of CUDA, or with TT_CUDA_REAL=1 on the GPU that is there. */
#include <tutti/tutti.h>

#include "support/cuda_ranks.h"

#include "parallel/device_peers.h"
#include "tensor/tensor.h"

enum { DEVICES = 2, MIB = 1 << 20, MOST_RANKS = TT__DEVICE_PEERS };

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
    for (int world = 2; world <= MOST_RANKS; world++)
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_hosts_bits),
        cmocka_unit_test(memory_in_pieces_that_come_and_go),
        cmocka_unit_test(a_rank_that_differs_sends_all_by_the_host),
    };
    if (!cuda_choose_any())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
