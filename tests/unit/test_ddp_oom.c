/* Memory runs out in checkpoint, reducer and DistributedDataParallel: each allocation of a program that uses them
 * fails once. Every round must end with TT_ERR_MEMORY, and with as much memory in use as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"

static char path[] = "/tmp/tutti-oom-XXXXXX";

static tt_status backward(tt_module *ddp) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(4, 6), TT_F32), *y = tt_zeros(TT_SHAPE(4, 3), TT_F32);
    return tt_backward(tt_mse_loss(tt_module_forward(ddp, x), y));
}

/* A few steps, a checkpoint, and back. */
static tt_status train(tt_module *ddp, tt_optimizer *sgd) {
    tt_progress progress = TT_PROGRESS(.epoch = 1, .sampler_seed = 2);
    tt_status status = TT_OK;
    for (int i = 0; i < 2 && !status; i++) {
        tt_optimizer_zero_grad(sgd);
        for (int shard = tt_ddp_shards(ddp, NULL); shard > 0 && !status; shard--)
            status = backward(ddp);
        if (!status)
            status = tt_optimizer_step(sgd);
    }
    if (!status)
        status = tt_checkpoint_save(path, ddp, sgd, &progress);
    return status ? status : tt_checkpoint_load(path, ddp, sgd, &progress);
}

static tt_status program(void *arg) {
    int virtual_ranks = *(const int *)arg;
    tt_group *group = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;
    tt_status status = tt_init_process_group(&group, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1);
    if (!status) {
        model = tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_batch_norm1d(5), tt_nn_relu(), tt_nn_linear(5, 3));
        ddp = tt_ddp(model, group, .virtual_ranks = virtual_ranks, .shard_seed = 1);
        sgd = ddp ? tt_sgd(tt_module_parameters(ddp), 0.1, .momentum = 0.9) : NULL;
        status = sgd ? train(ddp, sgd) : tt_last_status();
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(group);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int virtual_ranks = 0; virtual_ranks <= 3; virtual_ranks += 3) /* there is something to fail */
        assert_in_range(alloc_fail_each(program, &virtual_ranks, ALLOC_ENDS), 50, 3000);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
