/* Two ranks that share a GPU by the native engine: collectives and gradients with the cpu's bits; ranks that call
 * something else, die or freeze are named. On the fake of CUDA, or with TT_CUDA_REAL=1 on the GPU that is there. */
#include <tutti/tutti.h>

#include "support/cuda_ranks.h"

enum { RANKS = 2, ROWS = 6, COLUMNS = 300, STEPS = 5, HEARTBEAT_MS = 1500 };

static tt_tensor *there(tt_tensor *x) { return tt_to_device(x, TT_CUDA(0)); }

static void check_bits(tt_tensor *far, tt_tensor *near) { CHECK(tt_equal(tt_to_device(far, TT_CPU), near)); }

/* ---- collectives */

static tt_tensor *drawn(int rank, int64_t rows, tt_dtype dtype) {
    tt_manual_seed((uint64_t)rank + 5);
    return tt_to(tt_scale(tt_randn(TT_SHAPE(rows, COLUMNS), NULL), 100), dtype);
}

static void reduce_both(tt_group *group, int rank, tt_dtype dtype, tt_reduce_op op) {
    TT_AUTO_SCOPE;
    tt_tensor *near = drawn(rank, ROWS, dtype), *far = there(near), *part = drawn(9, ROWS / RANKS, dtype);
    tt_tensor *far_part = there(part);
    CHECK_OK(tt_tensor_reduce_scatter(group, near, part, op));
    CHECK_OK(tt_tensor_reduce_scatter(group, far, far_part, op));
    check_bits(far_part, part);
    near = tt_clone(near);
    far = tt_clone(far);
    CHECK_OK(tt_tensor_all_reduce(group, near, op));
    CHECK_OK(tt_tensor_all_reduce(group, far, op));
    check_bits(far, near);
}

static void move_both(tt_group *group, int rank, tt_dtype dtype) {
    TT_AUTO_SCOPE;
    tt_tensor *near = drawn(rank, ROWS, dtype), *far = there(near);
    tt_tensor *all = drawn(9, ROWS * RANKS, dtype), *far_all = there(all);
    CHECK_OK(tt_tensor_all_gather(group, near, all));
    CHECK_OK(tt_tensor_all_gather(group, far, far_all));
    check_bits(far_all, all);
    near = tt_clone(near);
    far = tt_clone(far);
    CHECK_OK(tt_tensor_broadcast(group, near, 1));
    CHECK_OK(tt_tensor_broadcast(group, far, 1));
    check_bits(far, near);
}

static void collectives(tt_group *group, int rank, void *user) {
    static const tt_dtype types[] = {TT_F32, TT_BF16, TT_F16, TT_I64};
    (void)user;
    for (int t = 0; t < 4; t++) {
        reduce_both(group, rank, types[t], TT_SUM);
        reduce_both(group, rank, types[t], TT_AVG);
        move_both(group, rank, types[t]);
    }
}

static void collectives_have_the_cpus_bits(void **state) {
    (void)state;
    assert_int_equal(run_ranks(RANKS, collectives, NULL), 0);
}

/* ---- gradients */

static tt_module *new_model(void) {
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential(tt_nn_linear(40, 60), tt_nn_relu(), tt_nn_linear(60, 10));
    CHECK_OK(tt_module_to_device(model, TT_CUDA(0)));
    return model;
}

static void pass(tt_module *model, int rank, int step) {
    tt_manual_seed((uint64_t)(10 * step + rank));
    tt_tensor *x = there(tt_randn(TT_SHAPE(16, 40), NULL)), *y = there(tt_full(TT_SHAPE(16), TT_I64, 3));
    CHECK_OK(tt_backward(tt_cross_entropy(tt_module_forward(model, x), y)));
}

/* The average of both ranks' gradients, by way of the host, beside what tt_ddp() has left. */
static void compare_gradients(tt_group *group, const tt_named_tensors *by_hand, const tt_named_tensors *averaged) {
    TT_NO_GRAD;
    for (int64_t i = 0; i < by_hand->count; i++) {
        tt_tensor *near = tt_clone(tt_to_device(tt_grad(by_hand->tensors[i]), TT_CPU));
        CHECK_OK(tt_tensor_all_reduce(group, near, TT_AVG));
        check_bits(tt_grad(averaged->tensors[i]), near);
        CHECK_OK(tt_copy(tt_grad(by_hand->tensors[i]), near));
    }
}

static void train(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *plain = new_model(), *wrapped = new_model(), *ddp = tt_ddp(wrapped, group, .bucket_cap_bytes = 4096);
    CHECK(ddp);
    tt_optimizer *hand = tt_sgd(tt_module_parameters(plain), 0.1), *sgd = tt_sgd(tt_module_parameters(wrapped), 0.1);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_optimizer_zero_grad(hand);
        tt_optimizer_zero_grad(sgd);
        pass(plain, rank, step);
        pass(ddp, rank, step);
        compare_gradients(group, tt_module_parameters(plain), tt_module_parameters(wrapped));
        CHECK(!tt_optimizer_step(hand) && !tt_optimizer_step(sgd));
    }
    tt_optimizer_free(hand);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(wrapped);
    tt_module_free(plain);
}

static void gradients_have_the_bits_of_averages_by_hand(void **state) {
    (void)state;
    assert_int_equal(run_ranks(RANKS, train, NULL), 0);
}

/* ---- ranks that call something else, die or freeze */

static void call_another(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_tensor *x = there(tt_ones(TT_SHAPE(1000), TT_F32));
    tt_status status = rank ? tt_tensor_broadcast(group, x, 0) : tt_tensor_all_reduce(group, x, TT_SUM);
    CHECK(status == TT_ERR_MISMATCH);
    CHECK_TEXT(rank ? "rank 0" : "rank 1");
    CHECK_TEXT("broadcast");
    CHECK_TEXT("all_reduce");
}

static void another_call_is_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(RANKS, call_another, NULL), 0);
}

/* Rank 1 gets a signal while it uses the device, and rank 0 waits for it. */
static int loses_rank_1(tt_store *store, int rank, int world, void *arg) {
    const int *signal_number = arg;
    tt_group *group = NULL;
    TT_AUTO_SCOPE;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = *signal_number == SIGSTOP ? HEARTBEAT_MS : CALM_MS));
    tt_tensor *x = there(tt_ones(TT_SHAPE(1000), TT_F32));
    CHECK_OK(tt_tensor_all_reduce(group, x, TT_SUM));
    if (rank == 1)
        raise(*signal_number);
    CHECK(tt_tensor_all_reduce(group, x, TT_SUM) == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    CHECK(*signal_number == SIGKILL || strstr(tt_last_error(), "frozen"));
    check_bits(x, tt_full(TT_SHAPE(1000), TT_F32, 2)); /* the device goes on */
    tt_destroy_process_group(group);
    return 0;
}

static void expect_named(int signal_number) {
    ranks ranks;
    start_ranks(&ranks, RANKS, loses_rank_1, &signal_number);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    kill(ranks.pid[1], SIGKILL);
    assert_int_equal(end_of_rank(&ranks, 1), 128 + SIGKILL);
    tt_store_server_free(ranks.server);
}

static void a_rank_that_dies_is_named(void **state) {
    (void)state;
    expect_named(SIGKILL);
}

static void a_rank_that_freezes_is_named(void **state) {
    (void)state;
    expect_named(SIGSTOP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_have_the_cpus_bits), cmocka_unit_test(gradients_have_the_bits_of_averages_by_hand),
        cmocka_unit_test(another_call_is_named),          cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_rank_that_freezes_is_named),
    };
    return cuda_choose_any() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
