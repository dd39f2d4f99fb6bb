/* Several small batches make up a large one: only the last of them averages, so that four cost one exchange. In
 * PyTorch:
 *
 *     for step in range(3):
 *         optimizer.zero_grad()
 *         for i in range(4):
 *             with ddp_model.no_sync() if i < 3 else nullcontext():
 *                 (loss_fn(ddp_model(x), y) / 4).backward()
 *         optimizer.step()
 *
 * What the ranks hold after the first three differs; after the last all hold the average.
 *
 *   tutti run --nproc-per-node=2 build/examples/ddp_no_sync */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#include "usage.h"

static const char usage[] = "usage: tutti run --nproc-per-node=N ddp_no_sync\n"
                            "Four batches a step, of which the last averages.\n";

enum { STEPS = 3, BATCHES = 4 };

static double first_gradient(tt_module *model) {
    return (double)tt_tensor_f32(tt_grad(tt_module_parameters(model)->tensors[0]))[0];
}

static tt_status add_batch(tt_module *model) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_randn(TT_SHAPE(8, 10), NULL), *y = tt_randn(TT_SHAPE(8, 5), NULL);
    return tt_backward(tt_scale(tt_mse_loss(tt_module_forward(model, x), y), 1.0 / BATCHES));
}

static tt_status train_step(tt_module *model, tt_optimizer *sgd, int rank, int step) {
    double before = 0;
    tt_optimizer_zero_grad(sgd);
    for (int i = 0; i < BATCHES; i++) {
        bool last = i == BATCHES - 1;
        if (last)
            before = first_gradient(model);
        if (tt_ddp_set_sync(model, last) || add_batch(model))
            return tt_last_status();
    }
    printf("step %d: rank %d had %.6f of its own, all have %.6f\n", step, rank, before, first_gradient(model));
    return tt_optimizer_step(sgd);
}

int main(int argc, char **argv) {
    int rc = EXIT_FAILURE;
    tt_group *world = NULL;
    tt_module *model = NULL, *ddp = NULL;
    tt_optimizer *sgd = NULL;

    if (argc > 1)
        return tell_usage(usage, argv[1]);
    if (tt_init_process_group(&world))
        goto out;
    int rank = tt_get_rank(world);
    model = tt_nn_linear(10, 5);
    ddp = tt_ddp(model, world);
    sgd = tt_sgd(tt_module_parameters(ddp), 0.1);
    if (!sgd)
        goto out;
    for (int step = 0; step < STEPS; step++)
        if (train_step(ddp, sgd, rank, step))
            goto out;
    rc = EXIT_SUCCESS;
out:
    if (rc)
        tt_report();
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_destroy_process_group(world);
    return rc;
}
