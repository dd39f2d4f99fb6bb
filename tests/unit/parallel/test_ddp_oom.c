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

#include "unit/alloc_fail.h"

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

/* Two layers, of which the first registered runs last: buckets are formed anew when the first step has ended. */
static tt_tensor *backwards_forward(tt_module *self, tt_tensor *x) {
    return tt_module_forward(tt_module_child(self, "late"), tt_module_forward(tt_module_child(self, "early"), x));
}

static tt_module *make_backwards(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Backwards", .forward = backwards_forward);
    tt_module *m = tt_module_new(&cls, NULL);
    if (m &&
        (tt_module_add_module(m, "late", tt_nn_linear(5, 3)) || tt_module_add_module(m, "early", tt_nn_linear(6, 5)))) {
        tt_module_free(m);
        return NULL;
    }
    return m;
}

enum { REBUILT = -1 };

static tt_status program(void *arg) {
    int kind = *(const int *)arg, virtual_ranks = kind == REBUILT ? 0 : kind;
    tt_group *group = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;
    tt_status status = tt_init_process_group(&group, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1);
    if (!status) {
        model = kind == REBUILT
                    ? make_backwards()
                    : tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_batch_norm1d(5), tt_nn_relu(), tt_nn_linear(5, 3));
        ddp =
            tt_ddp(model, group, .virtual_ranks = virtual_ranks, .shard_seed = 1, .bucket_cap_bytes = kind == REBUILT);
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
    int kinds[] = {0, 3, REBUILT};
    for (int i = 0; i < 3; i++) /* there is something to fail */
        assert_in_range(alloc_fail_each(program, &kinds[i], ALLOC_ENDS), 50, 3000);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
