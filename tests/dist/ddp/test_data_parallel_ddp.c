/* DataParallel inside DDP: ranks with a thread a replica. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

static tt_module *small_model(void) {
    tt_manual_seed(5);
    return tt_nn_sequential(tt_nn_linear(4, 8), tt_nn_relu(), tt_nn_linear(8, 2));
}

/* The average of ranks whose gradients are sums of replicas', beside one module and the whole batch. */
static void train(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *whole = small_model(), *inner = tt_data_parallel(small_model(), .replicas = 2);
    tt_module *ddp = tt_ddp(inner, group, .bucket_cap_bytes = 1);
    tt_optimizer *a = tt_sgd(tt_module_parameters(whole), 0.1), *b = tt_sgd(tt_module_parameters(ddp), 0.1);
    for (int step = 0; step < 10; step++) {
        TT_AUTO_SCOPE;
        tt_manual_seed(100 + (uint64_t)step);
        tt_tensor *x = tt_randn(TT_SHAPE(12, 4), NULL), *y = tt_randn(TT_SHAPE(12, 2), NULL);
        tt_optimizer_zero_grad(a);
        tt_optimizer_zero_grad(b);
        CHECK_OK(tt_backward(tt_mse_loss(tt_module_forward(whole, x), y)));
        tt_tensor *mine = tt_module_forward(ddp, tt_narrow(x, 0, 6 * rank, 6));
        CHECK_OK(tt_backward(tt_mse_loss(mine, tt_narrow(y, 0, 6 * rank, 6))));
        CHECK(!tt_optimizer_step(a) && !tt_optimizer_step(b));
    }
    for (int64_t i = 0; i < tt_module_parameters(whole)->count; i++) {
        TT_AUTO_SCOPE;
        double apart;
        tt_tensor *got = tt_detach(tt_module_parameters(ddp)->tensors[i]);
        CHECK_OK(tt_item(tt_max(tt_abs(tt_sub(got, tt_detach(tt_module_parameters(whole)->tensors[i])))), &apart));
        CHECK(apart < 1e-6);
    }
    tt_optimizer_free(a);
    tt_optimizer_free(b);
    tt_module_free(ddp);
    tt_module_free(inner);
    tt_module_free(whole);
}

static void ranks_average_what_replicas_sum(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train, NULL), 0);
}

/* Threads of replicas are no ranks. */
static void refuse(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    TT_AUTO_SCOPE;
    tt_module *model = tt_nn_sequential(tt_nn_linear(4, 2)), *ddp = tt_ddp(model, group);
    CHECK(!tt_data_parallel(ddp, .replicas = 2) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("has a DistributedDataParallel inside");
    tt_module_free(model); /* the wrapper is gone: it is owned also on failure */
    tt_module *norm = tt_data_parallel(tt_nn_sync_batch_norm(group, 4), .replicas = 2);
    CHECK(!tt_module_forward(norm, tt_ones(TT_SHAPE(4, 4), TT_F32)) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("use tt_ddp()");
    tt_module_eval(norm);
    CHECK(tt_module_forward(norm, tt_ones(TT_SHAPE(4, 4), TT_F32)));
    tt_module_free(norm);
}

static void replicas_take_no_part_in_collectives(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_average_what_replicas_sum),
        cmocka_unit_test(replicas_take_no_part_in_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
